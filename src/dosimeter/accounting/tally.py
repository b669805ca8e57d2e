# SPDX-License-Identifier: Apache-2.0
"""Tally: the running sum of costs, rounded upward at every addition.

Four numbers add up: the Rényi curve, the pure epsilon (the curve's value at order
infinity), the probability of failure and that of outputs left out. A tally is a frozen
value, so a refused spend has nothing to undo.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.cutting import Cutting
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.cost import UP, UP_EACH
from dosimeter.rdp.orders import FloatArray


class Tally(NamedTuple):
    """Costs summed at each order.

    Guarantee:
        Every component is at least the exact sum. The curve is multiplied by 1 + 2^-52
        after each addition and each multiplication by a count, which covers their
        rounding; so n spends of one exceed one spend of n, less two units in the last
        place, and each spend raises the sum by at most two units more than it should. The
        scalars are rounded up only where they are not exact.

    Attributes:
        rdp: The curve.
        pure_epsilon: What the loss never passes.
        delta: The probability that the curve fails to hold.
        cut: The probability of the outputs that the curve leaves out; infinite once one was
            charged whole because no more could be left out.
    """

    rdp: FloatArray
    pure_epsilon: float
    delta: float
    cut: float = 0.0

    @classmethod
    def nothing(cls, orders: Orders) -> Tally:
        """The tally before the first spend."""
        return cls(np.zeros(len(orders)), 0.0, 0.0)

    def plus(self, other: Tally) -> Tally:
        """The sum of two tallies."""
        rdp = self.rdp + other.rdp
        rdp *= UP_EACH
        return Tally(
            rdp,
            _sum_up(self.pure_epsilon, other.pure_epsilon),
            _sum_up(self.delta, other.delta) if other.delta else self.delta,
            _sum_up(self.cut, other.cut) if other.cut else self.cut,
        )

    def minus(self, part: Tally) -> Tally:
        """The tally less a charge that is part of it.

        Guarantee:
            Still at least the exact sum of the other charges: the tally is at least theirs
            plus this one, the charge is the float that was added, and the difference is
            rounded up. Where the charge is infinite, so the sum stays. Once runs were charged
            whole, a charge without its rarest outputs is less than any of them.
        """
        finite = np.isfinite(part.rdp)
        rest = np.where(finite, self.rdp - np.where(finite, part.rdp, 0.0), math.inf)
        return Tally(
            np.maximum(np.nextafter(rest * UP, math.inf), 0.0),
            _less(self.pure_epsilon, part.pure_epsilon),
            # The cap on failures is compared exactly, so what is left must not creep over it.
            min(_less(self.delta, part.delta), self.delta),
            min(_less(self.cut, part.cut), self.cut),
        )

    def times(self, count: int) -> Tally:
        """The tally of `count` runs."""
        if count == 1:
            return self
        with np.errstate(over="ignore"):
            rdp = self.rdp * count * UP
        rdp[rdp > 1e300] = math.inf
        return Tally(
            rdp,
            _product_up(self.pure_epsilon, count),
            _product_up(self.delta, count),
            _product_up(self.cut, count),
        )


def _sum_up(a: float, b: float) -> float:
    """a + b, rounded up if it is not exact (both non-negative)."""
    total = a + b
    if total == math.inf:
        return total
    # Knuth's two-sum: what rounding lost, exactly.
    shared = total - a
    lost = (a - (total - shared)) + (b - shared)
    return total if lost <= 0 else math.nextafter(total, math.inf)


def _less(total: float, part: float) -> float:
    """total - part, rounded up if it is not exact; the total where the part is infinite."""
    if part == 0.0 or part == math.inf:
        return total
    rest = total - part
    if total < math.inf and Fraction(total) - Fraction(part) == Fraction(rest):
        return max(rest, 0.0)
    return max(math.nextafter(rest * UP, math.inf), 0.0)


def _product_up(a: float, count: int) -> float:
    """a * count, rounded up if it is not exact."""
    product = a * count
    if product in (0.0, math.inf) or Fraction(a) * count <= Fraction(product):
        return product
    return math.nextafter(product, math.inf)


@lru_cache(maxsize=4096)
def _one_run(cost: Cost, orders: Orders, cutting: Cutting | None) -> Tally:
    if not isinstance(cost, Cost):
        raise TypeError(f"cost must be a mechanism such as dosimeter.Gaussian, got {cost!r}")
    if not (cost.pure_epsilon >= 0 and 0 <= cost.delta < 1):
        raise ValueError(
            f"cost must have pure_epsilon >= 0 and delta in [0, 1), got "
            f"{cost.pure_epsilon!r} and {cost.delta!r} from {cost}"
        )
    cut = None if cutting is None else cutting.cut(cost, orders)
    if cut is None:
        return Tally(cost.rdp(orders), cost.pure_epsilon, cost.delta)
    return Tally(cut.rdp, cost.pure_epsilon, cost.delta, cut.chance)


@lru_cache(maxsize=4096)
def _runs(cost: Cost, count: int, orders: Orders, cutting: Cutting | None) -> Tally:
    tally = _one_run(cost, orders, cutting).times(count)
    tally.rdp.setflags(write=False)
    return tally


def charge(cost: Cost, count: int, orders: Orders, cutting: Cutting | None = None) -> Tally:
    """What `count` runs of `cost` add to a tally over `orders`, without their rarest outputs."""
    if type(cost).__hash__ is None:
        raise TypeError(f"cost must be a mechanism such as dosimeter.Gaussian, got {cost!r}")
    return _runs(cost, arguments.count("count", count), orders, cutting)


def charge_after(
    spent: Tally, cost: Cost, count: int, orders: Orders, cutting: Cutting | None
) -> Tally:
    """What runs add to what was spent: as many without their rarest outputs as the cap allows."""
    try:
        asked = _runs(cost, count, orders, cutting)
    except TypeError:
        asked = charge(cost, count, orders, cutting)  # says what is wrong with it
    if not asked.cut or cutting is None or spent.cut + asked.cut < cutting.cap:
        return asked
    if spent.cut == math.inf:
        return charge(cost, count, orders)
    one = charge(cost, 1, orders, cutting).cut
    fits = largest(lambda runs: runs < count and spent.cut + _product_up(one, runs) < cutting.cap)
    whole = charge(cost, count - fits, orders)
    both = whole if not fits else whole.plus(charge(cost, fits, orders, cutting))
    return both._replace(cut=math.inf)


def largest(admits: Callable[[int], bool]) -> int:
    """The largest count up to MAX_COUNT that a monotone rule admits, by doubling and halving."""
    low, high = 0, 1
    while high <= arguments.MAX_COUNT and admits(high):
        low, high = high, 2 * high
    high = min(high, arguments.MAX_COUNT + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admits(middle) else (low, middle)
    return low
