# SPDX-License-Identifier: Apache-2.0
"""Book: the gradients of one physical batch, from which norms, factors and sums are read.

The norm of a record is that of its whole gradient: a parameter that is used twice has the sum
of both uses measured, not each by itself. Norms are rounded up and factors down, so that what
a record adds stays within the bound in the arithmetic that is used, not only on paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dosimeter.training.onepass.entries import Entry, Rows, hidden
from dosimeter.training.onepass.factors import Clipping

MARGIN = 2.0**-18
"""By how much a norm is rounded up: what 1,024 squares can lose, added in eight lanes."""


class Book:
    """What the backward pass over one batch of `records` records has written down.

    Args:
        records: How many there are.
    """

    def __init__(self, records: int) -> None:
        self.records = records
        self._entries: dict[Tensor, Entry] = {}
        self.repeated = False
        """Whether a part of the model went through the backward pass twice."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, target: Tensor, entry: Entry) -> None:
        """Writes down a use of a parameter, or of a tensor that was made from parameters."""
        before = self._entries.get(target)
        if before is not None:
            entry = Rows(before.rows() + entry.rows())
        self._entries[target] = entry

    def clear(self) -> None:
        """Tears all pages out."""
        self._entries.clear()
        self.repeated = False

    def settle(self) -> None:
        """Brings what was written for tensors made from parameters home to the parameters."""
        made = [target for target in self._entries if target.grad_fn is not None]
        for target in made:
            rows = self._entries.pop(target).rows()
            parameters = _leaves(target)
            grads = torch.autograd.grad(
                target,
                parameters,
                rows.view(-1, *target.shape),
                is_grads_batched=True,
                allow_unused=True,
                retain_graph=True,
            )
            for parameter, grad in zip(parameters, grads, strict=True):
                if grad is not None:
                    self.add(parameter, Rows(grad.detach()))

    def gradients(self, parameter: Tensor) -> Tensor:
        """The gradient of each record for a parameter, written out in double precision."""
        entry = self._entries.get(parameter)
        if entry is None:
            return parameter.new_zeros(self.records, parameter.numel(), dtype=torch.float64)
        return entry.rows().double()

    @torch.no_grad()
    def norms(self) -> Tensor:
        """The norm of each record's gradient, rounded up, in double precision."""
        squares = sum(entry.squares() for entry in self._entries.values())
        assert isinstance(squares, Tensor)
        values = sum(target.numel() for target in self._entries)
        return squares.sqrt_().mul_(1 + MARGIN).add_(hidden(values, torch.float32))

    @torch.no_grad()
    def clipped_sums(
        self,
        parameters: Sequence[Tensor],
        max_grad_norm: float,
        scale: float = 1.0,
        clipping: Clipping = Clipping.FLAT,
    ) -> list[Tensor]:
        """The sum over records of the clipped gradient, by parameter; empties the book.

        Pieces of a batch are added in a fixed order, and in double precision where they are many.

        Args:
            parameters: Whose sums to give, in this order.
            max_grad_norm: What the gradient of each record is clipped to.
            scale: What a backpropagated gradient is multiplied by to be that of one record.
            clipping: How it is clipped.

        Guarantee:
            Each record adds a vector of norm at most `max_grad_norm`; one whose gradient is
            not finite adds nothing.
        """
        with torch.autocast(parameters[0].device.type, enabled=False):
            return self._clipped_sums(parameters, max_grad_norm, scale, clipping)

    def _clipped_sums(
        self, parameters: Sequence[Tensor], max_grad_norm: float, scale: float, clipping: Clipping
    ) -> list[Tensor]:
        self.settle()
        norms = self.norms().mul_(scale)
        if not math.isfinite(float(norms.sum())):
            kept = norms.isfinite()
            for target, entry in self._entries.items():
                self._entries[target] = entry.without(kept)
            norms = norms.where(kept, math.inf)
        factors = (max_grad_norm * scale) / clipping.lengths(norms, max_grad_norm)
        rounded = {dtype: _rounded_down(factors, dtype) for dtype in {p.dtype for p in parameters}}
        sums: dict[Tensor, Tensor] = {}
        for target in list(self._entries):
            found = self._entries.pop(target)  # what was added needs no memory any more
            sums[target] = found.sum(rounded[target.dtype])
        return [
            sums[parameter].view_as(parameter) if parameter in sums else torch.zeros_like(parameter)
            for parameter in parameters
        ]


def _rounded_down(factors: Tensor, dtype: torch.dtype) -> Tensor:
    found = (factors * (1 - 2 * torch.finfo(dtype).eps)).to(dtype)
    # Below the smallest normal number rounding is coarse, and might double a factor.
    return found.where(found >= torch.finfo(dtype).tiny, 0.0)


def _leaves(tensor: Tensor) -> list[Tensor]:
    """The parameters that a tensor was made from."""
    found: dict[int, Tensor] = {}
    seen, queue = set(), [tensor.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        queue.extend(edge for edge, _ in node.next_functions)
    return list(found.values())
