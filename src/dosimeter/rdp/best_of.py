# SPDX-License-Identifier: Apache-2.0
"""Private selection: the best of a random number of trials, published alone.

A fixed number of trials would cost almost as much as publishing all of them, because whether the
best one stands out tells of the others. A number that is drawn at random, and never told, hides it
(Liu and Talwar 2019; Papernot and Steinke 2022, arXiv 2110.03620).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import SLACK, SMALLEST, UP, Cost, summed
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray, Orders

_SECOND = Orders([1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 512])
"""Orders at which the trial is looked at a second time, besides those that are asked for."""

_NEXT_TO_NOTHING = 1e-290
_FAR = 600.0
"""The largest log(1/gamma): beyond it gamma leaves the range of a float."""


@dataclass(frozen=True, repr=False)
class BestOf(Cost):
    """The best of K trials, each of them `steps` runs of `cost`; only the best one is published.

    K is drawn from the truncated negative binomial law of shape `eta` with this `mean` (0: the
    logarithmic law, 1: the geometric one); `trials()` draws it. A trial's output is all that may be
    published of it, score and settings included, and the cost of its score is part of its cost.

    Args:
        cost: What one step of a trial costs; without a delta.
        steps: How many of them a trial has.
        mean: How many trials are expected, at least 1.
        eta: The shape, above -1. The smaller, the cheaper, and the more K varies.

    Guarantee:
        With gamma the parameter of the law, D_a of the outcome is at most D_a + log(mean)/(a - 1) +
        (1 + eta) min over b of ((1 - 1/b) D_b + log(1/gamma)/b), D of one trial (Papernot and
        Steinke, Theorem 2; docs/selection.md proves it). K must be secret, its running time too;
        trials are drawn from one law that does not look at the data or at other trials, and
        nothing of the losers is kept, shown or logged.
    """

    cost: Cost
    steps: int
    mean: float
    eta: float = 0.0

    kind: ClassVar[str] = "best_of"
    option: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.cost, Cost):
            raise TypeError(f"cost must be a mechanism such as Gaussian(2.0), got {self.cost!r}")
        if self.cost.neighbours is not self.neighbours:
            raise ValueError(
                f"cost must be for neighbours that {self.neighbours}, got one for "
                f"{self.cost.neighbours}. Say neighbours=... in both."
            )
        if self.cost.delta != 0:
            raise ValueError(
                f"cost must have no delta, got {self.cost}: each of the trials may fail, and "
                "selection prefers those that did. Bound it with a Rényi curve."
            )
        object.__setattr__(self, "steps", arguments.count("steps", self.steps))
        mean, eta = arguments.real("mean", self.mean), arguments.real("eta", self.eta)
        if not 1 <= mean < math.inf:
            raise ValueError(f"mean must be finite and at least 1, got {self.mean!r}")
        if not -1 < eta < math.inf:
            raise ValueError(f"eta must be finite and above -1, got {self.eta!r}")
        object.__setattr__(self, "mean", mean)
        # So near 0 the law is the logarithmic one, and products with eta have no digits.
        object.__setattr__(self, "eta", eta if abs(eta) > _NEXT_TO_NOTHING else 0.0)
        if not _expected(_FAR, self.eta) >= mean:
            raise ValueError(f"mean must be within reach of eta={eta!r}, got {mean!r}")

    @property
    def pure_epsilon(self) -> float:
        """(2 + eta) times that of a trial (Papernot and Steinke, Corollary 3)."""
        return (2 + self.eta) * self.cost.pure_epsilon * self.steps * UP**4

    @property
    def gamma(self) -> float:
        """The parameter of the law of the number of trials; 1 where there is always one."""
        return math.exp(-_distance(self.mean, self.eta))

    @property
    def expected(self) -> float:
        """The mean of the law that is drawn from, rounded up; not below `mean`."""
        return max(self.mean, _expected(_distance(self.mean, self.eta), self.eta)) * (1 + 1e-12)

    def trials(self) -> int:
        """How many trials to run, drawn from the operating system's randomness; tell nobody."""
        t = _distance(self.mean, self.eta)
        miss = -math.expm1(-t)
        # P(K = k + 1) / P(K = k) = (1 - gamma) (k + eta) / (k + 1).
        chance = _expected(t, self.eta) * math.exp(-(1 + self.eta) * t)
        left, k = random.SystemRandom().random(), 1
        while left >= chance and chance > _NEXT_TO_NOTHING:
            left -= chance
            chance *= miss * (k + self.eta) / (k + 1)
            k += 1
        return k

    def _curve(self, orders: Orders) -> FloatArray:
        every = Orders(sorted({*orders, *_SECOND}))
        trial, more = summed([(self.cost, self.steps)], every), 1 + self.eta
        t = _distance(self.mean, self.eta)
        share = 1.0 / every.array
        second = float(np.min((1.0 - share) * trial + t * share))
        # The second order may be 1, where the trial does not matter, or infinity.
        second = more * min(second, t, self.cost.pure_epsilon * self.steps)
        grown = math.log(_expected(t, self.eta)) + 1e-14 if t > 0 else 0.0
        curve = np.minimum(trial + second + grown / every.beta, self.pure_epsilon)
        # A Rényi divergence does not fall, so a bound at one order holds at all below it.
        lowest = np.minimum.accumulate(curve[::-1])[::-1]
        return np.asarray(lowest[np.searchsorted(every.array, orders.array)] * SLACK + SMALLEST)

    def loss(self, direction: Direction) -> None:
        """None: it depends on what is best."""

    def dp_event(self) -> None:
        """None: dp-accounting's takes the second order from the first ones alone."""


@lru_cache(maxsize=1024)
def _distance(mean: float, eta: float) -> float:
    """log(1/gamma) of the law with this mean, by bisection; what is drawn is what is charged."""
    low, high = 0.0, _FAR
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _expected(middle, eta) < mean else (low, middle)
    return high if mean > 1 else 0.0


def _expected(t: float, eta: float) -> float:
    """The mean of the law with gamma = e^-t: eta (1 - gamma) / (gamma (1 - gamma^eta))."""
    if t == 0:
        return 1.0
    whole = -math.expm1(-t)
    if eta * t < -500:
        # 1 - gamma^eta is beyond a float.
        return -eta * whole * math.exp((1 + eta) * t)
    part = t if eta == 0 else -math.expm1(-eta * t) / eta
    return whole / part * math.exp(t)
