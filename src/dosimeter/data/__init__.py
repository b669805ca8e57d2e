# SPDX-License-Identifier: Apache-2.0
"""Labelled data from the files people have, as plain arrays."""

from dosimeter.data.cifar import read_cifar
from dosimeter.data.images import read_images
from dosimeter.data.labelled import Labelled, Split

__all__ = ["Labelled", "Split", "read_cifar", "read_images"]
