# SPDX-License-Identifier: Apache-2.0
"""What a mechanism that was not declared costs in quanta of a menu.

To the value of what the menu sells a little credit is added, which falls with the quanta left:

    F(s, y) = (1 + a s/N) V(s, y) + b s/N,   (1 + a) V(N, -epsilon) + b <= delta + credit.

A bundle with loss X that takes F down by its price, E F(s - price, y + X) <= F(s, y) at every y
and every s, may be sold at that price like an item (Theorem 9 in docs/prices.md). V may be the
value of an adversary who can buy more than the menu: a Gaussian at a fair price costs her nothing
and is a measure for many strangers, in both directions. What is found here is confirmed by `verify`
or not sold. A ledger's journal is replayed with the prices of today: whatever changes them must
leave those of the menus that exist as they are.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Direction, Item, Menu
from dosimeter.accounting.priced.lattice import Measure
from dosimeter.accounting.priced.losses import single_loss, symmetric
from dosimeter.accounting.priced.menu import Losses, budget_level, fits, most_runs
from dosimeter.accounting.priced.table import ValueTable
from dosimeter.rdp import Cost

_BUNDLES = 50
"""About how many bundles of a stranger the budget buys: the larger, the nearer to a Gaussian."""

_LOWERED = 0.97
_TURNS = 64
_LAST_TURNS = 4
_STRIDE = 12
"""Rates are sought on a few levels of the table; all of them decide."""

_ROUNDED = 1 + 1e-7
"""Levels are rounded up, each by less than 1e-11, and there are at most a thousand."""


@lru_cache(maxsize=256)
def priced(menu: Menu, cost: Cost) -> Item | None:
    """The bundle in which a menu sells a cost that is not on it; None if it has no price."""
    if not menu.credit > 0 or cost.delta != 0:
        return None
    try:
        single_loss(cost, Direction.REMOVE, budget_level(menu.epsilon, menu.delta))
    except ValueError:
        return None  # its loss is not known, or not on the scale of a menu
    shop = _shop(menu)
    return None if shop is None else shop.price(cost)


@lru_cache(maxsize=2)
def _shop(menu: Menu) -> _Shop | None:
    blocks = menu.in_blocks()
    if blocks is None:
        return None
    few, size = blocks
    level = budget_level(menu.epsilon, menu.delta)
    # A finer lattice takes four times as long, and V is what it was when the menu was made.
    for finer in (0, 1):
        for richer in few.with_references():
            shop = _Shop(menu, richer, size, level - finer)
            if shop.spare >= menu.credit / 10:
                return shop
    return None


class _Shop:
    """The tables of a menu, and what of its credit is left."""

    def __init__(self, menu: Menu, blocks: Menu, size: int, level: int) -> None:
        self._menu, self._quanta, self._size = menu, blocks.quanta, size
        epsilon, items = menu.epsilon, blocks.items
        self._losses = Losses(epsilon, menu.delta, level)
        first = self._losses.table(items, Direction.REMOVE, epsilon)
        other = first
        if not all(symmetric(item.cost) for item in items):
            other = self._losses.table(items, Direction.ADD, epsilon)
        self._tables = {Direction.REMOVE: first, Direction.ADD: other}
        value = max(table.value(blocks.quanta, epsilon) for table in (first, other))
        self.spare = menu.delta + menu.credit - value
        # Half rises with V, which pays at large losses, and half pays at small ones.
        # V may be nothing at all: pure costs that together stay below epsilon.
        self._more = 0.5 * self.spare / max(value, menu.credit) / blocks.quanta
        self._each = 0.5 * self.spare / blocks.quanta

    def price(self, cost: Cost) -> Item | None:
        """The bundle at the best rate that is found and confirmed."""
        menu, quanta = self._menu, self._quanta
        if not fits(cost, 1, self._losses, menu.epsilon, menu.delta):
            return None
        runs = most_runs(cost, self._losses, menu.epsilon, menu.delta)

        def offer(turn: int) -> Item:
            rate = _LOWERED**turn * runs / quanta
            price = max(1, quanta // _BUNDLES, math.ceil(1 / rate))
            return Item(cost, max(1, math.floor(price * rate)), price)

        low, high = -1, _TURNS
        while high - low > 1:
            turn = (low + high) // 2
            low, high = (low, turn) if self._holds(offer(turn), _STRIDE) else (turn, high)
        for turn in range(high, min(high + _LAST_TURNS, _TURNS)):
            made = offer(turn)
            sold = Item(cost, made.steps, made.price * self._size)
            if self._holds(made, 1) and verify.sells(menu, sold):
                return sold
        return None

    def _holds(self, item: Item, stride: int) -> bool:
        """Whether a bundle takes F down by its price, at the states that are looked at."""
        last = self._quanta - item.price
        return last >= 0 and all(
            self._falls(table, self._losses.of(item.cost, item.steps, way), item.price, left)
            for left in range(0, last + 1, stride)
            for way, table in self._tables.items()
        )

    def _falls(self, table: ValueTable, loss: Measure, price: int, left: int) -> bool:
        """Whether E F(left, y + X) <= F(left + price, y) at every y.

        Both sides are linear in u = e^-y on every cell, and flat below the grid; above it the left
        one is convex and the right one a chord, so that lattice points and infinity are enough.
        """
        before = left + price
        level, ceiling = table.after(loss, left)
        after = (1 + self._more * left) * _ROUNDED
        # The table is at least V, and at most what rounding up has made of it.
        within = (1 + self._more * before) / _ROUNDED
        credit = self._each * price / _ROUNDED
        points = level * after <= table.level(before) * within + credit
        return bool(points.all()) and ceiling * after <= table.ceiling(before) * within + credit
