# SPDX-License-Identifier: Apache-2.0
"""A menu: what each mechanism costs in quanta, and how many quanta a budget buys.

The budget is divided into some three hundred quanta. Items are exchanged at the ratio of how
many runs of each the budget admits alone; the value table then says how many quanta keep the
worst adaptive adversary within delta, which is the guarantee. Where a rate turns out too
generous, so that the menu would buy noticeably less than the nominal mechanism alone, it is
lowered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Direction, Item, Menu
from dosimeter.accounting.priced.lattice import FINE, Measure, Runs, step_of
from dosimeter.accounting.priced.losses import LARGEST_LOSS, single_loss, symmetric
from dosimeter.accounting.priced.rates import items_at, lowered
from dosimeter.accounting.priced.table import Bundle, ValueTable, grid
from dosimeter.rdp import Cost
from dosimeter.rdp.gaussian import widest_gaussian
from dosimeter.rounding import at_most, exact

_MOST_ITEMS = 40
_QUANTA = 300
_MOST_QUANTA = 1000
_PRODUCTS = 80
"""More products than any composition needs; each may prune its share of the tails."""

_MANY_RUNS = 1e5
_PRUNED = 1e-5
_LIFTED = 1e-4
_REACH = 3.0
"""Losses beyond this many epsilon are as bad as any: every value is linear in e^-loss there."""

_PARTS = (10, 14)
"""Digits, to the base 2, of how many runs fit: for exchange rates, and for what is sold."""

_SHORT = 4
_TURNS = 40
_RAISED = -3
_AROUND = 2
_DISAGREEMENT = 0.05
_LOSS_OF_CAPACITY = 0.02
_LOSS_OF_A_PAIR = 0.01
"""Shares of its runs that the whole menu, or one other item, may cost the nominal one."""

_MOST_LOSS = 0.1
"""The share that an item may cost it which would lose more itself."""


class Losses:
    """Losses of bundles in one budget's lattice, computed once for each number of steps."""

    def __init__(self, epsilon: float, delta: float, level: int) -> None:
        self.level = level
        self._reach = min(_REACH * epsilon, LARGEST_LOSS)
        self._delta = delta
        # Twice the order-2 cost that concentrated DP would admit.
        far = -math.log(delta)
        self._budget = 4 * (math.sqrt(far + epsilon) - math.sqrt(far)) ** 2
        self._runs: dict[tuple[Cost, Direction], Runs] = {}
        self._known: dict[tuple[Cost, int, Direction], Measure] = {}

    def of(self, cost: Cost, steps: int, direction: Direction) -> Measure:
        """The loss of `steps` runs of `cost`."""
        if symmetric(cost):
            direction = Direction.REMOVE
        key = (cost, steps, direction)
        if key not in self._known:
            runs = self._runs_in_budget(cost)
            share = _PRODUCTS * max(runs, _MANY_RUNS)
            if (cost, direction) not in self._runs:
                self._runs[cost, direction] = Runs(
                    single_loss(cost, direction, self.level, self._reach),
                    self.level,
                    top=_PRUNED * self._delta / share,
                    bottom=_LIFTED / share,
                )
            loss = self._runs[cost, direction].of(steps)
            bundles = max(1.0, runs / steps)
            self._known[key] = loss.pruned(_PRUNED * self._delta / bundles, _LIFTED / bundles)
        return self._known[key]

    def _runs_in_budget(self, cost: Cost) -> float:
        """About how many runs the budget is worth; it decides only how finely tails are kept."""
        one = max(float(cost.rdp([2.0])[0]), 1e-300)
        return min(max(1.0, self._budget / one), 1e12)

    def table(
        self, items: Sequence[Item], way: Direction, largest_epsilon: float, *, coarser: int = 0
    ) -> ValueTable:
        """The value table of some items in one direction."""
        level = self.level + coarser
        bundles = [
            Bundle(self.of(item.cost, item.steps, way).at_level(level), item.price)
            for item in items
        ]
        return ValueTable(bundles, *grid(largest_epsilon, step_of(level)))


def lattice_level(epsilon: float) -> int:
    """The lattice of a budget: one to two thousand points from 0 to epsilon."""
    return min(8, max(-8, math.floor(math.log2(epsilon / (1100 * FINE)))))


def budget_level(epsilon: float, delta: float) -> int:
    """The lattice of a budget; coarser where losses spread far beyond epsilon.

    They do where delta is large beside it, and sums would have hundreds of thousands of points.
    """
    return lattice_level(max(epsilon, 2 * math.sqrt(widest_gaussian(epsilon, delta))))


def make_menu(costs: Sequence[Cost], epsilon: float, delta: float, *, credit: float = 0.0) -> Menu:
    """The menu of `costs`, the nominal mechanism first, for a budget (epsilon, delta).

    Args:
        costs: What can be bought.
        epsilon: The budget.
        delta: What an adversary may reach who buys from the menu.
        credit: What strangers may add to delta.

    Raises:
        ValueError: The menu is empty, holds a cost twice or one that cannot be priced, or the
            budget does not admit one run of an item.
    """
    checked(costs)
    if not 1e-3 <= epsilon <= 500:
        raise ValueError(f"epsilon must lie between 0.001 and 500 with a menu, got {epsilon!r}")
    # A short menu can afford a finer lattice.
    losses = Losses(epsilon, delta, budget_level(epsilon, delta) - (len(costs) <= _SHORT))
    for cost in costs:
        _require_one_run(cost, losses, epsilon, delta)
    runs = [
        most_runs(cost, losses, epsilon, delta, parts=_PARTS[len(costs) == 1]) for cost in costs
    ]
    if len(costs) == 1:
        # Who can buy one thing only does best to buy it all (Lemma 1), so runs need no bundles.
        built = Menu(epsilon, delta, runs[0], (Item(costs[0], 1, 1),))
    else:
        grain = step_of(losses.level) / epsilon
        items = items_at(costs, runs, quanta=_QUANTA, grain=grain)
        items = harmless(items, losses, epsilon, delta)
        built = Menu(epsilon, delta, capacity(items, losses, epsilon, delta), tuple(items))
    quanta = _confirmed(built)
    for item in built.items:
        if item.price > quanta:
            raise ValueError(
                f"menu must hold costs within the budget, got {item.cost} at {item.price} of "
                f"{quanta} quanta; leave it out and spend it off the menu"
            )
    return replace(built, quanta=quanta, credit=credit)


def _confirmed(menu: Menu) -> int:
    """The quanta that the checker confirms as well; its grid is coarser, so a few may be lost.

    Raises:
        ValueError: Builder and checker do not agree about the menu.
    """
    verify.require_delta(menu)
    quanta = verify.most_quanta(menu)
    if quanta < (1 - _DISAGREEMENT) * menu.quanta - 1:
        raise ValueError(
            f"menu must be confirmed by a second computation, got {menu.quanta} quanta of which "
            f"it confirms {quanta}. Leave the smallest and the largest cost out, or use a gate "
            "without a menu."
        )
    return quanta


def checked(costs: Sequence[Cost]) -> Sequence[Cost]:
    if not costs:
        raise ValueError("menu must hold at least one cost, got none")
    for cost in costs:
        if not isinstance(cost, Cost):
            raise TypeError(f"menu must hold costs such as dosimeter.Gaussian, got {cost!r}")
        if cost.delta != 0:
            raise ValueError(
                f"menu must hold costs that never fail, got {cost} with delta {cost.delta!r}. "
                "Spend it off the menu, from approx_delta."
            )
    if len(set(costs)) != len(costs):
        raise ValueError(f"menu must not hold a cost twice, got {list(costs)}")
    if len({cost.neighbours for cost in costs}) > 1:
        raise ValueError(f"menu must hold costs of one neighbouring relation, got {list(costs)}")
    if len(costs) > _MOST_ITEMS:
        raise ValueError(
            f"menu must hold at most {_MOST_ITEMS} costs, got {len(costs)}: more take minutes to "
            "price and leave more bundles unfinished. Declare fewer, further apart."
        )
    return costs


def hockey_stick(loss: Measure, epsilon: float) -> float:
    """E (1 - e^{epsilon - X})+, to about twelve digits."""
    x = (loss.lo + np.arange(len(loss.p))) * loss.step - epsilon
    gain = np.where(x > 0, -np.expm1(-np.maximum(x, 0.0)), 0.0)
    return (float(gain @ loss.p) + loss.inf) * (1 + loss.rel)


def least_epsilon(loss: Measure, delta: float) -> float:
    """The first lattice point at which the hockey stick is within delta; infinity if none is."""
    low, high = -1, max(0, loss.lo + len(loss.p))
    if not hockey_stick(loss, high * loss.step) <= delta:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        within = hockey_stick(loss, middle * loss.step) <= delta
        low, high = (low, middle) if within else (middle, high)
    return high * loss.step


def fits(cost: Cost, steps: int, losses: Losses, epsilon: float, delta: float) -> bool:
    """Whether so many runs, and nothing else, are within the budget; in doubt not."""
    return all(
        hockey_stick(losses.of(cost, steps, way), epsilon) * (1 + 1e-9) <= delta
        for way in Direction
    )


def _require_one_run(cost: Cost, losses: Losses, epsilon: float, delta: float) -> None:
    if fits(cost, 1, losses, epsilon, delta):
        return
    enough = max(
        least_epsilon(single_loss(cost, way, lattice_level(1.0)), delta) for way in Direction
    )
    raise ValueError(
        f"epsilon must admit one run of each item of the menu, got {exact(epsilon)}; "
        f"{cost} needs {at_most(enough)} at this delta"
    )


def most_runs(
    cost: Cost, losses: Losses, epsilon: float, delta: float, *, parts: int = _PARTS[0]
) -> int:
    """How many runs of a mechanism fit if nothing else is spent, given that one does.

    Args:
        cost: The mechanism.
        losses: Its losses.
        epsilon: The budget.
        delta: The budget.
        parts: How many digits to the base 2 to find; the others are rounded down.
    """
    low = 1
    while low < 2**40 and fits(cost, 2 * low, losses, epsilon, delta):
        low *= 2
    for bit in [low >> place for place in range(1, parts + 1)]:
        if bit and fits(cost, low + bit, losses, epsilon, delta):
            low += bit
    return low


def capacity(items: Sequence[Item], losses: Losses, epsilon: float, delta: float) -> int:
    """The largest number of quanta for which no adaptive adversary passes delta."""
    quanta = _sold(losses.table(items, Direction.REMOVE, epsilon), epsilon, delta, _MOST_QUANTA)
    if all(symmetric(item.cost) for item in items):
        return quanta
    # The other direction is usually the cheaper one, so that a coarser table, which only
    # overstates V, is enough to say so.
    rough = losses.table(items, Direction.ADD, epsilon, coarser=1)
    if rough.value(quanta, epsilon) <= delta:
        return quanta
    return _sold(losses.table(items, Direction.ADD, epsilon), epsilon, delta, quanta)


def _sold(table: ValueTable, epsilon: float, delta: float, most: int) -> int:
    """The largest number of quanta up to `most` with V within delta; V grows with them."""
    quanta = 0
    while quanta < most and table.value(quanta + 1, epsilon) <= delta:
        quanta += 1
    return quanta


def harmless(items: list[Item], losses: Losses, epsilon: float, delta: float) -> list[Item]:
    """The items, at other rates where at these they would cost the nominal one much of its quanta.

    Rates are a guess, so a coarse table in one direction is enough to judge them by.
    """

    def worth(*some: Item) -> int:
        table = losses.table(some, Direction.REMOVE, epsilon, coarser=2)
        return _sold(table, epsilon, delta, _MOST_QUANTA)

    if len(items) == 1:
        return items
    nominal, *others = items
    alone = _refused(nominal, worth(nominal))
    if _refused(nominal, worth(*items)) >= (1 - _LOSS_OF_CAPACITY) * alone:
        return items
    return [nominal, *(_balanced(nominal, item, alone, worth) for item in others)]


def _balanced(nominal: Item, item: Item, alone: int, worth: Callable[..., int]) -> Item:
    """The item at the rate at which the worse off of it and the nominal one keeps most runs.

    The nominal one keeps all but a few of them, whatever the other would gain.
    """
    most = _refused(item, worth(item))

    @cache
    def offer(turn: int) -> tuple[Item, float, float]:
        made = lowered(item, 0.94**turn, (alone - 1) * nominal.per_run) if turn else item
        quanta = worth(nominal, made)
        return made, _refused(nominal, quanta) / alone, _refused(made, quanta) / most

    def enough(nominal_kept: float, kept: float) -> bool:
        return nominal_kept >= min(1 - _LOSS_OF_A_PAIR, max(1 - _MOST_LOSS, kept))

    low, high = _RAISED - 1, _TURNS
    while high - low > 1:
        turn = (low + high) // 2
        low, high = (low, turn) if enough(*offer(turn)[1:]) else (turn, high)
    # Runs are whole, so that a rate beside it may keep more of both.
    near = [offer(turn) for turn in range(max(_RAISED, high - _AROUND), high + _AROUND + 1)]
    return max(near, key=lambda made: (made[1] >= 1 - _MOST_LOSS, min(made[1:])))[0]


def _refused(item: Item, quanta: int) -> int:
    """The least number of runs of an item that so many quanta do not buy."""
    return quanta // item.price * item.steps + 1
