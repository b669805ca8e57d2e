# SPDX-License-Identifier: Apache-2.0
"""The grid of Rényi orders on which costs are counted.

A grid is a strictly increasing tuple of orders, each in [MIN_ORDER, MAX_ORDER].
Orders nearer to 1 are refused because 1/(order - 1) multiplies every rounding
error there; orders beyond the maximum because a sampled Gaussian needs one term
per unit of order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dosimeter import arguments

FloatArray = npt.NDArray[np.float64]

MIN_ORDER = 1.01
MAX_ORDER = 65536.0


class Orders(tuple[float, ...]):
    """A validated grid of orders that hashes in constant time.

    Attributes:
        array: The orders as a read-only array.
        beta: order - 1 for each, exactly (Sterbenz), read-only.
    """

    array: FloatArray
    beta: FloatArray
    _hash: int

    def __new__(cls, values: Iterable[float]) -> Orders:
        """Validates values; a grid that is already an Orders is returned as it is."""
        if isinstance(values, Orders):
            return values
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError(f"orders must be a sequence of numbers, got {values!r}")
        grid = tuple(arguments.real("orders", value) for value in values)
        if not grid:
            raise ValueError("orders must hold at least one order, got none")
        for order in grid:
            if not MIN_ORDER <= order <= MAX_ORDER:
                raise ValueError(
                    f"orders must lie between {MIN_ORDER} and {MAX_ORDER:g}, got {order!r}"
                )
        for low, high in itertools.pairwise(grid):
            if not low < high:
                raise ValueError(f"orders must increase strictly, got {low!r} before {high!r}")
        self = super().__new__(cls, grid)
        self.array = locked(np.array(grid))
        self.beta = locked(self.array - 1.0)
        self._hash = tuple.__hash__(self)
        return self

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Orders], tuple[tuple[float, ...]]]:
        return Orders, (tuple(self),)


def locked(array: FloatArray) -> FloatArray:
    """A view of an array that nobody can make writeable again."""
    array.flags.writeable = False
    return array[:]
