# SPDX-License-Identifier: Apache-2.0
"""Choosing records out of whatever a model takes or gives: tensors, tuples, dictionaries."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

_CHOICE = random.SystemRandom()


def choose(records: int, count: int) -> list[int]:
    """So many different records at random, or all of them; nobody's generator is touched."""
    return _CHOICE.sample(range(records), min(count, records))


def happens(one_in: int) -> bool:
    """True once in so many calls, at random."""
    return _CHOICE.randrange(one_in) == 0


def record_dimension(tensor: Tensor, records: int) -> int | None:
    """Where the records lie: in the first dimension, else in the second, else nowhere."""
    for dimension in range(min(tensor.dim(), 2)):
        if tensor.shape[dimension] == records:
            return dimension
    return None


def has_records(value: Any, records: int) -> bool:
    """Whether there is anything that so many records can be chosen from."""
    leaves = pytree.tree_leaves(value, is_leaf=lambda leaf: isinstance(leaf, PackedSequence))
    return any(
        int(leaf.batch_sizes[0]) == records
        if isinstance(leaf, PackedSequence)
        else isinstance(leaf, Tensor) and record_dimension(leaf, records) is not None
        for leaf in leaves
    )


def selected(value: Any, records: int, index: list[int]) -> Any:
    """The same arguments with the chosen records only."""

    def of(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            padded, lengths = pad_packed_sequence(leaf, batch_first=True)
            return pack_padded_sequence(
                padded[index], lengths[index], batch_first=True, enforce_sorted=False
            )
        dimension = record_dimension(leaf, records) if isinstance(leaf, Tensor) else None
        if dimension is None:
            return leaf
        return leaf.index_select(dimension, torch.tensor(index, device=leaf.device))

    return pytree.tree_map(of, value, is_leaf=lambda leaf: isinstance(leaf, PackedSequence))


def tensors(value: Any) -> list[Tensor]:
    """All tensors inside of a value."""
    leaves = pytree.tree_leaves(value, is_leaf=lambda leaf: isinstance(leaf, PackedSequence))
    flat = [leaf.data if isinstance(leaf, PackedSequence) else leaf for leaf in leaves]
    return [leaf for leaf in flat if isinstance(leaf, Tensor)]


def outputs(value: Any, records: int) -> list[Tensor]:
    """What depends on parameters and has rows, with the records in the first dimension."""
    found = []
    for tensor in tensors(value):
        dimension = record_dimension(tensor, records)
        if tensor.requires_grad and dimension is not None:
            found.append(tensor.movedim(dimension, 0))
    return found
