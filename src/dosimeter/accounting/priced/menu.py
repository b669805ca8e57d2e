# SPDX-License-Identifier: Apache-2.0
"""A menu: what each mechanism costs in quanta, and how many quanta a budget buys.

One quantum buys a number of steps of the nominal mechanism, the first on the menu. The others
are exchanged at the ratio of their Rényi costs at the budget's best order, a guess; the value
table then says how many quanta keep the worst adaptive adversary within delta, which is the
guarantee. Where a rate turns out too generous, so that the menu would buy noticeably less than
the nominal mechanism alone, it is lowered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.priced.lattice import COARSE_LEVEL, FINE, Measure, composed
from dosimeter.accounting.priced.losses import Direction, single_loss
from dosimeter.accounting.priced.table import Bundle, ValueTable
from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.rdp import Cost

STEP = FINE * 2.0**COARSE_LEVEL
_TARGET_QUANTA = 100
_MOST_QUANTA = 400
_LOSS_OF_CAPACITY = 0.02
"""An item may cost the nominal mechanism at most this share of its quanta."""


@dataclass(frozen=True)
class Item:
    """`steps` runs of `cost` are bought together for `price` quanta."""

    cost: Cost
    steps: int
    price: int


@dataclass(frozen=True)
class Menu:
    """Items and the number of quanta that keep every adaptive use of them within (epsilon, delta).

    Attributes:
        epsilon: The budget, rounded down to the lattice.
        delta: What the worst adaptive adversary may reach.
        quanta: How many quanta may be spent in all.
        items: What they buy; the nominal mechanism first.
    """

    epsilon: float
    delta: float
    quanta: int
    items: tuple[Item, ...]


def make_menu(costs: Sequence[Cost], epsilon: float, delta: float) -> Menu:
    """The menu of `costs`, the nominal mechanism first, for a budget (epsilon, delta)."""
    _check(costs)
    index = math.floor(epsilon / STEP)
    if not 1 <= index <= 10**5:
        raise ValueError(f"epsilon must be between {STEP:g} and {1e5 * STEP:g}, got {epsilon!r}")
    losses = _Losses(delta)
    order = _best_order(costs[0], epsilon, delta)
    rdp = {cost: float(cost.rdp([order])[0]) for cost in costs}
    quantum = _quantum(costs[0], losses, index, delta)
    items = [_exchange(cost, rdp[costs[0]] * quantum, rdp[cost]) for cost in costs]
    quanta = _capacity(items, losses, index, delta)
    alone = _capacity(items[:1], losses, index, delta) if len(items) > 1 else quanta
    if quanta < (1 - _LOSS_OF_CAPACITY) * alone:
        items = [items[0], *(_lowered(items[0], item, alone, losses, index, delta) for item in items[1:])]
        quanta = _capacity(items, losses, index, delta)
    return Menu(index * STEP, delta, quanta, tuple(items))


def _check(costs: Sequence[Cost]) -> None:
    if not costs:
        raise ValueError("menu must hold at least one cost, got none")
    if len(set(costs)) != len(costs):
        raise ValueError(f"menu must not hold a cost twice, got {list(costs)}")


class _Losses:
    """Composed losses of items, computed once for each number of steps."""

    def __init__(self, delta: float) -> None:
        self._tail = 1e-6 * delta / (20 * _MOST_QUANTA)
        self._singles: dict[tuple[Cost, Direction], Measure] = {}
        self._known: dict[tuple[Cost, int, Direction], Measure] = {}

    def bundle(self, cost: Cost, steps: int, direction: Direction) -> Measure:
        key = (cost, steps, direction)
        if key not in self._known:
            if (cost, direction) not in self._singles:
                self._singles[cost, direction] = single_loss(cost, direction)
            self._known[key] = composed(
                self._singles[cost, direction], steps, self._tail / steps
            )
        return self._known[key]


def _best_order(nominal: Cost, epsilon: float, delta: float) -> float:
    """The order at which the nominal mechanism goes furthest under the tight conversion."""
    a = DEFAULT_ORDERS.array
    budget = epsilon + np.log(delta * a) / (a - 1) - np.log1p(-1 / a)
    steps = budget / nominal.rdp(DEFAULT_ORDERS)
    return float(a[int(np.argmax(steps))])


def _hockey_stick(loss: Measure, index: int) -> float:
    """E (1 - e^{epsilon - X})+ at epsilon = index * STEP, rounded up."""
    x = (loss.lo + np.arange(len(loss.p)) - index) * STEP
    gain = np.where(x > 0, -np.expm1(-x), 0.0)
    return (float(gain @ loss.p) + loss.inf) * (1 + loss.rel + 2 * len(loss.p) * 2.0**-53)


def _quantum(nominal: Cost, losses: _Losses, index: int, delta: float) -> int:
    """Steps of the nominal mechanism in a quantum: all that fit, in about a hundred parts."""

    def fits(steps: int) -> bool:
        return all(
            _hockey_stick(losses.bundle(nominal, steps, direction), index) <= delta
            for direction in Direction
        )

    if not fits(1):
        raise ValueError(
            f"epsilon must admit one run of the nominal {nominal}, got {index * STEP:g}"
        )
    # Powers of two are shared between the compositions, so the search is cheap.
    low = 1
    while low < 2**40 and fits(2 * low):
        low *= 2
    for bit in (low // 2, low // 4, low // 8):
        if bit and fits(low + bit):
            low += bit
    return max(1, round(low / _TARGET_QUANTA))


def _exchange(cost: Cost, quantum: float, rdp: float) -> Item:
    """An item at the Rényi rate: steps for one quantum, or one step for several."""
    if rdp <= quantum:
        return Item(cost, max(1, math.floor(quantum / rdp * (1 + 1e-12))), 1)
    return Item(cost, 1, math.ceil(rdp / quantum * (1 - 1e-12)))


def _capacity(items: Sequence[Item], losses: _Losses, index: int, delta: float) -> int:
    """The largest number of quanta for which no adaptive adversary passes delta."""
    tables = [
        ValueTable(
            [Bundle(losses.bundle(item.cost, item.steps, way), item.price) for item in items],
            index * STEP,
        )
        for way in Direction
    ]
    quanta = 0
    while quanta < _MOST_QUANTA and all(
        table.value(quanta + 1, index) <= delta for table in tables
    ):
        quanta += 1
    return quanta


def _lowered(
    nominal: Item, item: Item, alone: int, losses: _Losses, index: int, delta: float
) -> Item:
    """The item at the best rate that leaves the nominal mechanism its quanta."""

    def harmless(candidate: Item) -> bool:
        together = _capacity([nominal, candidate], losses, index, delta)
        return together >= (1 - _LOSS_OF_CAPACITY / 2) * alone

    while not harmless(item):
        if item.steps > 1:
            item = Item(item.cost, max(1, math.floor(item.steps * 0.9)), item.price)
        elif item.price <= alone:
            item = Item(item.cost, 1, math.ceil(item.price * 1.2))
        else:
            break
    return item
