# SPDX-License-Identifier: Apache-2.0
"""A Rényi curve of the user's own, for whatever is not among the mechanisms here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.neighbours import Neighbours
from dosimeter.rdp.cost import Cost, interpolate
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray, Orders


@dataclass(frozen=True, repr=False)
class Curve(Cost):
    """A Rényi curve of the user's own: `rdp[i]` bounds both directions at `orders[i]`.

    At other orders the convexity of (a - 1) D_a gives the bound, below the first order
    the first value, beyond the last order infinity. The values are raised where they
    fall, because a Rényi curve does not.
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]

    kind: ClassVar[str] = "curve"
    option: ClassVar[None] = None

    def __init__(
        self,
        orders: Sequence[float],
        rdp: Sequence[float],
        *,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
    ) -> None:
        grid = Orders(orders)
        if isinstance(rdp, str | bytes) or not isinstance(rdp, Iterable):
            raise TypeError(f"rdp must be a sequence of numbers, got {rdp!r}")
        values = tuple(arguments.real("rdp", value) for value in rdp)
        if len(values) != len(grid):
            raise ValueError(
                f"rdp must hold one value per order ({len(grid)}), got {len(values)} values"
            )
        if not all(value >= 0 for value in values):
            raise ValueError(f"rdp must be >= 0 at every order, got {min(values)!r}")
        object.__setattr__(self, "orders", grid)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "neighbours", neighbours)
        self.__post_init__()

    def arguments(self) -> dict[str, Any]:
        """The orders and the value at each."""
        return {"orders": tuple(self.orders), "rdp": self.values}

    def _curve(self, orders: Orders) -> FloatArray:
        known = np.maximum.accumulate(np.array(self.values))
        return interpolate(Orders(self.orders).array, known, orders.array)

    def loss(self, direction: Direction) -> None:
        """None: many losses have this curve."""

    def dp_event(self) -> None:
        """None: dp-accounting has no such event."""
