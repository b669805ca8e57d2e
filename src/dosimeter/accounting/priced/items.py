# SPDX-License-Identifier: Apache-2.0
"""What builder, checker and quanta of a menu have in common: the finished values.

A menu and a ladder say what is promised. They are built in `menu` and `ladder`, and confirmed by
another road in `verify`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, SupportsFloat, runtime_checkable

from dosimeter.rdp import Cost
from dosimeter.rdp.loss import Direction

__all__ = ["Direction", "Finite", "Item", "Ladder", "Menu", "Plan"]

Plan = tuple[Cost, int | tuple[int, int]]
"""A cost and the count at which one expects to stop, or the least and the largest such count."""


@runtime_checkable
class Finite(Protocol):
    """A cost that knows both probabilities of each of its finitely many outputs."""

    def worlds(self) -> Iterable[tuple[SupportsFloat, SupportsFloat]]:
        """(p, q) of every output."""
        ...


@dataclass(frozen=True)
class Item:
    """`steps` runs of `cost` are bought together for `price` quanta."""

    cost: Cost
    steps: int
    price: int

    @property
    def per_run(self) -> float:
        """Quanta that one run costs if the whole bundle is used."""
        return self.price / self.steps


@dataclass(frozen=True)
class Menu:
    """Items and the number of quanta that keep every adaptive use of them within (epsilon, delta).

    Attributes:
        epsilon: The budget.
        delta: What the worst adaptive adversary may reach.
        quanta: How many quanta may be spent in all.
        items: What they buy; the nominal mechanism first.
    """

    epsilon: float
    delta: float
    quanta: int
    items: tuple[Item, ...]

    def item(self, cost: Cost) -> Item | None:
        """The item that `cost` is, or None for a stranger."""
        place = self.place(cost)
        return None if place is None else self.items[place]

    def place(self, cost: Cost) -> int | None:
        """Where on the menu a cost stands, or None for a stranger.

        It may differ by four units in the last place, as another order of computing the same
        number may leave: the prices are rounded up by far more.
        """
        place = self._places.get(cost)
        if place is not None:
            return place
        return next((n for known, n in self._places.items() if _alike(known, cost)), None)

    @cached_property
    def _places(self) -> dict[Cost, int]:
        return {item.cost: place for place, item in enumerate(self.items)}


@dataclass(frozen=True)
class Ladder:
    """A menu, and the epsilon that holds after each number of its quanta.

    Attributes:
        menu: The items; its epsilon is the last reading.
        readings: Epsilon after 0, 1, ... quanta, rounded up.
    """

    menu: Menu
    readings: tuple[float, ...]


def _alike(one: Cost, two: Cost) -> bool:
    if type(one) is not type(two) or one.neighbours is not two.neighbours:
        return False
    names = [field.name for field in dataclasses.fields(one) if field.name != "neighbours"]
    pairs = [(getattr(one, name), getattr(two, name)) for name in names]
    # A class of the user's own may have no fields, and then nothing says that two are alike.
    return bool(pairs) and all(
        isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 4 * math.ulp(a)
        for a, b in pairs
    )
