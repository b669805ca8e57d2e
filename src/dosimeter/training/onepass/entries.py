# SPDX-License-Identifier: Apache-2.0
"""Entries: what one use of a parameter leaves behind about the gradient of each record.

Each kind knows three things: the squared norm of every record's gradient, the sum of those
gradients with a factor each, and the gradients themselves. Norm and sum are taken from the
same numbers, so that what is measured is what is added.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 1024
"""Squares are added in single precision within blocks of this length, in double beyond."""

PIECE = 36
"""How many rows are added in single precision: the more, the farther rounding goes.

In which order a matrix product adds them depends on the processor: 40 lost twice as much with
AVX-512 as with AVX2 where products are had one by one. 36 stays within the test with both.

It is the same for all batches. Were it to change with their size, rounding would not be alike in
two neighbours, and much of it would not cancel.
"""

HELD = 2**19
"""How many values are held at once of the sums of several pieces."""

ALONE = 2**13, 2**15
"""Sums of so many values are added one by one, on one thread and on several.

Otherwise all that are held are turned to double precision first. PyTorch adds fewer than 2**15
values on one thread.
"""

PAIRED = 16
"""How many records are in double precision at once while their steps are paired."""

WIDE = 2**20
"""A gradient of more values than this is not written out if it can be helped."""

CANCELS = 1e-4
"""How much of a norm may be allowance for rounding before the gradients are written out."""


class Entry(ABC):
    """The gradients of all records for one use of one parameter."""

    records: int

    @abstractmethod
    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, in double precision."""

    @abstractmethod
    def sum(self, factors: Tensor) -> Tensor:
        """The sum over records, each times its factor, as a flat tensor."""

    @abstractmethod
    def rows(self) -> Tensor:
        """The gradients written out, one flat row for each record."""

    @abstractmethod
    def without(self, kept: Tensor) -> Entry:
        """The same with zeros for all records that are not kept."""


class Rows(Entry):
    """Gradients that are written out: the rule for everything that has no better one."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)
        self.records = len(rows)

    def squares(self) -> Tensor:
        """See Entry."""
        return row_squares(self._rows)

    def sum(self, factors: Tensor) -> Tensor:
        """See Entry."""
        return added(factors.unsqueeze(1), self._rows)

    def rows(self) -> Tensor:
        """See Entry."""
        return self._rows

    def without(self, kept: Tensor) -> Entry:
        """See Entry."""
        return Rows(_masked(self._rows, kept))


class Outer(Entry):
    """A linear layer on one vector a record: the gradient is an outer product."""

    def __init__(self, inputs: Tensor, backprops: Tensor) -> None:
        self._a, self._g = inputs, backprops
        self.records = len(inputs)

    def squares(self) -> Tensor:
        """See Entry; the norm of an outer product is the product of the norms."""
        return (lengths(self._a) * lengths(self._g)).square_()

    def sum(self, factors: Tensor) -> Tensor:
        """See Entry."""
        return added(factors.unsqueeze(1) * self._g, self._a)

    def rows(self) -> Tensor:
        """See Entry."""
        return torch.bmm(self._g.unsqueeze(2), self._a.unsqueeze(1)).flatten(1)

    def without(self, kept: Tensor) -> Entry:
        """See Entry."""
        return Outer(_masked(self._a, kept), _masked(self._g, kept))


class Steps(Entry):
    """A linear layer on a sequence a record, too wide to write its gradients out.

    The squared norm is the sum over pairs of steps of the products of inner products, in double
    precision since it may cancel. What the sum may lose in single precision is added to the
    norm; where that would be more than a ten thousandth, the gradients are written out after all.
    """

    def __init__(self, inputs: Tensor, backprops: Tensor) -> None:
        # Both are read more than once, and patches of a convolution come transposed.
        self._a, self._g = inputs.contiguous(), backprops.contiguous()
        self.records = len(inputs)
        self._written: Rows | None = None

    def squares(self) -> Tensor:
        """See Entry."""
        if self._written is None:
            parts = zip(torch.split(self._a, PAIRED), torch.split(self._g, PAIRED), strict=True)
            norms, lost, fits = (torch.cat(each) for each in zip(*map(_paired, parts), strict=True))
            if bool((lost <= CANCELS * norms).all()):
                return (norms + lost).square_().where(fits, math.inf)
            self._written = Rows(self.rows())
        return self._written.squares()

    def sum(self, factors: Tensor) -> Tensor:
        """See Entry."""
        if self._written is not None:
            return self._written.sum(factors)
        scaled = (factors.view(-1, 1, 1) * self._g).flatten(0, 1)
        return added(scaled, self._a.flatten(0, 1))

    def rows(self) -> Tensor:
        """See Entry."""
        return torch.bmm(self._g.transpose(1, 2), self._a).flatten(1)

    def without(self, kept: Tensor) -> Entry:
        """See Entry."""
        return Steps(_masked(self._a, kept), _masked(self._g, kept))


class Lookup(Entry):
    """An embedding: the gradient of a record has a row for each of its different tokens."""

    def __init__(self, tokens: Tensor, backprops: Tensor, size: int) -> None:
        self.records, self._size = len(tokens), size
        flat = tokens.flatten(1)
        keys = flat + size * torch.arange(self.records, device=tokens.device).unsqueeze(1)
        self._keys, place = torch.unique(keys, return_inverse=True)
        place = place.flatten()
        grads = backprops.reshape(-1, backprops.shape[-1])
        self._grads = grads.new_zeros(len(self._keys), grads.shape[1]).index_add_(0, place, grads)

    def squares(self) -> Tensor:
        """See Entry."""
        squares = row_squares(self._grads)
        return squares.new_zeros(self.records).index_add_(0, self._keys // self._size, squares)

    def sum(self, factors: Tensor) -> Tensor:
        """See Entry."""
        scaled = (factors[self._keys // self._size].unsqueeze(1) * self._grads).double()
        total = scaled.new_zeros(self._size, scaled.shape[1])
        return total.index_add_(0, self._keys % self._size, scaled).flatten()

    def rows(self) -> Tensor:
        """See Entry."""
        width = self._grads.shape[1]
        rows = self._grads.new_zeros(self.records * self._size, width)
        return rows.index_copy_(0, self._keys, self._grads).view(self.records, -1)

    def without(self, kept: Tensor) -> Entry:
        """See Entry."""
        other = object.__new__(Lookup)
        other.records, other._size, other._keys = self.records, self._size, self._keys
        other._grads = _masked(self._grads, kept[self._keys // self._size])
        return other


class Reordered(Entry):
    """The gradients of a weight whose last dimension comes earlier than in another entry.

    Args:
        entry: The gradients of a tensor with the same values.
        sizes: The shape of that tensor.
        place: Where its last dimension is put to have the weight.
    """

    def __init__(self, entry: Entry, sizes: Sequence[int], place: int) -> None:
        self._entry, self._sizes, self._place = entry, sizes, place
        self.records = entry.records

    def squares(self) -> Tensor:
        """See Entry; the norm is that of any order."""
        return self._entry.squares()

    def sum(self, factors: Tensor) -> Tensor:
        """See Entry."""
        return self._in_order(self._entry.sum(factors).unsqueeze(0)).squeeze(0)

    def rows(self) -> Tensor:
        """See Entry."""
        return self._in_order(self._entry.rows())

    def without(self, kept: Tensor) -> Entry:
        """See Entry."""
        return Reordered(self._entry.without(kept), self._sizes, self._place)

    def _in_order(self, rows: Tensor) -> Tensor:
        return rows.view(len(rows), *self._sizes).movedim(-1, 1 + self._place).flatten(1)


def linear_entry(inputs: Tensor, backprops: Tensor) -> Entry:
    """The cheapest entry for a linear map, from (records, ..., inputs) and (..., outputs)."""
    if inputs.dim() == 2:
        return Outer(inputs, backprops)
    a, g = inputs.flatten(1, -2), backprops.flatten(1, -2)
    if a.shape[1] == 1:
        return Outer(a.squeeze(1), g.squeeze(1))
    steps, wide, high = a.shape[1], a.shape[2], g.shape[2]
    # Pairs of steps cost arithmetic, gradients written out cost memory: measured on a CPU.
    few = steps * steps * (wide + high) < 20 * wide * high
    if few or wide * high > WIDE:
        return Steps(a, g)
    # A matrix product is faster, for thin ones several times, if the longer side comes last.
    first, last = (a, g) if wide < high else (g, a)
    rows = torch.bmm(first.mT, last)
    return Rows(rows) if last is a else Reordered(Rows(rows), rows.shape[1:], 0)


def row_squares(rows: Tensor) -> Tensor:
    """The squared norm of each row, added up in blocks so that rounding stays small."""
    rows = rows.contiguous()  # added in eight lanes, as the margin of a norm has it
    records, length = rows.shape
    if length <= BLOCK:
        return _squares(rows)
    blocks = -(-length // BLOCK)
    if length % blocks == 0:
        return _squares(rows.view(records, blocks, -1)).sum(1)
    whole = length - length % BLOCK
    squares = _squares(rows[:, :whole].reshape(records, -1, BLOCK)).sum(1)
    return squares.add_(_squares(rows[:, whole:]))


def lengths(rows: Tensor) -> Tensor:
    """The norm of each row, with room for what vanishes when squared; infinite if too long."""
    squares, limits = row_squares(rows), torch.finfo(rows.dtype)
    # A factor times the other vector may be too small for rounding to be fine: not times this.
    fits = squares.where(squares < limits.max, math.inf)
    return fits.sqrt_().add_(hidden(rows.shape[1], rows.dtype))


def hidden(values: int, dtype: torch.dtype) -> float:
    """The most that so many values can add to a norm if each has a square that vanishes."""
    return math.sqrt(torch.finfo(dtype).tiny * values)


def _squares(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms.double().square_()


def added(left: Tensor, right: Tensor) -> Tensor:
    """The sum of the outer products of all rows, flat, in double precision if they are many.

    A matrix product adds one row after the other in single precision, so only a piece of the
    rows is given to it; the sums of pieces are added in double.
    """
    if left.shape[1] > right.shape[1]:  # faster if the longer side comes last
        return added(right, left).view(right.shape[1], -1).T.flatten()
    if len(left) <= PIECE:
        return (left.T @ right).flatten()
    whole = len(left) - len(left) % PIECE
    total = (left[whole:].T @ right[whole:]).double()
    at_once = max(1, HELD // total.numel())
    pieces = (
        torch.split(torch.unflatten(each[:whole], 0, (-1, PIECE)), at_once)
        for each in (left, right)
    )
    for some, others in zip(*pieces, strict=True):
        _add_products(total, some, others)
    return total.flatten()


def _add_products(total: Tensor, some: Tensor, others: Tensor) -> None:
    """Adds the products of pieces to a total in double; they are freed before the next ones."""
    products = torch.bmm(some.mT, others)
    alone = total.numel() >= ALONE[torch.get_num_threads() > 1]
    for each in products if alone else [products.sum(0, dtype=torch.float64)]:
        total += each


def _paired(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Norms from pairs of steps, what a sum may lose beyond them, and whether all is finite."""
    full = [tensor.double() for tensor in pair]
    alike = [torch.bmm(tensor, tensor.transpose(1, 2)) for tensor in full]
    own = torch.stack([pairs.diagonal(dim1=1, dim2=2) for pairs in alike])
    norms = (alike[0] * alike[1]).sum((1, 2)).clamp_(min=0).sqrt_()
    dtype, steps = pair[0].dtype, pair[0].shape[1]
    lost = own.prod(0).sqrt().sum(1) * (steps * _unit(dtype))
    return norms, lost, (own < torch.finfo(dtype).max).all(dim=2).all(dim=0)


def _masked(rows: Tensor, kept: Tensor) -> Tensor:
    return rows.where(kept.view(-1, *[1] * (rows.dim() - 1)), 0.0)


def _unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
