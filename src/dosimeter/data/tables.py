# SPDX-License-Identifier: Apache-2.0
"""Tables with labels and without: an .npz of arrays, a CSV, and scikit-learn's digits.

What the classes are must be said by the caller and is never gathered from the records: a
class that only one record has would otherwise show in the shape of the model.
"""

from __future__ import annotations

import csv
import lzma
import math
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from dosimeter import arguments
from dosimeter.data.labelled import Labelled, Split
from dosimeter.nearest import first, hint

Classes = int | Sequence[str]

_NO_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    KeyError,
    RuntimeError,  # a password, or an unknown compression
    ValueError,
    TypeError,
    AttributeError,
)
"""The exceptions of `numpy.load` and `zipfile` for a file that is no archive of plain arrays."""


def class_names(classes: Classes) -> tuple[str, ...]:
    """What the labels are called: the given names, or the numbers from 0 on."""
    if isinstance(classes, int):
        names = tuple(str(number) for number in range(arguments.count("classes", classes)))
    else:
        names = tuple(classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"classes must be at least two different ones, got {classes!r}")
    return names


def read_npz(path: str | os.PathLike[str], classes: Classes) -> Split:
    """Reads the arrays `x` and `y`, or `x_train`, `y_train`, `x_test` and `y_test`.

    Args:
        path: A file that `numpy.savez` wrote.
        classes: How many classes there are, or their names; labels count from 0.

    Raises:
        ValueError: It holds something else.
    """
    names = class_names(classes)
    arrays = _arrays(path)
    if {"x", "y"} <= set(arrays):
        return Split(_part(arrays, "x", "y", len(names)), None, names)
    if {"x_train", "y_train"} <= set(arrays):
        train = _part(arrays, "x_train", "y_train", len(names))
        has_test = {"x_test", "y_test"} <= set(arrays)
        test = _part(arrays, "x_test", "y_test", len(names)) if has_test else None
        return Split(train, test, names)
    raise ValueError(
        "data must hold the arrays x and y, or x_train and y_train, got "
        f"{', '.join(sorted(arrays)) or 'none'}"
    )


def _arrays(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """The arrays in a file that `numpy.savez` wrote, by name.

    Raises:
        ValueError: It holds something else.
    """
    try:
        # numpy leaves a file open that it cannot read; this one is closed in any case.
        with pathlib.Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except _NO_ARCHIVE as error:
        raise ValueError(
            "data must be plain arrays that numpy.savez wrote, got something else"
        ) from error


def read_csv(path: str | os.PathLike[str], label: str, classes: Classes) -> Split:
    """Reads a table with a header: numbers in every column but that of the labels.

    Args:
        path: A CSV file in UTF-8.
        label: The name of the column of labels.
        classes: The labels as they are written, or how many there are if they are the
            whole numbers from 0 on.

    Raises:
        ValueError: A value does not fit; its line and column are named.
    """
    numbers = {name: number for number, name in enumerate(class_names(classes))}
    inputs: list[list[float]] = []
    labels: list[int] = []
    with pathlib.Path(path).open(encoding="utf-8-sig", newline="") as file:
        rows = _rows(file)
        header = _header(rows, label)
        place = header.index(label)
        columns = header[:place] + header[place + 1 :]
        for line, row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"line {line} must have {len(header)} values, got {len(row)}")
            labels.append(_label(row.pop(place).strip(), numbers, line, label))
            inputs.append([_number(v, line, c) for v, c in zip(row, columns, strict=True)])
    x = np.array(inputs, dtype=np.float64)
    records = Labelled(x, np.array(labels, dtype=np.int64))
    return Split(records, None, tuple(numbers), tuple(columns))


def read_columns(path: str | os.PathLike[str], label: str) -> tuple[str, ...]:
    """The columns of a table but that of the labels; its first line is all that is read.

    Raises:
        ValueError: There is no such column, or two have one name.
    """
    with pathlib.Path(path).open(encoding="utf-8-sig", newline="") as file:
        return tuple(name for name in _header(_rows(file), label) if name != label)


def read_digits() -> Split:
    """The 1797 handwritten digits of scikit-learn, as images of 8×8 bytes."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.round(np.asarray(bunch.images) * (255 / 16)).astype(np.uint8)[..., None]
    return Split(Labelled(x, np.asarray(bunch.target, dtype=np.int64)), None, class_names(10))


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
        return _unlabelled(path, columns)
    if path.suffix.lower() == ".npz":
        arrays = _arrays(path)
        if "x" not in arrays:
            raise ValueError(
                f"data must hold an array x, got {', '.join(sorted(arrays)) or 'none'}"
            )
        return Inputs(arrays["x"])
    raise ValueError(f"data must be a .csv or an .npz, got {str(path)!r}, which is neither")


def _rows(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, each with the number of its last line."""
    rows = csv.reader(file)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num} must be one of a CSV file, got {error}") from error


def _header(rows: Iterator[tuple[int, list[str]]], label: str) -> list[str]:
    """The names of the columns, each of its own, with that of the labels among them."""
    _, header = next(rows, (0, []))
    if label not in header:
        raise ValueError(
            f"label must be one of the columns {first(header)}, got {label!r}{hint(label, header)}"
        )
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice or len(header) < 2:
        raise ValueError(
            "columns must have different names, and be more than one, got "
            + (f"{first([repr(name) for name in twice])} twice" if twice else repr(header))
        )
    return header


def _unlabelled(path: pathlib.Path, columns: Sequence[str]) -> Inputs:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = _rows(file)
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
            found.append([_number(row[at], line, header[at]) for at in places])
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


def _label(text: str, numbers: Mapping[str, int], line: int, column: str) -> int:
    if text not in numbers:
        raise ValueError(
            f"line {line}, column {column!r} must be one of the classes {first(list(numbers))}, "
            f"got {text!r}"
        )
    return numbers[text]


def _number(text: str, line: int, column: str) -> float:
    """The finite number that a cell holds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"line {line}, column {column!r} must be a finite number, got {text!r}")
    return number


def _part(arrays: Mapping[str, npt.NDArray[Any]], x: str, y: str, classes: int) -> Labelled:
    inputs, labels = arrays[x], arrays[y]
    if inputs.ndim not in (2, 3, 4) or inputs.dtype.kind not in "iuf" or 0 in inputs.shape[1:]:
        raise ValueError(
            f"{x} must hold numbers: records × columns, or records × height × width (× channels), "
            f"got {inputs.dtype} of shape {inputs.shape}"
        )
    if inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float64)
        if not np.isfinite(inputs).all():
            record = int(np.argwhere(~np.isfinite(inputs))[0][0])
            raise ValueError(f"{x} must hold finite numbers, got another in record {record}")
    if labels.shape != inputs.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{y} must hold one whole number for each of the {len(inputs)} records, got "
            f"{labels.dtype} of shape {labels.shape}"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise ValueError(
            f"{y} must be from 0 to {classes - 1}, got {labels[wrong[0]]} in record {wrong[0]}"
        )
    return Labelled(inputs, labels.astype(np.int64))
