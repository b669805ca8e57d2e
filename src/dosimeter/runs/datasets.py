# SPDX-License-Identifier: Apache-2.0
"""Datasets: the records of a config, split into private and public and scaled.

Each record is split off and scaled by itself, with bounds from the config and never with
statistics of the data: neighbouring data sets stay neighbours.
"""

from __future__ import annotations

import hashlib
import pathlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from dosimeter.data import Labelled, Split, read_csv, read_digits, read_npz
from dosimeter.nearest import first, hint
from dosimeter.rounding import exact
from dosimeter.runs.config import Bounds, DataTable
from dosimeter.runs.starter import toml_name


@dataclass(frozen=True)
class Records:
    """What to train on and what is public, ready for a model.

    Attributes:
        private: The records to protect.
        public: The records declared public, if any.
        classes: What the labels are called.
        columns: What the columns of a table are called, if they have names.
        unscaled: The shape of one input as it is in the file.
    """

    private: TensorDataset
    public: TensorDataset | None
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ()
    unscaled: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: channels × height × width, or the number of columns."""
        return tuple(self.private.tensors[0].shape[1:])


def load(data: DataTable) -> Records:
    """The records that [data] describes.

    Raises:
        ValueError: They cannot be read, or a key does not fit them.
    """
    split = _read(data)
    train, test = split.train, split.test if data.public_test else None
    if data.public_test and split.test is None:
        raise ValueError(
            "data.public_test must be false for data without a test part, got true; "
            "public_share sets records aside"
        )
    if data.public_share is not None:
        if split.test is not None:
            raise ValueError(
                "data.public_share must be left out for data that has a test part, got "
                f"{exact(data.public_share)}; public_test = true declares that part public"
            )
        train, test = set_aside(train, data.public_share)
    public = None if test is None else _tensors(test, data, split.columns)
    return Records(
        _tensors(train, data, split.columns),
        public,
        split.classes,
        split.columns,
        split.train.x.shape[1:],
    )


def set_aside(records: Labelled, share: float) -> tuple[Labelled, Labelled]:
    """The records to keep and those to set aside, about `share` of them.

    The content of a record alone decides, so that adding or removing one moves no other, and
    equal records go the same way.

    Args:
        records: What to split.
        share: How much of it is set aside.
    """
    limit = int(share * 2**64)
    aside = np.array(
        [_number(x, int(y)) < limit for x, y in zip(records.x, records.y, strict=True)]
    )
    if not aside.any() or aside.all():
        raise ValueError(
            "data.public_share must leave records on both sides, got "
            f"{exact(share)} of {len(records)}"
        )
    return (
        Labelled(records.x[~aside], records.y[~aside]),
        Labelled(records.x[aside], records.y[aside]),
    )


def _number(x: npt.NDArray[Any], y: int) -> int:
    content = np.ascontiguousarray(x).tobytes() + y.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _read(data: DataTable) -> Split:
    if data.kind == "digits":
        try:
            return read_digits()
        except ValueError as error:
            raise ValueError(f"data.kind: {error}") from error
    path = pathlib.Path(data.path or "")
    if not path.exists():
        raise FileNotFoundError(f"data.path must lead to data, got no file at {path}")
    if path.is_dir():
        raise ValueError(f"data.path must be a file for {data.kind}, got the folder {path}")
    assert data.classes is not None
    try:
        if data.kind == "npz":
            return read_npz(path, data.classes)
        return read_csv(path, data.label or "", data.classes)
    except (ValueError, OSError, EOFError) as error:
        key = "data." if str(error).startswith("label ") else f"data.path {str(path)!r}: "
        raise ValueError(f"{key}{error}") from error


def _tensors(records: Labelled, data: DataTable, columns: tuple[str, ...]) -> TensorDataset:
    return TensorDataset(inputs(records.x, data, columns), torch.from_numpy(records.y))


def inputs(x: npt.NDArray[Any], data: DataTable, columns: tuple[str, ...] = ()) -> torch.Tensor:
    """What a model takes: scaled, and the channels of images before their height and width."""
    out = torch.from_numpy(scaled(x, data, columns).astype(np.float32, copy=False))
    if out.ndim == 3:
        return out.unsqueeze(1)
    return out.permute(0, 3, 1, 2).contiguous() if out.ndim == 4 else out


def scaled(x: npt.NDArray[Any], data: DataTable, columns: tuple[str, ...] = ()) -> npt.NDArray[Any]:
    """Inputs of a size that suits training, each record by itself.

    Values between the bounds become -1 to 1 and are clipped there; bytes become 0 to 1.

    Raises:
        ValueError: There are no bounds for numbers that are not bytes, or they do not fit.
    """
    if data.bounds is None:
        if x.dtype == np.uint8:
            return x / np.float32(255)
        each = ", ".join(f"{toml_name(name)} = [0, 100]" for name in columns[:2])
        raise ValueError(
            f"data.bounds must be given for {data.kind}, got none: what the values can be, known "
            "without looking at the data. One pair for all, bounds = [0, 100], or one for each "
            f"column{f', bounds = {{ {each} }}' if each else ''}{_writes_all(data, columns)}"
        )
    low, high = _limits(data, data.bounds, x.shape[1:], columns)
    unit = (np.clip(x.astype(np.float64), low, high) - low) / (high - low)
    return np.asarray(2 * unit - 1)


def _limits(
    data: DataTable, bounds: Bounds, shape: tuple[int, ...], columns: tuple[str, ...]
) -> npt.NDArray[np.float64]:
    """The lower and the higher bounds, each for all columns or one for each."""
    if isinstance(bounds, dict):
        for name in bounds:
            if name not in columns:
                raise ValueError(
                    f"data.bounds must name columns, got {name!r}{hint(name, columns)}"
                )
        without = [toml_name(name) for name in columns if name not in bounds]
        if without:
            raise ValueError(
                f"data.bounds must name every column, got none for {first(without)}"
                f"{_writes_all(data, without)}"
            )
        bounds = [bounds[name] for name in columns]
    found = np.asarray(bounds, dtype=np.float64)
    if found.ndim > 1 and found.shape != (*shape, 2):
        raise ValueError(
            "data.bounds must be one pair, or a pair for each column of a record, which has shape "
            f"{shape}, got {len(bounds)}"
        )
    return found.T


def _writes_all(data: DataTable, columns: Sequence[str]) -> str:
    """The way to a config that names all columns, where they are too many to type."""
    if data.kind != "csv" or len(columns) <= 2:
        return ""
    table = f"--data {shlex.quote(data.path or '')} --label {shlex.quote(data.label or '')}"
    return f"; dosimeter train --init new.toml {table} writes the name of every column"
