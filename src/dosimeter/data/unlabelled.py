# SPDX-License-Identifier: Apache-2.0
"""Unlabelled inputs, as a trained model is asked about them: a table, arrays, or images."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from tarfile import is_tarfile
from typing import Any
from zipfile import is_zipfile

import numpy as np
import numpy.typing as npt

from dosimeter.data.images import SUFFIXES, decode, image_files
from dosimeter.data.tables import csv_rows, number, zipped_arrays
from dosimeter.nearest import first, hint


@dataclass(frozen=True)
class Inputs:
    """Inputs without labels, each with a name to find it again.

    Attributes:
        x: One input a row.
        names: The number of each row, from 1 on, or the name of its image.
        ignored: Columns of a table that were not asked for.
    """

    x: npt.NDArray[Any]
    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def read_inputs(path: str | os.PathLike[str], columns: Sequence[str] = ()) -> Inputs:
    """Reads a CSV, an .npz with an array `x`, or an image, a folder or an archive of images.

    Args:
        path: What to read.
        columns: The columns of a CSV to take, by name and in this order; all without names.

    Raises:
        FileNotFoundError: There is nothing there.
        ValueError: It does not fit.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"data must be a file or a folder, got nothing at {str(path)!r}")
    if path.suffix.lower() == ".csv":
        return _table(path, columns)
    if path.suffix.lower() == ".npz":
        arrays = zipped_arrays(path)
        if "x" not in arrays:
            raise ValueError(
                f"data must hold an array x, got {', '.join(sorted(arrays)) or 'none'}"
            )
        return Inputs(arrays["x"], _numbered(len(arrays["x"])))
    return _images(path)


def _table(path: pathlib.Path, columns: Sequence[str]) -> Inputs:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv_rows(file)
        _, header = next(lines, (0, []))
        wanted = list(columns) or header
        _require_all(wanted, header)
        places = [header.index(name) for name in wanted]
        found = []
        for line, row in lines:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"line {line} must have {len(header)} values, got {len(row)}")
            found.append([number(row[at], line, header[at]) for at in places])
    if not found:
        raise ValueError("data must have at least one record, got none")
    ignored = tuple(name for name in header if name not in wanted)
    return Inputs(np.array(found, dtype=np.float64), _numbered(len(found)), ignored)


def _require_all(wanted: Sequence[str], header: list[str]) -> None:
    """Raises unless each of the columns is there once."""
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        raise ValueError(f"data must have one column {twice[0]!r}, got several of that name")
    missing = [name for name in wanted if name not in header]
    if len(missing) == 1:
        raise ValueError(
            f"data must have one column {missing[0]!r}, as in training, got {first(header)}"
            f"{hint(missing[0], header)}"
        )
    if missing:
        which = "none" if len(missing) == len(wanted) else f"{len(wanted) - len(missing)}"
        raise ValueError(
            f"data must have the {len(wanted)} columns of training, got {which} of them: "
            f"{first([repr(name) for name in missing], 3)} are missing; it has {first(header)}"
        )


def _images(path: pathlib.Path) -> Inputs:
    found = []
    if path.is_dir() or path.suffix.lower() in SUFFIXES or is_zipfile(path) or is_tarfile(path):
        found = [(name, decode(name, content)) for name, content in image_files(path)]
    if not found:
        raise ValueError(
            f"data must be a .csv, an .npz, or images, got {str(path)!r}, which is none of them"
        )
    found.sort(key=lambda item: item[0])
    shape = found[0][1].shape
    for name, pixels in found:
        if pixels.shape != shape:
            raise ValueError(
                f"images must have one size, got another in {name}. Resize them first."
            )
    return Inputs(np.stack([pixels for _, pixels in found]), tuple(name for name, _ in found))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(place) for place in range(1, count + 1))
