# SPDX-License-Identifier: Apache-2.0
"""Labelled data from the files people have, as plain arrays."""

from dosimeter.data.cifar import read_cifar
from dosimeter.data.images import read_images
from dosimeter.data.labelled import Labelled, Split
from dosimeter.data.tables import read_columns, read_csv, read_digits, read_npz

__all__ = [
    "Labelled",
    "Split",
    "read_cifar",
    "read_columns",
    "read_csv",
    "read_digits",
    "read_images",
    "read_npz",
]
