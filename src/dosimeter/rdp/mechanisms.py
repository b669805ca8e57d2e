# SPDX-License-Identifier: Apache-2.0
"""The mechanisms with a closed-form Rényi curve, and the user's own curve.

Sensitivity is 1 by convention: give the noise divided by the sensitivity of the query.
Each form is written as log1p of a sum of positive terms, so that a small cost keeps its
relative accuracy instead of drowning in cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import Cost, interpolate
from dosimeter.rdp.orders import FloatArray, Orders

_SLACK = 1.0 + 2.0**-44
"""Covers the rounding of the short closed forms below (checked against mpmath)."""

_SMALLEST = 1e-300
"""Added to every closed form: below it the roundings of denormal numbers are not relative."""


@dataclass(frozen=True)
class Gaussian(Cost):
    """The Gaussian mechanism; `noise_multiplier` is standard deviation over sensitivity.

    Also right for the discrete Gaussian, whose Rényi cost is no larger (Canonne, Kamath and
    Steinke 2020, Theorem 4), but not on a menu, which prices the loss distribution
    (docs/sharp-edges.md). D_a = a / (2 noise_multiplier^2) (Mironov 2017, Prop. 7).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "noise_multiplier", arguments.positive("noise_multiplier", self.noise_multiplier)
        )

    def _curve(self, orders: Orders) -> FloatArray:
        # Two divisions: the square of a huge or tiny noise leaves the range of a float.
        curve = orders.array / self.noise_multiplier / self.noise_multiplier / 2.0
        return np.asarray(curve * _SLACK + _SMALLEST)


@dataclass(frozen=True)
class Laplace(Cost):
    """The Laplace mechanism; `scale` is the noise scale over sensitivity.

    The discrete Laplace costs more: charge it as PureDp(1 / scale).

    D_a = log(a e^{be} + b e^{-ae}) - log(2a - 1), over b, with b = a - 1 and e = 1/scale
    (Mironov 2017, Prop. 6).
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", arguments.positive("scale", self.scale))

    @property
    def pure_epsilon(self) -> float:
        """1/scale."""
        if self.scale < 1e-300:
            return math.inf
        quotient = 1.0 / self.scale
        exact = Fraction(quotient) * Fraction(self.scale) >= 1
        return quotient if exact else math.nextafter(quotient, math.inf)

    def _curve(self, orders: Orders) -> FloatArray:
        eps, a, b = self.pure_epsilon, orders.array, orders.beta
        if not math.isfinite(eps):
            return np.full(len(orders), math.inf)
        # The linear terms of the two exponentials cancel: only second-order ones remain.
        moment = (a * _exp_tail(b * eps) + b * _exp_tail(-a * eps)) / (2 * a - 1)
        large = eps + np.log((a + b * np.exp(-(a + b) * eps)) / (2 * a - 1)) / b
        small = np.log1p(np.minimum(moment, 1e300)) / b
        curve = np.where(b * eps > 30, large, small) * _SLACK + _SMALLEST
        return np.asarray(np.minimum(curve, eps))


@dataclass(frozen=True)
class PureDp(Cost):
    """Any mechanism known only to be epsilon-DP.

    Its worst case is randomised response, whose curve is exact:
    D_a = log(p e^{b eps} + (1 - p) e^{-b eps}) / b, p = 1 / (1 + e^{-eps}), b = a - 1
    (Kairouz, Oh and Viswanath 2017, Theorem 3.4 for the domination).
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", arguments.positive("epsilon", self.epsilon))

    @property
    def pure_epsilon(self) -> float:
        """Epsilon itself."""
        return self.epsilon

    def _curve(self, orders: Orders) -> FloatArray:
        eps, b = self.epsilon, orders.beta
        x = np.minimum(b * eps, 30.0)
        moment = 2 * np.sinh(x / 2) ** 2 + math.tanh(eps / 2) * np.sinh(x)
        large = eps - math.log1p(math.exp(-eps)) / b
        curve = np.where(b * eps > 30, large, np.log1p(moment) / b) * _SLACK + _SMALLEST
        return np.asarray(np.minimum(curve, eps))


@dataclass(frozen=True)
class ApproxDp(PureDp):
    """Any mechanism known only to be (epsilon, delta)-DP.

    With probability 1 - delta it is as good as an epsilon-DP one (Kairouz, Oh and
    Viswanath 2017, Theorem 3.4); its Rényi divergence alone is infinite. The delta is
    drawn from a gate's `approx_delta`.
    """

    failure: float

    def __init__(self, epsilon: float, delta: float) -> None:
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "failure", arguments.open_unit("delta", delta))
        self.__post_init__()

    def __repr__(self) -> str:
        return f"ApproxDp(epsilon={self.epsilon!r}, delta={self.failure!r})"

    @property
    def delta(self) -> float:
        """Probability of the failure event of one run."""
        return self.failure


@dataclass(frozen=True)
class Zcdp(Cost):
    """Zero-concentrated DP: D_a <= xi + rho a (Bun and Steinke 2016, Def. 1.1)."""

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", arguments.non_negative("rho", self.rho))
        object.__setattr__(self, "xi", arguments.non_negative("xi", self.xi))

    def _curve(self, orders: Orders) -> FloatArray:
        return np.asarray((self.xi + self.rho * orders.array) * _SLACK)


@dataclass(frozen=True)
class Curve(Cost):
    """A Rényi curve of the user's own: `rdp[i]` bounds both directions at `orders[i]`.

    At other orders the convexity of (a - 1) D_a gives the bound, below the first order
    the first value, beyond the last order infinity. The values are raised where they
    fall, because a Rényi curve does not.
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def __init__(self, orders: Sequence[float], rdp: Sequence[float]) -> None:
        grid = Orders(orders)
        if isinstance(rdp, str | bytes):
            raise TypeError(f"rdp must be a sequence of numbers, got {rdp!r}")
        values = tuple(arguments.real("rdp", value) for value in rdp)
        if len(values) != len(grid):
            raise ValueError(
                f"rdp must hold one value per order ({len(grid)}), got {len(values)} values"
            )
        if not all(value >= 0 for value in values):
            raise ValueError(f"rdp must be >= 0 at every order, got {min(values)!r}")
        object.__setattr__(self, "orders", grid)
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        return f"Curve(orders={tuple(self.orders)!r}, rdp={self.values!r})"

    def _curve(self, orders: Orders) -> FloatArray:
        known = np.maximum.accumulate(np.array(self.values))
        return interpolate(Orders(self.orders).array, known, orders.array)


def _exp_tail(y: FloatArray) -> FloatArray:
    """e^y - 1 - y, accurate also where y is small; y at most about 30."""
    y = np.minimum(y, 600.0)
    series = np.zeros_like(y)
    for k in range(17, 1, -1):
        series = (series + 1.0) * y / k
    # series is now y/2 (1 + y/3 (1 + ...)): one factor y short of the tail.
    return np.where(np.abs(y) < 0.5, y * series, np.expm1(y) - y)
