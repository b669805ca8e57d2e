# SPDX-License-Identifier: Apache-2.0
"""Unlabelled inputs, as a trained model is asked about them: a table or an array."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter.data.tables import csv_rows, number, zipped_arrays
from dosimeter.nearest import first, hint


@dataclass(frozen=True)
class Inputs:
    """Inputs without labels.

    Attributes:
        x: One input a row.
        ignored: Columns of a table that were not asked for.
    """

    x: npt.NDArray[Any]
    ignored: tuple[str, ...] = ()


def read_inputs(path: str | os.PathLike[str], columns: Sequence[str] = ()) -> Inputs:
    """Read a CSV, or an .npz with an array `x`.

    Args:
        path: What to read.
        columns: The columns of a CSV to take, by name and in this order; all without names.

    Raises:
        FileNotFoundError: There is nothing there.
        ValueError: It does not fit.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"data must be a file, got nothing at {str(path)!r}")
    if path.suffix.lower() == ".csv":
        return _table(path, columns)
    if path.suffix.lower() == ".npz":
        arrays = zipped_arrays(path)
        if "x" not in arrays:
            raise ValueError(
                f"data must hold an array x, got {', '.join(sorted(arrays)) or 'none'}"
            )
        return Inputs(arrays["x"])
    raise ValueError(f"data must be a .csv or an .npz, got {str(path)!r}, which is neither")


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
    return Inputs(np.array(found, dtype=np.float64), ignored)


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
