# SPDX-License-Identifier: Apache-2.0
"""What a caller gave as data: a map-style dataset, or a DataLoader around one.

A DataLoader is taken for its dataset, batch size and collate function. How it draws batches is
replaced, since the guarantee rests on Poisson samples that are paid for before they are read; what
it was told about that is named in a warning, and a choice of records of its own is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from dosimeter.training.loader import Records

Collate = Callable[[list[Any]], Any]


class Given(NamedTuple):
    """The records, the expected size of a batch, and what makes a batch of records."""

    dataset: Records
    batch_size: int
    collate: Collate | None


def given(
    data: Records | DataLoader[Any], batch_size: int | None, collate: Collate | None
) -> Given:
    """The dataset with its batch size, from a DataLoader where it is one.

    Raises:
        ValueError: There is no batch size, or a DataLoader chooses its records.
    """
    if not isinstance(data, DataLoader):
        if batch_size is None:
            raise ValueError("batch_size must be given with a dataset, got none")
        return Given(data, batch_size, collate)
    _require_plain(data)
    if batch_size is None:
        batch_size = data.batch_size
    elif batch_size != data.batch_size:
        raise ValueError(
            f"batch_size must be left out or that of the DataLoader, {data.batch_size}, got "
            f"{batch_size!r}; pass its dataset to choose another"
        )
    assert batch_size is not None  # a loader without one has a batch sampler of its own
    if collate is None and data.collate_fn is not default_collate:
        collate = data.collate_fn
    ignored = _ignored(data)
    if ignored:
        warnings.warn(
            f"{', '.join(ignored)} of the DataLoader must be left out, and {_is(ignored)} ignored: "
            "batches are Poisson samples, read once they are paid for. make_private takes "
            "num_workers itself",
            stacklevel=3,
        )
    return Given(data.dataset, batch_size, collate)  # type: ignore[arg-type]


def _require_plain(data: DataLoader[Any]) -> None:
    """Refuses a choice of records that would be lost without a word."""
    sampler, batches = data.sampler, data.batch_sampler
    drawn_twice = isinstance(sampler, RandomSampler) and (
        sampler.replacement or sampler.num_samples != len(data.dataset)  # type: ignore[arg-type]
    )
    plain = type(sampler) in (RandomSampler, SequentialSampler) and not drawn_twice
    if not plain or type(batches) is not BatchSampler:
        chosen = batches if plain else sampler
        raise ValueError(
            "DataLoader must have no sampler of its own, for each record joins a batch by a coin "
            f"that the accounting knows, got {type(chosen).__name__}; to train on some records "
            "pass a torch.utils.data.Subset"
        )


def _ignored(data: DataLoader[Any]) -> list[str]:
    told = {
        "num_workers": data.num_workers,
        "drop_last": data.drop_last,
        "pin_memory": data.pin_memory,
        "timeout": data.timeout,
    }
    return [f"{name}={value!r}" for name, value in told.items() if value]


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
