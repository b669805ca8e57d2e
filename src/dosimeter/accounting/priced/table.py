# SPDX-License-Identifier: Apache-2.0
"""The value of the worst adaptive adversary who buys from a menu.

With s quanta left and the privacy loss y above epsilon, an adversary who picks the best item at
every turn can reach the hockey-stick value

    V(0, y) = (1 - e^-y)+,   V(s, y) = max(V(s-1, y), max over items of E V(s - price, y + X)).

V stays in the class of functions for which domination of losses means domination of
expectations, so every item costs its price at every s and the filter is a counter
(docs/prices.md). An adversary against an odometer also picks the moment of stopping. Levels
are rounded up, so both values are upper bounds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dosimeter.accounting.priced.lattice import UNIT, LatticeError, Measure, same_lattice, step_of
from dosimeter.rdp.orders import FloatArray


@dataclass(frozen=True)
class Bundle:
    """The loss of what one purchase buys, and its price in quanta."""

    loss: Measure
    price: int


class ValueTable:
    """V(s, y) for s = 0, 1, ... on a lattice in y, one neighbour direction; grows on demand.

    Between lattice points V is linear in u = e^-y, below the grid flat, and above it the chord
    to the ceiling at infinity: all three keep it convex in u and at least what it should be. A
    loss as long as the grid ends on the chord from everywhere, so nothing is lost by capping it.

    Args:
        bundles: What can be bought, all on one lattice.
        low: First lattice point of y.
        high: Last lattice point of y, above 0.
    """

    def __init__(self, bundles: Sequence[Bundle], low: int, high: int) -> None:
        self._step = step_of(same_lattice(bundle.loss for bundle in bundles))
        self._bundles = tuple(Bundle(b.loss.capped(high - low), b.price) for b in bundles)
        self._low = low
        y = np.arange(low, high + 1) * self._step
        self._levels: list[FloatArray] = [np.where(y > 0, -np.expm1(-y), 0.0) * (1 + 16 * UNIT)]
        self._ceilings = [1.0 + 32 * UNIT]

    @property
    def step(self) -> float:
        """Distance of lattice points."""
        return self._step

    @property
    def losses_above(self) -> FloatArray:
        """The lattice points y of a level."""
        return np.asarray((self._low + np.arange(len(self._levels[0]))) * self._step)

    def value(self, quanta: int, epsilon: float) -> float:
        """V(quanta, -epsilon): what an adversary can reach who starts at loss 0, rounded up."""
        y = -epsilon / self._step - self._low
        cell = min(max(math.floor(y), 0), len(self._levels[0]) - 2)
        # V is linear in u = e^-y within a cell; rounding is a few units of V's rise over it.
        share = -math.expm1(-(y - cell) * self._step) / -math.expm1(-self._step)
        low, high = self.level(quanta)[cell : cell + 2].tolist()
        share = min(1.0, max(0.0, share * (1 + 1e-9) + 1e-12))
        return float((low + (high - low) * share) * (1 + 4 * UNIT))

    def level(self, quanta: int) -> FloatArray:
        """V(quanta, y) at every lattice point y, rounded up."""
        while len(self._levels) <= quanta:
            self._grow()
        return self._levels[quanta]

    def ceiling(self, quanta: int) -> float:
        """V(quanta, infinity), rounded up."""
        self.level(quanta)
        return self._ceilings[quanta]

    def after(self, loss: Measure, quanta: int) -> tuple[FloatArray, float]:
        """E V(quanta, y + X) at every lattice point y and at infinity, rounded up."""
        if loss.step != self._step:
            raise LatticeError(f"loss must be on the lattice {self._step!r}, got {loss.step!r}")
        level, ceiling = self.level(quanta), self._ceilings[quanta]
        return _expected(level, ceiling, loss.capped(len(level) - 1)), _raised(ceiling, loss)

    def choices(self, quanta: int) -> npt.NDArray[np.intp]:
        """The item that an adversary with this many quanta does best to buy; -1 for none."""
        best = self.level(quanta - 1).copy()
        chosen = np.full(len(best), -1)
        for number, bundle in enumerate(self._bundles):
            if bundle.price <= quanta:
                gained = self._bought(bundle, quanta)
                chosen[gained > best] = number
                best = np.maximum(best, gained)
        return chosen

    def _grow(self) -> None:
        quanta = len(self._levels)
        level, ceiling = self._levels[-1], self._ceilings[-1]
        for bundle in self._bundles:
            if bundle.price <= quanta:
                level = np.maximum(level, self._bought(bundle, quanta))
                ceiling = max(ceiling, _raised(self._ceilings[quanta - bundle.price], bundle.loss))
        self._levels.append(level)
        self._ceilings.append(ceiling)

    def _bought(self, bundle: Bundle, quanta: int) -> FloatArray:
        """E V(quanta - price, y + X), rounded up."""
        before = quanta - bundle.price
        return _expected(self._levels[before], self._ceilings[before], bundle.loss)


def stopping_value(bundles: Sequence[Bundle], readings: Sequence[float]) -> float:
    """What an adversary can reach who also chooses when to stop, rounded up.

    With n quanta spent and the privacy loss L, stopping yields (1 - e^{readings[n] - L})+:

        V(n, L) = max((1 - e^{readings[n] - L})+, max over items of E V(n + price, L + X)),

    and the value is V(0, 0). Readings need not lie on the lattice: V is linear in u = e^-L
    between its points, a chord above a convex function.
    """
    step = step_of(same_lattice(bundle.loss for bundle in bundles))
    low, high = (round(end + readings[-1] / step) for end in grid(readings[-1], step))
    bundles = [Bundle(b.loss.capped(high - low), b.price) for b in bundles]
    losses = np.arange(low, high + 1) * step
    later: deque[tuple[FloatArray, float]] = deque(maxlen=max(b.price for b in bundles))
    for reading in reversed(readings):
        level = -np.expm1(-np.maximum(losses - reading, 0.0)) * (1 + 16 * UNIT)
        ceiling = 1.0 + 32 * UNIT
        for bundle in bundles:
            if bundle.price <= len(later):
                after, above = later[bundle.price - 1]
                level = np.maximum(level, _expected(after, above, bundle.loss))
                ceiling = max(ceiling, _raised(above, bundle.loss))
        later.appendleft((level, ceiling))
    return float(later[0][0][-low])


def _rounding(loss: Measure) -> float:
    return 1 + 2 * (len(loss.p) + 12) * UNIT


def _raised(ceiling: float, loss: Measure) -> float:
    """The value at infinity before a loss, given the one after it."""
    return ceiling * loss.mass * _rounding(loss)


def _expected(level: FloatArray, ceiling: float, loss: Measure) -> FloatArray:
    """E V(y + X), rounded up: V flat below the grid, a chord in u = e^-y above it."""
    last = loss.lo + len(loss.p) - 1
    left, right = max(0, -loss.lo), max(0, last)
    beyond = np.exp(-np.arange(1, right + 1) * loss.step)
    padded = np.concatenate(
        [np.full(left, level[0]), level, ceiling - (ceiling - level[-1]) * beyond]
    )
    start = left + loss.lo
    reached = padded[start : start + len(level) + len(loss.p) - 1]
    total = np.correlate(reached, loss.p, "valid") + loss.inf * ceiling
    return np.asarray(total * ((1 + loss.rel) * _rounding(loss)))


def grid(largest_epsilon: float, step: float) -> tuple[int, int]:
    """First and last lattice point of a table for limits up to `largest_epsilon`.

    Where the grid ends costs only tightness: below it V is a little too large, above it the
    chord is nearly exact once an adversary has passed the limit by far. The two factors raise
    V by less than one part in ten thousand for delta up to 0.01.
    """
    return -math.ceil(1.35 * largest_epsilon / step), math.ceil(0.35 * largest_epsilon / step)
