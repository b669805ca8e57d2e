# SPDX-License-Identifier: Apache-2.0
"""Composition with parameters fixed beforehand: the yardsticks.

Basic and advanced composition of (epsilon_i, delta_i), Rényi composition with either
conversion, and the privacy loss distribution (PLD), which is exact up to discretisation.
Each holds only if all costs and their number were fixed before the first run; basic
composition also holds as a filter. PLD and its conversion come from dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.classic.rule import (
    Conversion,
    CurveRule,
    EpsilonRule,
    Rule,
    Validity,
    checked,
)
from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.rdp import Cost, Gaussian, Laplace, SampledGaussian
from dosimeter.rdp.orders import FloatArray


class BasicComposition(EpsilonRule):
    """Epsilons and deltas add up (Dwork and Roth 2014, Theorem 3.16); sound as a filter."""

    validity: ClassVar[Validity] = Validity.FILTER

    def __init__(self, epsilon: float = math.inf, *, delta: float) -> None:
        super().__init__(delta=delta, limit=epsilon)

    def _reading(self, sums: FloatArray) -> float:
        return float(sums[0]) if sums[3] <= self._delta else math.inf


class AdvancedComposition(EpsilonRule):
    """sqrt(2 log(1/d') sum e^2) + sum e (exp(e) - 1), d' what the delta_i leave of delta.

    Dwork, Rothblum and Vadhan (2010), Theorem III.3, in the form for unequal parameters
    that Lécuyer (2021), Section 2.1, states.
    """

    validity: ClassVar[Validity] = Validity.FIXED

    def __init__(self, *, delta: float) -> None:
        super().__init__(delta=delta)

    def _reading(self, sums: FloatArray) -> float:
        left = self._delta - float(sums[3])
        if not (left > 0 and sums[2] < math.inf):
            return math.inf
        return math.sqrt(2 * math.log(1 / left) * float(sums[1])) + float(sums[2])


class RdpComposition(CurveRule):
    """The best order after the fact; what Opacus and dp-accounting report as epsilon."""

    validity: ClassVar[Validity] = Validity.FIXED

    def __init__(
        self,
        *,
        delta: float,
        orders: Iterable[float] = DEFAULT_ORDERS,
        conversion: Conversion = Conversion.TIGHT,
    ) -> None:
        super().__init__(orders=orders, delta=delta)
        self._conversion = conversion

    def _reading(self, sums: FloatArray) -> float:
        best = self._conversion.epsilon(self._orders.array, sums, self._delta).min()
        return max(0.0, float(best))


class PldComposition(Rule):
    """The privacy loss distribution of the whole sequence, from dp-accounting.

    Takes Gaussian, SampledGaussian, Laplace and Event costs. Each reading composes the
    whole history anew, which takes a second or so.
    """

    validity: ClassVar[Validity] = Validity.FIXED

    def __init__(self, *, delta: float, discretization: float = 1e-4) -> None:
        super().__init__(delta=delta)
        self._discretization = arguments.positive("discretization", discretization)
        self._spent: dict[Cost, int] = {}

    @property
    def epsilon(self) -> float:
        """Epsilon of everything spent so far, pessimistic."""
        from dp_accounting import pld

        accountant = pld.PLDAccountant(value_discretization_interval=self._discretization)
        for cost, count in self._spent.items():
            accountant.compose(_as_event(cost), count)
        return float(accountant.get_epsilon(self._delta)) if self._spent else 0.0

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether dp-accounting has a distribution for this cost."""
        checked(cost, count)
        return isinstance(cost, Gaussian | SampledGaussian | Laplace) or hasattr(cost, "event")

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Adds `count` runs to the history."""
        self._require(cost, count, "knows no privacy loss distribution of it")
        self._spent[cost] = self._spent.get(cost, 0) + count

    def _features(self, cost: Cost) -> FloatArray:
        return np.zeros(1)

    def _reading(self, sums: FloatArray) -> float:
        return self.epsilon


def _as_event(cost: Cost) -> object:
    import dp_accounting

    match cost:
        case Gaussian():
            return dp_accounting.GaussianDpEvent(cost.noise_multiplier)
        case Laplace():
            return dp_accounting.LaplaceDpEvent(cost.scale)
        case SampledGaussian():
            return dp_accounting.PoissonSampledDpEvent(
                cost.sample_rate, dp_accounting.GaussianDpEvent(cost.noise_multiplier)
            )
    return getattr(cost, "event")  # noqa: B009 - an Event, whose module is not loaded here
