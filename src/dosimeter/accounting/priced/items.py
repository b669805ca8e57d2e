# SPDX-License-Identifier: Apache-2.0
"""What builder, checker and quanta of a menu have in common: the finished values.

A menu and a ladder say what is promised. They are built in `menu` and `ladder`, and confirmed by
another road in `verify`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, SupportsFloat, runtime_checkable

from dosimeter.rdp import Cost, Gaussian
from dosimeter.rdp.loss import LEAST_NOISE, Direction

__all__ = ["Direction", "Finite", "Item", "Ladder", "Menu", "Plan"]

_BLOCKS = range(60, 151)
_MOST_LEVELS = 1000
_FAIR = (0.985, 0.94, 0.85, 0.7)

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
        credit: What strangers, which are not on it, may add to delta. Without any they have no
            price.
    """

    epsilon: float
    delta: float
    quanta: int
    items: tuple[Item, ...]
    credit: float = 0.0

    def item(self, cost: Cost) -> Item | None:
        """The item that `cost` is, or None for a stranger."""
        nominal = self.items[0]
        if cost is nominal.cost:  # most spends are of it, and hashing takes longer
            return nominal
        place = self.place(cost)
        return None if place is None else self.items[place]

    def place(self, cost: Cost) -> int | None:
        """Where on the menu a cost stands, or None for a stranger.

        It may differ by four units in the last place, as another order of computing the same
        number may leave: the prices are rounded up by far more.
        """
        if cost is self.items[0].cost:
            return 0
        place = self._places.get(cost)
        if place is not None:
            return place
        return next((n for known, n in self._places.items() if _alike(known, cost)), None)

    def in_blocks(self) -> tuple[Menu, int] | None:
        """The menu as one of few purchases, and of how many quanta each; None if it has too many.

        Who can buy one thing only may be thought to buy it in blocks, of which the first is not
        whole and the runs are used one by one (Lemma 2 in docs/prices.md).
        """
        item = self.items[0]
        if len(self.items) > 1 or item.price > 1 or self.quanta <= _BLOCKS[-1]:
            return (self, 1) if self.quanta <= _MOST_LEVELS else None
        number = min(_BLOCKS, key=lambda n: -self.quanta % n)
        size = -(-self.quanta // number)
        block = Item(item.cost, size * item.steps, 1)
        return dataclasses.replace(self, quanta=-(-self.quanta // size), items=(block,)), size

    def with_references(self) -> Iterator[Menu]:
        """The menu with a Gaussian besides at fairer and less fair prices, and without one."""
        for share in _FAIR:
            reference = self._gaussian(share)
            if reference.noise_multiplier >= LEAST_NOISE:  # others have no place on a menu
                yield dataclasses.replace(self, items=(*self.items, Item(reference, 1, 1)))
        yield self

    def _gaussian(self, share: float) -> Gaussian:
        """The one of whose runs the budget, times a share, admits one for each quantum."""
        low, high = 0.0, 60.0
        while high - low > 1e-6 * high:
            mean = (low + high) / 2
            low, high = (mean, high) if self._of_gaussian(mean) <= self.delta else (low, mean)
        return Gaussian(math.sqrt(self.quanta / share) / low)

    def _of_gaussian(self, mean: float) -> float:
        """The hockey stick of a Gaussian of this mean, to some digits."""
        far = self.epsilon / mean
        above, below = (math.erfc((far + side * mean / 2) / math.sqrt(2)) / 2 for side in (-1, 1))
        return above - math.exp(self.epsilon) * below

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
