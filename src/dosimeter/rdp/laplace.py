# SPDX-License-Identifier: Apache-2.0
"""The Laplace mechanism.

Its curve is written as log1p of a sum of positive terms, so that a small cost keeps its relative
accuracy instead of drowning in cancellation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import SLACK, SMALLEST, Cost, Option
from dosimeter.rdp.loss import CLOSED_ERROR, Cells, Direction, Loss
from dosimeter.rdp.orders import FloatArray, Orders

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, repr=False)
class Laplace(Cost):
    """The Laplace mechanism; `scale` is the noise scale over sensitivity.

    The discrete Laplace costs more: charge it as PureDp(1 / scale).

    D_a = log(a e^{be} + b e^{-ae}) - log(2a - 1), over b, with b = a - 1 and e = 1/scale
    (Mironov 2017, Prop. 6).
    """

    scale: float

    kind: ClassVar[str] = "laplace"
    option: ClassVar[Option] = Option("laplace", "SCALE", "Laplace scale over sensitivity.")

    def __post_init__(self) -> None:
        super().__post_init__()
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
        curve = np.where(b * eps > 30, large, small) * SLACK + SMALLEST
        return np.asarray(np.minimum(curve, eps))

    def loss(self, direction: Direction) -> LaplaceLoss:
        """The same in both directions."""
        return LaplaceLoss(-self.pure_epsilon, self.pure_epsilon, self.pure_epsilon)

    def dp_event(self) -> dp_accounting.DpEvent:
        """A LaplaceDpEvent."""
        import dp_accounting

        return dp_accounting.LaplaceDpEvent(self.scale)


class LaplaceLoss(Loss):
    """P = Laplace at 0, Q = Laplace at 1: atoms at both ends, an exponential between."""

    def cells(self, cuts: FloatArray) -> Cells:
        """Differences of exponentials, and the atoms."""
        end = self.high
        bounds = np.clip(np.append(cuts, end), -end, end)
        bounds[0] = -end
        width = -0.5 * np.expm1(-np.diff(bounds) / 2)
        p = np.exp((bounds[1:] - end) / 2) * width
        q = np.exp(-(bounds[:-1] + end) / 2) * width
        # The last place is for what lies above the last cut.
        top = -1 if cuts[-1] < end else -2
        p[top] += 0.5
        q[top] += 0.5 * math.exp(-end)
        p[0] += 0.5 * math.exp(-end)
        q[0] += 0.5
        beyond = float(p[-1]), float(q[-1]), CLOSED_ERROR * float(p[-1])
        return Cells(p[:-1], q[:-1], CLOSED_ERROR * p[:-1], beyond)


def _exp_tail(y: FloatArray) -> FloatArray:
    """e^y - 1 - y, accurate also where y is small; y at most about 30."""
    y = np.minimum(y, 600.0)
    series = np.zeros_like(y)
    for k in range(17, 1, -1):
        series = (series + 1.0) * y / k
    # series is now y/2 (1 + y/3 (1 + ...)): one factor y short of the tail.
    return np.where(np.abs(y) < 0.5, y * series, np.expm1(y) - y)
