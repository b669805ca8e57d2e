# SPDX-License-Identifier: Apache-2.0
"""A menu: what each mechanism costs in quanta, and how many quanta a budget buys.

The budget is divided into some two hundred quanta. Items are exchanged at the ratio of their
Rényi costs; the value table then says how many quanta keep the worst adaptive adversary within
delta, which is the guarantee. Where a rate turns out too generous, so that the menu would buy
noticeably less than the nominal mechanism alone, it is lowered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.priced.lattice import FINE, UNIT, Measure, Runs, step_of
from dosimeter.accounting.priced.losses import Direction, single_loss, symmetric
from dosimeter.accounting.priced.rates import Item, Scale, exchange
from dosimeter.accounting.priced.table import Bundle, ValueTable, grid
from dosimeter.rdp import Cost

_QUANTA = 256
_MOST_QUANTA = 2 * _QUANTA
_PRODUCTS = 80
"""More products than any composition needs; each may prune its share of the tails."""

_PRUNED = 1e-5
_LIFTED = 1e-4
_LOSS_OF_CAPACITY = 0.01
"""A pair of nominal and item may cost the nominal mechanism this share of its quanta."""


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


class Losses:
    """Losses of bundles in one budget's lattice, computed once for each number of steps."""

    def __init__(self, scale: Scale, delta: float, level: int) -> None:
        self.level = level
        self._scale, self._delta = scale, delta
        self._runs: dict[tuple[Cost, Direction], Runs] = {}
        self._known: dict[tuple[Cost, int, Direction], Measure] = {}

    def of(self, cost: Cost, steps: int, direction: Direction) -> Measure:
        """The loss of `steps` runs of `cost`."""
        if symmetric(cost):
            direction = Direction.REMOVE
        key = (cost, steps, direction)
        if key not in self._known:
            share = _PRODUCTS * self._scale.runs(cost)
            if (cost, direction) not in self._runs:
                self._runs[cost, direction] = Runs(
                    single_loss(cost, direction, self.level),
                    self.level,
                    top=_PRUNED * self._delta / share,
                    bottom=_LIFTED / share,
                )
            loss = self._runs[cost, direction].of(steps)
            bundles = max(1.0, self._scale.runs(cost) / steps)
            self._known[key] = loss.pruned(_PRUNED * self._delta / bundles, _LIFTED / bundles)
        return self._known[key]

    def tables(
        self, items: Sequence[Item], largest_epsilon: float, *, coarser: int = 0
    ) -> list[ValueTable]:
        """The value table of each direction; one only if the directions do not differ."""
        alike = all(symmetric(item.cost) for item in items)
        level = self.level + coarser
        return [
            ValueTable(
                [
                    Bundle(self.of(item.cost, item.steps, way).at_level(level), item.price)
                    for item in items
                ],
                *grid(largest_epsilon, step_of(level)),
            )
            for way in ([Direction.REMOVE] if alike else Direction)
        ]


def lattice_level(epsilon: float) -> int:
    """The lattice of a budget: some two thousand points from 0 to epsilon."""
    return min(8, max(-8, math.floor(math.log2(epsilon / (1500 * FINE)))))


def lattice_index(epsilon: float, level: int) -> int:
    """The last lattice point that is not above epsilon."""
    index = math.floor(epsilon / step_of(level))
    return index if index * step_of(level) <= epsilon else index - 1


def make_menu(costs: Sequence[Cost], epsilon: float, delta: float) -> Menu:
    """The menu of `costs`, the nominal mechanism first, for a budget (epsilon, delta).

    Raises:
        ValueError: The menu is empty, holds a cost twice or one that cannot be priced, or the
            budget does not admit one run of an item.
    """
    nominal = _checked(costs)[0]
    if not 1e-3 <= epsilon <= 500:
        raise ValueError(f"epsilon must lie between 0.001 and 500 with a menu, got {epsilon!r}")
    level = lattice_level(epsilon)
    index = lattice_index(epsilon, level)
    scale = Scale.of(nominal, epsilon, delta)
    losses = Losses(scale, delta, level)
    for cost in costs:
        _require_one_run(cost, losses, index, delta)
    runs = _most_runs(nominal, losses, index, delta)
    quantum = scale.rdp(nominal) * _steps_of_a_quantum(runs)
    items = [exchange(cost, quantum, scale.rdp(cost)) for cost in costs]
    alone = capacity(items[:1], losses, index, delta, coarser=2)
    if len(items) > 1:
        items[1:] = [_lowered(items[0], item, alone, losses, index, delta) for item in items[1:]]
    quanta = capacity(items, losses, index, delta)
    for item in items:
        if item.price > quanta:
            raise ValueError(
                f"menu must hold costs within the budget, got {item.cost} at {item.price} of "
                f"{quanta} quanta; leave it out and spend it off the menu"
            )
    return Menu(index * step_of(level), delta, quanta, tuple(items))


def _checked(costs: Sequence[Cost]) -> Sequence[Cost]:
    if not costs:
        raise ValueError("menu must hold at least one cost, got none")
    for cost in costs:
        if not isinstance(cost, Cost):
            raise TypeError(f"menu must hold costs such as dosimeter.Gaussian, got {cost!r}")
    if len(set(costs)) != len(costs):
        raise ValueError(f"menu must not hold a cost twice, got {list(costs)}")
    return costs


def hockey_stick(loss: Measure, index: int) -> float:
    """E (1 - e^{epsilon - X})+ at epsilon = index * step, rounded up."""
    x = (loss.lo + np.arange(len(loss.p)) - index) * loss.step
    gain = np.where(x > 0, -np.expm1(-np.maximum(x, 0.0)), 0.0)
    total = float(gain @ loss.p) + loss.inf
    return total * (1 + loss.rel) * (1 + 2 * (len(loss.p) + 12) * UNIT)


def least_epsilon(loss: Measure, delta: float) -> float:
    """The first lattice point at which the hockey stick is within delta; infinity if none is."""
    low, high = -1, max(0, loss.lo + len(loss.p))
    if not hockey_stick(loss, high) <= delta:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        within = hockey_stick(loss, middle) <= delta
        low, high = (low, middle) if within else (middle, high)
    return high * loss.step


def _fits(cost: Cost, steps: int, losses: Losses, index: int, delta: float) -> bool:
    return all(hockey_stick(losses.of(cost, steps, way), index) <= delta for way in Direction)


def _require_one_run(cost: Cost, losses: Losses, index: int, delta: float) -> None:
    if _fits(cost, 1, losses, index, delta):
        return
    enough = max(least_epsilon(losses.of(cost, 1, way), delta) for way in Direction)
    raise ValueError(
        f"epsilon must admit one run of each item of the menu, got "
        f"{index * step_of(losses.level):g}; {cost} needs {enough:.4g} at this delta"
    )


def _most_runs(nominal: Cost, losses: Losses, index: int, delta: float) -> int:
    """About how many runs of the nominal mechanism fit, to one part in sixteen."""
    low = 1
    while low < 2**40 and _fits(nominal, 2 * low, losses, index, delta):
        low *= 2
    for bit in (low // 2, low // 4, low // 8, low // 16):
        if bit and _fits(nominal, low + bit, losses, index, delta):
            low += bit
    return low


def _steps_of_a_quantum(runs: int) -> float:
    """Whole steps if there are many; a fraction of one, its inverse whole, if there are few."""
    return float(runs // _QUANTA) if runs >= _QUANTA else 1 / math.ceil(_QUANTA / runs)


def capacity(
    items: Sequence[Item], losses: Losses, index: int, delta: float, *, coarser: int = 0
) -> int:
    """The largest number of quanta for which no adaptive adversary passes delta."""
    epsilon = index * step_of(losses.level)
    tables = losses.tables(items, epsilon, coarser=coarser)
    # Rates are a guess, so the coarse table that serves them may look one way only.
    tables, index = (tables[:1], index >> coarser) if coarser else (tables, index)
    quanta = 0
    while quanta < _MOST_QUANTA and all(t.value(quanta + 1, index) <= delta for t in tables):
        quanta += 1
    return quanta


def _lowered(
    nominal: Item, item: Item, alone: int, losses: Losses, index: int, delta: float
) -> Item:
    """The item at the best rate that leaves the nominal mechanism nearly all its quanta."""
    candidate, factor = item, 1.0
    for _ in range(40):
        together = capacity([nominal, candidate], losses, index, delta, coarser=2)
        if together >= (1 - _LOSS_OF_CAPACITY) * alone:
            break
        factor *= 0.93
        candidate = exchange(item.cost, factor / item.per_run, 1.0)
    return candidate
