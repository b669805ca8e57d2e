# SPDX-License-Identifier: Apache-2.0
"""RecordLoss: a loss function that sees one record at a time, so that none can touch another.

Shapes that broadcast, means over the labels that count and weights that are divided by their
sum are all harmless then: each happens within one record.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class RecordLoss:
    """The mean, or the sum, over records of a loss that is computed for each by itself.

    Args:
        loss_fn: Takes outputs and labels of a batch, here of one record. One with a `reduction`
            is asked for every element, and these are averaged (or added up) for each record;
            an ignored label counts as a loss of zero.
        mean: Whether the losses of the records are averaged.

    Attributes:
        reduction: "mean" or "sum"; with "none" the losses come one for each record.
    """

    def __init__(self, loss_fn: Callable[..., Tensor], *, mean: bool) -> None:
        self._each, self._mean = loss_fn, mean
        if getattr(loss_fn, "reduction", "none") != "none":
            self._each = copy.copy(loss_fn)
            self._each.reduction = "none"  # type: ignore[attr-defined]
        self._one_by_one = False
        self.reduction = "mean" if mean else "sum"

    def __call__(self, output: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        records = len(output)
        leaves, spec = pytree.tree_flatten(((output, *args), kwargs))
        rows = [
            i
            for i, leaf in enumerate(leaves)
            if isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == records
        ]

        _refuse_other_places(leaves, rows, records)

        def one(*values: Tensor) -> Tensor:
            filled = list(leaves)
            for i, value in zip(rows, values, strict=True):
                filled[i] = value.unsqueeze(0)
            one_args, one_kwargs = pytree.tree_unflatten(filled, spec)
            loss = self._each(*one_args, **one_kwargs)
            return loss.mean() if self._mean else loss.sum()

        # An output that writes a tape needs none here: records are apart by construction.
        tape = getattr(type(output), "tape", None)
        if tape is not None:
            tape.examined = True
        plain = [leaves[i].as_subclass(Tensor) for i in rows]
        losses = self._over(one, plain)
        if self.reduction == "none":
            return losses
        return losses.mean() if self._mean else losses.sum()

    def _over(self, one: Callable[..., Tensor], rows: list[Tensor]) -> Tensor:
        if not self._one_by_one:
            try:
                losses: Tensor = torch.vmap(one, randomness="different")(*rows)
                return losses
            except (RuntimeError, ValueError):
                # Not every function can be mapped: this one takes the slow road from now on.
                self._one_by_one = True
        return torch.stack([one(*row) for row in zip(*rows, strict=True)])


def _refuse_other_places(leaves: list[Any], rows: list[int], records: int) -> None:
    """Raises for a tensor whose records would all be seen by each of them."""
    for i, leaf in enumerate(leaves):
        if records > 1 and isinstance(leaf, Tensor) and i not in rows and records in leaf.shape:
            raise ValueError(
                f"labels must have the {records} records in the first dimension, got a tensor of "
                f"shape {tuple(leaf.shape)}. Transpose it, or bind it to the loss function "
                "(functools.partial) if it is a constant."
            )
