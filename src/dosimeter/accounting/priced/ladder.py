# SPDX-License-Identifier: Apache-2.0
"""A ladder of menus: what an odometer may read after each number of quanta.

Fix rungs (N_j, e_j) whose values V(N_j, -e_j) sum to at most delta. After n quanta

    T(L) = sum over rungs with N_j >= n of V(N_j - n, L - e_j)

is a supermartingale in the privacy loss L, so sup over T < 1 of L + log(1 - T(L)) holds at
whatever moment one stops (Theorem 6 in docs/prices.md). It depends on n alone: the ladder
keeps one reading for each n and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.priced.losses import Direction, symmetric
from dosimeter.accounting.priced.menu import (
    Losses,
    Menu,
    checked,
    harmless,
    lattice_level,
    least_epsilon,
    most_runs,
)
from dosimeter.accounting.priced.rates import Item, Scale, items_at
from dosimeter.accounting.priced.table import ValueTable
from dosimeter.rdp import Cost
from dosimeter.rdp.orders import FloatArray

RUNGS = 24
"""Fewer are further apart, more share delta more thinly; 21 to 34 differ by a percent or two."""

_DENSER_ABOVE = 1.8
"""Rungs are even in this power of log N: closer together where epsilon is large."""

TOP_EPSILON = 14.0
"""How far an odometer without a plan can read by its ladder."""

_QUANTA = 600
_QUANTA_ALONE = 1000
_PLAN_SHARE = 0.5
_BEYOND_PLAN = 3.1


@dataclass(frozen=True)
class Ladder:
    """A menu, and the epsilon that holds after each number of its quanta.

    Attributes:
        menu: The items; its epsilon is the last reading.
        readings: Epsilon after 0, 1, ... quanta, rounded up.
    """

    menu: Menu
    readings: tuple[float, ...]


def make_ladder(costs: Sequence[Cost], delta: float, plan: tuple[Cost, int] | None) -> Ladder:
    """The ladder of a menu: 24 rungs, half of delta on the plan if there is one."""
    nominal = checked(costs)[0]
    losses, scale, runs, top = _extent(nominal, delta, plan)
    quanta = _QUANTA if len(costs) > 1 else _QUANTA_ALONE
    items = items_at(costs, scale, runs, quanta=quanta, grain=0.0)
    items = harmless(items, losses, top, delta)
    quanta = math.ceil(runs / items[0].steps) * items[0].price
    planned = None if plan is None else _quanta_of(plan, items)
    ways = [Direction.REMOVE] if all(symmetric(c) for c in costs) else list(Direction)
    tables = [losses.table(items, way, 1.6 * top) for way in ways]
    rungs = _rungs(tables, quanta, planned, delta)
    readings = np.maximum.reduce([_readings(table, rungs) for table in tables])
    readings = np.minimum.accumulate(readings[::-1])[::-1]
    menu = Menu(float(readings[-1]), delta, len(readings) - 1, tuple(items))
    return Ladder(menu, tuple(readings.tolist()))


def _extent(
    nominal: Cost, delta: float, plan: tuple[Cost, int] | None
) -> tuple[Losses, Scale, int, float]:
    """Losses, scale, runs of the nominal mechanism and epsilon at the top of the ladder."""
    if plan is None:
        scale = Scale.of(nominal, TOP_EPSILON / 2, delta)
        losses = Losses(scale, delta, lattice_level(TOP_EPSILON / 2))
        runs = most_runs(nominal, losses, TOP_EPSILON, delta)
        return losses, scale, runs, TOP_EPSILON
    scale = Scale.of(nominal, TOP_EPSILON / 4, delta)
    planned = max(1, math.ceil(plan[1] * scale.rdp(plan[0]) / scale.rdp(nominal)))
    rough = Losses(scale, delta, lattice_level(1.0))
    epsilon = least_epsilon(rough.of(nominal, planned, Direction.REMOVE), delta)
    if not 1e-3 <= epsilon <= 100:
        raise ValueError(
            f"plan must cost an epsilon between 0.001 and 100 with a menu, got {plan!r}, "
            f"which costs {epsilon:.3g}"
        )
    scale = Scale.of(nominal, epsilon, delta)
    losses = Losses(scale, delta, lattice_level(epsilon))
    runs = math.ceil(_BEYOND_PLAN * planned)
    top = least_epsilon(losses.of(nominal, runs, Direction.REMOVE), delta / RUNGS)
    return losses, scale, runs, min(top, 4 * epsilon)


def _quanta_of(plan: tuple[Cost, int], items: Sequence[Item]) -> int:
    """Quanta that the planned runs cost."""
    for item in items:
        if item.cost == plan[0]:
            return math.ceil(plan[1] / item.steps) * item.price
    raise ValueError(f"plan must be for a cost on the menu, got {plan[0]}")


def _rungs(
    tables: Sequence[ValueTable], quanta: int, planned: int | None, delta: float
) -> list[tuple[int, int]]:
    """Numbers of quanta and the lattice points of the epsilons that their shares of delta pay."""
    low, high = (math.log(size) ** _DENSER_ABOVE for size in (max(2, quanta // 280), quanta))
    places = np.linspace(low, high, RUNGS) ** (1 / _DENSER_ABOVE)
    sizes = {round(size) for size in np.exp(places)} - {planned}
    if planned is None:
        shares = {size: delta / len(sizes) for size in sizes}
    else:
        shares = {size: delta * (1 - _PLAN_SHARE) / len(sizes) for size in sizes}
        shares[planned] = delta * _PLAN_SHARE
    # Shares are a little less than they may be, so that no rounding of their sum matters.
    return [
        (size, max(_least_index(table, size, shares[size] * (1 - 1e-12)) for table in tables))
        for size in sorted(shares)
    ]


def _least_index(table: ValueTable, quanta: int, share: float) -> int:
    """The least lattice point e with V(quanta, -e) within a share of delta."""
    level = table.level(quanta)
    within = int(np.searchsorted(level, share, side="right"))
    if within == 0:
        raise ValueError("menu must have losses that delta can pay for, got heavier ones")
    # level rises with y, so the last point within the share is the largest -e.
    return -(table.low + within - 1)


def _readings(table: ValueTable, rungs: Sequence[tuple[int, int]]) -> FloatArray:
    """Epsilon after 0, 1, ... quanta in one direction.

    T is rounded down, which raises epsilon: below the grid it is taken as 0, above it as its
    last value.
    """
    last = max(index for _, index in rungs)
    losses = np.arange(0, last + 1)
    readings = []
    for spent in range(max(size for size, _ in rungs) + 1):
        total = np.zeros(last + 1)
        standing = [(size, index) for size, index in rungs if size >= spent]
        for size, index in standing:
            level = table.level(size - spent)
            where = losses - index - table.low
            known = level[np.clip(where, 0, len(level) - 1)] * table.shrinkage(size - spent)
            total += np.where(where >= 0, known, 0.0) * (1 - 1e-12)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = losses * table.step + np.log1p(-total)
        best = float(np.max(np.where(total < 1, value, -math.inf)))
        least = min(index for _, index in standing) * table.step
        # Twelve digits cover the rounding of the logarithm and of the sum.
        readings.append(min(max(0.0, best) * (1 + 1e-12) + 1e-12, least * (1 + 1e-15)))
    return np.array(readings)
