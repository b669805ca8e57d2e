# SPDX-License-Identifier: Apache-2.0
"""Quanta: what a menu may still sell, as a potential; one whole number.

Quanta buy bundles of runs at the menu's prices (Lemma 2 in docs/prices.md). Nothing here is a
float, so a spend is exact and costs the same after a million others. What is not on the menu is
priced when it is first asked for, and keeps its price once it was sold. A run that has no price, or
that the quanta left do not buy, ends the menu.
"""

from __future__ import annotations

from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.rdp import Cost
from dosimeter.rdp.cost import UP

MOST_STRANGERS = 6
"""Each leaves part of a bundle over, and a run may ask for another cost at every step."""


class Quanta:
    """The quanta that are left of a menu; a frozen value.

    Attributes:
        menu: The items and their prices.
        left: How many quanta it may still sell.
        readings: Epsilon after 0, 1, ... quanta, if they were made for an odometer.
        strangers: What was sold though it is not on the menu, in the order of first purchase.
    """

    __slots__ = ("left", "menu", "readings", "strangers")

    def __init__(
        self,
        menu: Menu,
        left: int,
        readings: tuple[float, ...] | None = None,
        strangers: tuple[Item, ...] = (),
    ) -> None:
        self.menu = menu
        self.left = left
        self.readings = readings
        self.strangers = strangers

    def item(self, cost: Cost) -> Item | None:
        """The bundle in which a cost is sold; None if it has no price."""
        return self.menu.item(cost) or self._stranger(cost)

    def _stranger(self, cost: Cost) -> Item | None:
        for known in self.strangers:
            if known.cost == cost:
                return known
        if not self.menu.credit or len(self.strangers) >= MOST_STRANGERS:
            return None
        from dosimeter.accounting.priced.strangers import priced

        return priced(self.menu, cost)

    def take(self, cost: Cost, count: int) -> tuple[Quanta, int] | None:
        """The quanta after whole bundles of at least `count` runs, and how many runs they hold."""
        listed, strangers = self.menu.item(cost), self.strangers
        item = listed or self._stranger(cost)
        if item is None:
            return None
        bundles = -(-count // item.steps)
        left = self.left - bundles * item.price
        if left < 0:
            return None
        if listed is None and item not in strangers:
            strangers = (*strangers, item)
        return Quanta(self.menu, left, self.readings, strangers), bundles * item.steps

    def charged(self, cost: Cost, runs: int) -> Quanta | None:
        """None, but for runs that it could have sold."""
        sold = self.take(cost, runs)
        return None if sold is None else sold[0]

    def released(self, cost: Cost, runs: int) -> None:
        """Nothing: the prices hold for quanta that only fall."""
        return

    def most(self, cost: Cost) -> int:
        """How many runs the quanta buy."""
        item = self.item(cost)
        return 0 if item is None else self.left // item.price * item.steps

    @property
    def reading(self) -> float:
        """The reading at the quanta spent, or the epsilon that all of them are within."""
        if self.readings is None:
            return self.menu.epsilon
        return self.readings[self.menu.quanta - self.left]

    def remaining(self, limit: float) -> float:
        """The share of the limit that the unsold quanta are."""
        return limit * (self.left / self.menu.quanta) / UP

    def shortage(self, cost: Cost, count: int) -> str:
        """What the menu says to a cost that it cannot sell."""
        item = self.item(cost)
        if item is None:
            return "off the menu"
        return f"{item.steps} of it cost {item.price} of the {self.left} quanta left"
