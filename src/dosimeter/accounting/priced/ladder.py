# SPDX-License-Identifier: Apache-2.0
"""A ladder: what an odometer may read after each number of quanta.

Fix readings e_0 <= e_1 <= ... beforehand. An adversary who buys from the menu and stops when it
suits her best reaches V(0, 0) of

    V(n, L) = max((1 - e^{e_n - L})+, max over items of E V(n + price, L + X)),

a problem of optimal stopping. If that is within delta, e_n holds at whatever moment one stops
(Theorem 6 in docs/prices.md). The readings are a guess, what a filter would promise for n quanta
at a share of delta, or raised by a factor; share or factor are changed until V says that they are
within delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Direction, Item, Ladder, Menu, Plan
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
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import at_most

TOP_EPSILON = 14.0
"""How far an odometer without a plan can read by its ladder, but for its price."""

_QUANTA = 600
_QUANTA_ALONE = 1000
_SPAN = 280
"""Readings do not fall further before this part of the quanta: small ones would cost all others."""

_PLAN_SHARE = 0.8
_BEYOND_PLAN = 3.1
_DECLINE = 0.4
"""The share of delta falls with this power of n, because a small epsilon needs it more."""

_FIRST_SHARE = 0.1
_FIRST_EXCESS = 0.08
_LOW_ORDER = 1.25
_FAR = 150.0
"""At a low order the Rényi cost is about the mean loss, which epsilon is not far below."""

_PLACES = 64
_TRIES = 12
_ENOUGH = 0.99
_AIM = 0.996
_MOST_RISE = 0.05
_LEAST_RISE = 1e-4
_SLOPE = 20.0
"""About how fast the logarithm of the value falls with a relative rise of the readings."""


def make_ladder(costs: Sequence[Cost], delta: float, plan: Plan | None) -> Ladder:
    """The ladder of a menu, tightest at the planned stop or throughout the planned window."""
    for cost in checked(costs):
        # Refuses what cannot be on a menu before anything is computed from its Rényi cost.
        single_loss(cost, Direction.REMOVE, lattice_level(1.0))
    losses, runs, top = _extent(costs, delta, plan)
    quanta = _QUANTA if len(costs) > 1 else _QUANTA_ALONE
    items = items_at(costs, runs, quanta=quanta, grain=0.0)
    items = harmless(items, losses, top, delta)
    quanta = math.ceil(runs[0] / items[0].steps) * items[0].price
    table = losses.table(items, Direction.REMOVE, 1.3 * top)
    guess = _guess(table, quanta, items, delta, plan)
    certified = _within(delta, guess, _bundles(items, losses))
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
        # Where readings stand at the most that can be lost, the slope is flat at first.
        step = min(step, _MOST_RISE / 5)
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
    delta: float, guess: _Shares | _Window, ways: Sequence[Sequence[Bundle]]
) -> tuple[float, ...]:
    """The lowest readings found whose stopping value is within delta in every direction.

    The logarithm of the value is nearly linear in what is guessed: the secant method.
    """
    found: tuple[float, ...] | None = None
    at, slope, before = guess.first, guess.slope, (0.0, 0.0)
    for turn in range(_TRIES):
        readings = guess.readings(at)
        value = _worst(ways, readings, delta)
        if value <= delta and (found is None or readings[-1] <= found[-1]):
            found = readings
            if value >= _ENOUGH * delta:
                break
        over = math.log(max(value, 1e-9 * delta) / (_AIM * delta))
        if turn:
            # Far from delta a chord may be flat or even turn back.
            chord = (over - before[1]) / (at - before[0])
            slope = math.copysign(max(abs(slope) / 3, chord * math.copysign(1, slope)), slope)
        before = at, over
        at -= max(-1.0, min(over, 1.0)) / slope
    if found is None:
        raise ValueError(
            "menu must hold costs that an odometer can read at this delta, got ones that cost far "
            "too much or far too little; leave them out and spend them off the menu"
        )
    return found


def _worst(ways: Sequence[Sequence[Bundle]], readings: tuple[float, ...], delta: float) -> float:
    """The stopping value of the worst direction, or of the first that is beyond delta.

    The first direction is usually the worst by far, so that a coarser lattice, which only
    overstates the other, is enough to say so.
    """
    first, *others = ways
    value = stopping_value(first, readings)
    for bundles in others:
        if not value <= delta:
            break
        rough = [Bundle(b.loss.at_level(b.loss.level + 1), b.price) for b in bundles]
        if not stopping_value(rough, readings) <= value:
            value = float(np.maximum(value, stopping_value(bundles, readings)))  # NaN stays NaN
    return value


class _Shares:
    """The epsilon that a filter would promise for each number of quanta, at a share of delta.

    The share falls with the quanta; the planned stop, if there is one, has a share of its own. What
    is guessed is the logarithm of the first share.
    """

    first = math.log(_FIRST_SHARE)

    def __init__(self, table: ValueTable, quanta: int, planned: int | None, delta: float) -> None:
        self._table, self._delta, self._planned = table, delta, planned
        self._places = _places(max(2, quanta // _SPAN), quanta)
        self.slope = 1.0 if planned is None else 1 - _PLAN_SHARE

    def readings(self, log_share: float) -> tuple[float, ...]:
        """Readings after 0, 1, ... quanta."""
        epsilons = [
            self._epsilon(place, math.exp(log_share) * (place / self._places[0]) ** -_DECLINE)
            for place in self._places
        ]
        every = np.interp(np.arange(self._places[-1] + 1), self._places, epsilons)
        if self._planned is not None:
            at_plan = self._epsilon(self._planned, _PLAN_SHARE)
            every[self._planned] = min(every[self._planned], at_plan)
        return _rising(every)

    def _epsilon(self, quanta: int, share: float) -> float:
        return _promised(self._table, quanta, min(share, 1.0) * self._delta)


class _Window:
    """The epsilon that a filter would promise for each number of quanta, raised by one factor.

    That is the least constant ratio to what is spent, from the first to the last stop that is
    planned for; before the first one it costs nothing to read what the first one does. What is
    guessed is the factor less 1.
    """

    first = _FIRST_EXCESS
    slope = -_SLOPE

    def __init__(self, table: ValueTable, low: int, high: int, delta: float) -> None:
        self._places = _places(low, high)
        self._least = np.array([_promised(table, place, delta) for place in self._places])

    def readings(self, excess: float) -> tuple[float, ...]:
        """Readings after 0, 1, ... quanta."""
        every = np.interp(np.arange(self._places[-1] + 1), self._places, self._least)
        return _rising(every * (1 + max(excess, 0.0)))


def _guess(
    table: ValueTable, quanta: int, items: Sequence[Item], delta: float, plan: Plan | None
) -> _Shares | _Window:
    """What is guessed for a plan or without one."""
    if plan is None:
        return _Shares(table, quanta, None, delta)
    cost, count = plan
    item = next(item for item in items if item.cost == cost)
    if isinstance(count, tuple):
        low, high = (math.ceil(n / item.steps) * item.price for n in count)
        return _Window(table, low, high, delta)
    planned = math.ceil(count / item.steps) * item.price
    return _Shares(table, max(quanta, planned), planned, delta)


def _places(low: int, high: int) -> list[int]:
    places = np.geomspace(min(low, high), high, _PLACES)
    return sorted(set(map(round, places.tolist())))


def _rising(readings: FloatArray) -> tuple[float, ...]:
    """Readings that do not fall, of which the one before anything is spent is 0."""
    return (0.0, *np.minimum.accumulate(readings[::-1])[::-1][1:].tolist())


def _promised(table: ValueTable, quanta: int, delta: float) -> float:
    """About the epsilon at which V of some quanta is delta."""
    return max(0.0, -float(np.interp(delta, table.level(quanta), table.losses_above)))


def _extent(
    costs: Sequence[Cost], delta: float, plan: Plan | None
) -> tuple[Losses, list[float], float]:
    """Losses, runs of each mechanism and epsilon at the top of the ladder."""
    if plan is None:
        losses = Losses(TOP_EPSILON, delta, lattice_level(TOP_EPSILON))
        return losses, [most_runs(c, losses, TOP_EPSILON, delta) for c in costs], TOP_EPSILON
    cost, counts = plan
    last = counts[1] if isinstance(counts, tuple) else counts
    # A sum of losses far beyond the lattice would take for ever to say so.
    epsilon = last * float(cost.rdp([_LOW_ORDER])[0])
    if epsilon <= _FAR:
        rough = Losses(TOP_EPSILON, delta, lattice_level(1.0))
        epsilon = least_epsilon(rough.of(cost, last, Direction.REMOVE), delta)
    if not 1e-3 <= epsilon <= 100:
        raise ValueError(
            f"plan must cost an epsilon between 0.001 and 100 with a menu, got {plan!r}, "
            f"which costs {at_most(epsilon)}"
        )
    # Who plans for one stop may go on; after a window the mixture reads.
    beyond, most = (last, epsilon) if last is not counts else (_BEYOND_PLAN * last, 2 * epsilon)
    losses = Losses(most, delta, lattice_level(most))
    runs = [most_runs(c, losses, epsilon, delta) for c in costs]
    top = least_epsilon(losses.of(cost, math.ceil(beyond), Direction.REMOVE), _FIRST_SHARE * delta)
    times = math.ceil(beyond) / runs[list(costs).index(cost)]
    return losses, [max(1.0, number * times) for number in runs], min(top, 4 * epsilon)
