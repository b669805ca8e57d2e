# SPDX-License-Identifier: Apache-2.0
"""Mechanisms of which nothing is known but an epsilon, or an epsilon and a delta."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import SLACK, SMALLEST, Cost, Option
from dosimeter.rdp.loss import Atoms, Direction
from dosimeter.rdp.orders import FloatArray, Orders


@dataclass(frozen=True, repr=False)
class PureDp(Cost):
    """Any mechanism known only to be epsilon-DP.

    Its worst case is randomised response, whose curve is exact:
    D_a = log(p e^{b eps} + (1 - p) e^{-b eps}) / b, p = 1 / (1 + e^{-eps}), b = a - 1
    (Kairouz, Oh and Viswanath 2017, Theorem 3.4 for the domination).
    """

    epsilon: float

    kind: ClassVar[str] = "pure_dp"
    option: ClassVar[Option] = Option("pure", "EPSILON", "A pure epsilon.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", arguments.positive("epsilon", self.epsilon))

    @property
    def pure_epsilon(self) -> float:
        """Epsilon itself."""
        return self.epsilon

    def _curve(self, orders: Orders) -> FloatArray:
        eps, b = self.epsilon, orders.beta
        x = np.minimum(b * eps, 30.0)
        # A sum of positive terms, so that a small cost keeps its relative accuracy.
        moment = 2 * np.sinh(x / 2) ** 2 + math.tanh(eps / 2) * np.sinh(x)
        large = eps - math.log1p(math.exp(-eps)) / b
        curve = np.where(b * eps > 30, large, np.log1p(moment) / b) * SLACK + SMALLEST
        return np.asarray(np.minimum(curve, eps))

    def loss(self, direction: Direction) -> Atoms | None:
        """That of randomised response, the same in both directions."""
        likely = 1.0 / (1.0 + math.exp(-self.epsilon))
        unlikely = likely * math.exp(-self.epsilon)
        outcomes = (likely, unlikely, self.epsilon), (unlikely, likely, -self.epsilon)
        return Atoms(-self.epsilon, self.epsilon, self.epsilon, outcomes)

    def dp_event(self) -> None:
        """None: dp-accounting's randomised response is for one relation and forgets counts."""


@dataclass(frozen=True, repr=False)
class ApproxDp(PureDp):
    """Any mechanism known only to be (epsilon, delta)-DP.

    With probability 1 - delta it is as good as an epsilon-DP one (Kairouz, Oh and
    Viswanath 2017, Theorem 3.4); its Rényi divergence alone is infinite. The delta is
    drawn from a gate's `approx_delta`. With a delta of 0 it is PureDp under another name.
    """

    delta: float = field()

    kind: ClassVar[str] = "approx_dp"
    option: ClassVar[Option] = Option("approx", "EPSILON,DELTA", "An (epsilon, delta).")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delta", arguments.half_open_unit("delta", self.delta))

    def loss(self, direction: Direction) -> Atoms | None:
        """None, but for a delta of 0: a failure is paid for by `approx_delta`, not by a menu."""
        return None if self.delta else super().loss(direction)

    def dp_event(self) -> None:
        """None: dp-accounting has no such event."""
