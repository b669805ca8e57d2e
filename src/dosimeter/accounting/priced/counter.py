# SPDX-License-Identifier: Apache-2.0
"""Counter: the running state of a menu, two kinds of whole numbers.

Quanta are spent on bundles; the runs of a bundle are prepaid and may be used one by one, in any
order, interleaved with anything, or never (Lemma 2 in docs/prices.md). Nothing here is a float,
so a spend is exact and costs the same after a million others.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.rdp import Cost


class Purchase(NamedTuple):
    """What must be bought so that some runs can be taken."""

    item: Item
    bundles: int
    """How many bundles to buy; 0 if the prepaid runs suffice."""

    left: int
    """Prepaid runs of the item afterwards."""

    @property
    def quanta(self) -> int:
        """What the bundles cost."""
        return self.bundles * self.item.price

    @property
    def runs(self) -> int:
        """How many runs the bundles hold."""
        return self.bundles * self.item.steps


class Counter:
    """Quanta that are left and runs that are prepaid, for the items of a menu.

    A counter that is closed sells nothing more, but runs bought before may still be used.
    """

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self.quanta = menu.quanta
        self.open = True
        self.prepaid: dict[Cost, int] = {}
        self._items = {item.cost: item for item in menu.items}

    def declared(self, cost: Cost) -> Cost:
        """The declared cost that this one is but for its last digits, else the cost itself.

        Four units in the last place, as another order of computing the same number may leave:
        the prices are rounded up by far more.
        """
        if cost in self._items:
            return cost
        return next((known for known in self._items if _alike(known, cost)), cost)

    def item(self, cost: Cost) -> Item | None:
        """The item that `cost` is, or None for a stranger."""
        return self._items.get(self.declared(cost))

    def quote(self, cost: Cost, count: int) -> Purchase | None:
        """The purchase that `count` runs need; None if they cannot be had."""
        item = self._items.get(cost)
        if item is None:
            return None
        left = self.prepaid.get(cost, 0) - count
        if left >= 0:
            return Purchase(item, 0, left)
        bundles = -(left // item.steps)
        if not (self.open and bundles * item.price <= self.quanta):
            return None
        return Purchase(item, bundles, left + bundles * item.steps)

    def take(self, purchase: Purchase) -> None:
        """Buys what was quoted and uses the runs."""
        self.quanta -= purchase.quanta
        self.prepaid[purchase.item.cost] = purchase.left

    def uses(self, cost: Cost, count: int) -> bool:
        """Whether prepaid runs suffice, and were used: the way most spends go."""
        left = self.prepaid.get(cost, 0) - count
        if left < 0:
            return False
        self.prepaid[cost] = left
        return True

    def use(self, cost: Cost, count: int) -> int:
        """Uses up to `count` prepaid runs, buying nothing; what is still wanted."""
        used = min(count, self.prepaid.get(cost, 0))
        if used:
            self.prepaid[cost] -= used
        return count - used

    def most(self, cost: Cost) -> int:
        """The largest count of `cost` that can be quoted."""
        item = self._items.get(cost)
        if item is None:
            return 0
        bundles = self.quanta // item.price if self.open else 0
        return self.prepaid.get(cost, 0) + bundles * item.steps


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
