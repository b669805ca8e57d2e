# SPDX-License-Identifier: Apache-2.0
"""A ladder: what an odometer may read after each number of quanta.

Fix readings e_0 <= e_1 <= ... beforehand. An adversary who buys from the menu and stops when it
suits her best reaches V(0, 0) of

    V(n, L) = max((1 - e^{e_n - L})+, max over items of E V(n + price, L + X)),

a problem of optimal stopping. If that is within delta, e_n holds at whatever moment one stops
(Theorem 6 in docs/prices.md). The readings are a guess, what a filter would promise for n quanta
at a share of delta; the share is scaled until V says that they are within delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Direction, Item, Ladder, Menu
from dosimeter.accounting.priced.losses import single_loss, symmetric
from dosimeter.accounting.priced.menu import (
    Losses,
    checked,
    harmless,
    lattice_level,
    least_epsilon,
    most_runs,
)
from dosimeter.accounting.priced.rates import items_at
from dosimeter.accounting.priced.table import Bundle, ValueTable, stopping_value
from dosimeter.rdp import Cost
from dosimeter.rounding import at_most

TOP_EPSILON = 14.0
"""How far an odometer without a plan can read by its ladder, but for its price."""

_QUANTA = 600
_QUANTA_ALONE = 1000
_SPAN = 280
"""Readings do not fall further before this part of the quanta: small ones would cost all others."""

_PLAN_SHARE = 0.5
_BEYOND_PLAN = 3.1
_DECLINE = 0.25
"""The share of delta falls with this power of n, because a small epsilon needs it more."""

_FIRST_SHARE = 0.08
_LOW_ORDER = 1.25
_FAR = 150.0
"""At a low order the Rényi cost is about the mean loss, which epsilon is not far below."""

_PLACES = 64
_TRIES = 12
_ENOUGH = 0.99
_MOST_RISE = 0.05
_LEAST_RISE = 1e-4
_SLOPE = 20.0
"""About how fast the logarithm of the value falls with a relative rise of the readings."""


def make_ladder(costs: Sequence[Cost], delta: float, plan: tuple[Cost, int] | None) -> Ladder:
    """The ladder of a menu, with half of delta on the plan if there is one."""
    for cost in checked(costs):
        # Refuses what cannot be on a menu before anything is computed from its Rényi cost.
        single_loss(cost, Direction.REMOVE, lattice_level(1.0))
    losses, runs, top = _extent(costs, delta, plan)
    quanta = _QUANTA if len(costs) > 1 else _QUANTA_ALONE
    items = items_at(costs, runs, quanta=quanta, grain=0.0)
    items = harmless(items, losses, top, delta)
    quanta = math.ceil(runs[0] / items[0].steps) * items[0].price
    planned = None if plan is None else _quanta_of(plan, items)
    table = losses.table(items, Direction.REMOVE, 1.3 * top)
    guess = _Guess(table, max(quanta, planned or 0), planned, delta)
    certified = _within(delta, guess, _bundles(items, losses), planned is not None)
    # Twelve digits cover the rounding of losses and readings in the value.
    readings = tuple(reading * (1 + 1e-12) for reading in certified)
    return _confirmed(Ladder(Menu(readings[-1], delta, len(readings) - 1, tuple(items)), readings))


def _confirmed(built: Ladder) -> Ladder:
    """The ladder, its readings raised until the checker, whose grid is coarser, confirms them.

    Raises:
        ValueError: Builder and checker do not agree about it.
    """
    verify.require_delta(built.menu)
    raised, step, slope, before = 0.0, 0.0, _SLOPE, math.inf
    while raised <= _MOST_RISE:
        readings = tuple(reading * (1 + raised) for reading in built.readings)
        ladder = Ladder(replace(built.menu, epsilon=readings[-1]), readings)
        value = verify.reached(ladder)
        if value <= ladder.menu.delta:
            return ladder
        if step:
            slope = math.log(before / value) / step if value < before else slope / 2
        step = max(1.02 * math.log(value / ladder.menu.delta) / slope, _LEAST_RISE)
        raised, before = raised + step, value
    raise ValueError(
        "menu must be confirmed by a second computation, got readings that it puts more than "
        f"{_MOST_RISE:.0%} higher. Leave the smallest and the largest cost out, or use an "
        "odometer without a menu."
    )


def _bundles(items: Sequence[Item], losses: Losses) -> list[list[Bundle]]:
    """What can be bought, in each direction that differs."""
    ways = [Direction.REMOVE]
    if not all(symmetric(item.cost) for item in items):
        ways.append(Direction.ADD)
    return [
        [Bundle(losses.of(item.cost, item.steps, way), item.price) for item in items]
        for way in ways
    ]


def _within(
    delta: float, guess: _Guess, ways: Sequence[Sequence[Bundle]], planned: bool
) -> tuple[float, ...]:
    """The lowest readings found whose stopping value is within delta in every direction."""
    found: tuple[float, ...] | None = None
    fixed = _PLAN_SHARE * delta if planned else 0.0
    share = _FIRST_SHARE
    for _ in range(_TRIES):
        readings = guess.readings(share)
        value = max(stopping_value(bundles, readings) for bundles in ways)
        if value <= delta and (found is None or readings[-1] <= found[-1]):
            found = readings
            if value >= _ENOUGH * delta:
                break
        # What the plan does not take is close to proportional to the share.
        spare = max(value - fixed, 0.05 * delta)
        share *= min(2.0, 0.997 * (delta - fixed) / spare)
    if found is None:
        raise ValueError(
            "menu must hold costs that an odometer can read at this delta, got ones that cost far "
            "too much or far too little; leave them out and spend them off the menu"
        )
    return found


class _Guess:
    """The epsilon that a filter would promise for each number of quanta, at a share of delta."""

    def __init__(self, table: ValueTable, quanta: int, planned: int | None, delta: float) -> None:
        self._table, self._delta = table, delta
        self._quanta, self._planned = quanta, planned
        places = np.geomspace(min(max(2, quanta // _SPAN), quanta), quanta, _PLACES)
        self._places = sorted(set(map(round, places.tolist())))

    def readings(self, share: float) -> tuple[float, ...]:
        """Readings after 0, 1, ... quanta; the planned one has a share of its own."""
        first = self._places[0]
        epsilons = [
            self._epsilon(place, share * (place / first) ** -_DECLINE) for place in self._places
        ]
        every = np.interp(np.arange(self._quanta + 1), self._places, epsilons)
        if self._planned is not None:
            at_plan = self._epsilon(self._planned, _PLAN_SHARE)
            every[self._planned] = min(every[self._planned], at_plan)
        every = np.minimum.accumulate(every[::-1])[::-1]
        return (0.0, *every[1:].tolist())

    def _epsilon(self, quanta: int, share: float) -> float:
        """About the epsilon at which V is a share of delta."""
        level = self._table.level(quanta)
        return max(0.0, -float(np.interp(share * self._delta, level, self._table.losses_above)))


def _extent(
    costs: Sequence[Cost], delta: float, plan: tuple[Cost, int] | None
) -> tuple[Losses, list[float], float]:
    """Losses, runs of each mechanism and epsilon at the top of the ladder."""
    if plan is None:
        losses = Losses(TOP_EPSILON, delta, lattice_level(TOP_EPSILON))
        return losses, [most_runs(c, losses, TOP_EPSILON, delta) for c in costs], TOP_EPSILON
    cost, count = plan
    # A sum of losses far beyond the lattice would take for ever to say so.
    epsilon = count * float(cost.rdp([_LOW_ORDER])[0])
    if epsilon <= _FAR:
        rough = Losses(TOP_EPSILON, delta, lattice_level(1.0))
        epsilon = least_epsilon(rough.of(cost, count, Direction.REMOVE), delta)
    if not 1e-3 <= epsilon <= 100:
        raise ValueError(
            f"plan must cost an epsilon between 0.001 and 100 with a menu, got {plan!r}, "
            f"which costs {at_most(epsilon)}"
        )
    losses = Losses(2 * epsilon, delta, lattice_level(2 * epsilon))
    runs = [most_runs(c, losses, epsilon, delta) for c in costs]
    beyond = math.ceil(_BEYOND_PLAN * count)
    top = least_epsilon(losses.of(cost, beyond, Direction.REMOVE), _FIRST_SHARE * delta)
    times = beyond / runs[list(costs).index(cost)]
    return losses, [max(1.0, number * times) for number in runs], min(top, 4 * epsilon)


def _quanta_of(plan: tuple[Cost, int], items: Sequence[Item]) -> int:
    """Quanta that the planned runs cost."""
    for item in items:
        if item.cost == plan[0]:
            return math.ceil(plan[1] / item.steps) * item.price
    raise ValueError(f"plan must be for a cost on the menu, got {plan[0]}")
