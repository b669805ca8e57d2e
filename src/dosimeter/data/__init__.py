# SPDX-License-Identifier: Apache-2.0
"""Labelled tables and arrays, read from files as plain arrays."""

from dosimeter.data.labelled import Labelled, Split
from dosimeter.data.tables import read_columns, read_csv, read_digits, read_inputs, read_npz

__all__ = [
    "Labelled",
    "Split",
    "read_columns",
    "read_csv",
    "read_digits",
    "read_inputs",
    "read_npz",
]
