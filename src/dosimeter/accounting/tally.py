# SPDX-License-Identifier: Apache-2.0
"""Tally: the running sum of costs, rounded upward at every addition.

Three numbers add up: the Rényi curve, the pure epsilon (the curve's value at order
infinity) and the probability of failure. A tally is a frozen value, so a refused spend
has nothing to undo.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dosimeter import arguments
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.cost import UP
from dosimeter.rdp.orders import FloatArray


class Tally(NamedTuple):
    """Costs summed at each order.

    Guarantee:
        Every component is at least the exact sum: each addition and each multiplication
        by a count is followed by a factor 1 + 2^-52, which covers its rounding. So n
        spends of one exceed one spend of n, less two units in the last place, and a
        tally of n spends is at most n + 1 units above the exact sum.
    """

    rdp: FloatArray
    pure_epsilon: float
    delta: float

    @classmethod
    def nothing(cls, orders: Orders) -> Tally:
        """The tally before the first spend."""
        return cls(np.zeros(len(orders)), 0.0, 0.0)

    def plus(self, other: Tally) -> Tally:
        """The sum of two tallies."""
        return Tally(
            (self.rdp + other.rdp) * UP,
            (self.pure_epsilon + other.pure_epsilon) * UP,
            (self.delta + other.delta) * UP,
        )

    def times(self, count: int) -> Tally:
        """The tally of `count` runs."""
        if count == 1:
            return self
        return Tally(self.rdp * count * UP, self.pure_epsilon * count * UP, self.delta * count * UP)


@lru_cache(maxsize=4096)
def _one_run(cost: Cost, orders: Orders) -> Tally:
    return Tally(cost.rdp(orders), cost.pure_epsilon, cost.delta)


def charge(cost: Cost, count: int, orders: Orders) -> Tally:
    """What `count` runs of `cost` add to a tally over `orders`."""
    if not isinstance(cost, Cost):
        raise TypeError(f"cost must be a mechanism such as dosimeter.Gaussian, got {cost!r}")
    return _one_run(cost, orders).times(arguments.count("count", count))
