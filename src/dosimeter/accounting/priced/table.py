# SPDX-License-Identifier: Apache-2.0
"""The value of the worst adaptive adversary who buys from a menu.

With s quanta left and the privacy loss y above epsilon, an adversary who picks the best item at
every turn can reach the hockey-stick value

    V(0, y) = (1 - e^-y)+,   V(s, y) = max(V(s-1, y), max over items of E V(s - price, y + X)).

V stays in the class of functions for which domination of losses means domination of
expectations, so every item costs its price at every s and the filter is a counter
(docs/prices.md). Levels are rounded up, so the table is an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.priced.lattice import Measure
from dosimeter.rdp.orders import FloatArray

ABOVE = 5.0
BELOW = 6.0
"""How far the grid reaches above and below the losses that matter."""


@dataclass(frozen=True)
class Bundle:
    """The loss of what one purchase buys, and its price in quanta."""

    loss: Measure
    price: int


class ValueTable:
    """V(s, y) for s = 0, 1, ... on a lattice in y, one neighbour direction; grows on demand."""

    def __init__(self, bundles: list[Bundle], largest_epsilon: float) -> None:
        step = bundles[0].loss.step
        self._step = step
        self._bundles = bundles
        self._low = -math.ceil((largest_epsilon + BELOW) / step)
        self._high = math.ceil(ABOVE / step)
        y = np.arange(self._low, self._high + 1) * step
        self._levels: list[FloatArray] = [np.where(y > 0, -np.expm1(-y), 0.0) * (1 + 2.0**-50)]
        self._ceilings = [1.0]

    @property
    def step(self) -> float:
        """Distance of lattice points."""
        return self._step

    def value(self, quanta: int, index: int) -> float:
        """V(quanta, -index * step): what an adversary can reach from epsilon = index * step."""
        while len(self._levels) <= quanta:
            self._grow()
        return float(self._levels[quanta][-index - self._low])

    def _grow(self) -> None:
        quanta = len(self._levels)
        level, ceiling = self._levels[-1], self._ceilings[-1]
        for bundle in self._bundles:
            if bundle.price <= quanta:
                before = quanta - bundle.price
                loss, top = bundle.loss, self._ceilings[before]
                terms = 1 + loss.rel + 2 * (len(loss.p) + 12) * 2.0**-53
                spread = self._expected(self._levels[before], top, loss)
                level = np.maximum(level, (spread + loss.inf * top) * terms)
                ceiling = max(ceiling, loss.mass * top * (1 + 2.0**-50))
        self._levels.append(level)
        self._ceilings.append(ceiling)

    def _expected(self, level: FloatArray, ceiling: float, loss: Measure) -> FloatArray:
        """Sum of p_i V(y + x_i): flat below the grid, a chord in u = e^-y above it."""
        last = loss.lo + len(loss.p) - 1
        left, right = max(0, -loss.lo), max(0, last)
        beyond = np.exp(-np.arange(1, right + 1) * self._step)
        padded = np.concatenate(
            [np.full(left, level[0]), level, ceiling - (ceiling - level[-1]) * beyond]
        )
        start = left + loss.lo
        return np.correlate(padded[start : start + len(level) + len(loss.p) - 1], loss.p, "valid")
