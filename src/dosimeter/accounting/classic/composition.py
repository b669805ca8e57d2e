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
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.classic.rule import (
    Conversion,
    CurveRule,
    EpsilonRule,
    Rule,
    Validity,
)
from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.rdp import Cost
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import not_negative

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_LARGEST = 700.0
"""Epsilons whose exponential dp-accounting can write as a float."""

_COARSE = 0.1
"""Intervals that are enough to say whether there is a distribution."""


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
        return not_negative(float(best))


class PldComposition(Rule):
    """The privacy loss distribution of the whole sequence, from dp-accounting.

    Each reading composes the whole history anew, which takes a second or so.
    """

    validity: ClassVar[Validity] = Validity.FIXED

    def __init__(self, *, delta: float, discretization: float = 1e-4) -> None:
        super().__init__(delta=delta)
        self._discretization = arguments.positive("discretization", discretization)
        self._spent: dict[Cost, int] = {}

    @property
    def epsilon(self) -> float:
        """Epsilon of everything spent so far, pessimistic."""
        total: PrivacyLossDistribution | None = None
        for cost, count in self._spent.items():
            more = distribution(cost, self._discretization).self_compose(count)
            total = more if total is None else total.compose(more)
        return 0.0 if total is None else float(total.get_epsilon_for_delta(self._delta))

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether dp-accounting has a distribution for this cost."""
        self._checked(cost, count)
        try:
            distribution(cost, _COARSE)
        except ValueError:
            return False
        return True

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Adds `count` runs to the history, or raises BudgetExceeded and changes nothing."""
        self._require(cost, count, "knows no privacy loss distribution of it")
        self._spent[cost] = self._spent.get(cost, 0) + count

    def _features(self, cost: Cost) -> FloatArray:
        return np.zeros(1)

    def _reading(self, sums: FloatArray) -> float:
        return self.epsilon


def distribution(cost: Cost, width: float) -> PrivacyLossDistribution:
    """dp-accounting's loss distribution of one run, pessimistic, in intervals of some width.

    Raises:
        ValueError: The cost has no event of dp-accounting's with a distribution, and no (epsilon,
            delta) either, of which the worst case would do.
    """
    from dp_accounting import pld
    from dp_accounting.pld import common, privacy_loss_distribution

    accountant = pld.PLDAccountant(value_discretization_interval=width)
    event = cost.dp_event()
    if event is not None and accountant.supports(event):
        # What is not private at all is infinite at every delta, and not in its distribution.
        if accountant.compose(event).get_epsilon(0.5) < math.inf:
            return accountant._pld
    elif cost.pure_epsilon < _LARGEST:
        known = common.DifferentialPrivacyParameters(cost.pure_epsilon, cost.delta)
        return privacy_loss_distribution.from_privacy_parameters(known, width)
    raise ValueError(f"schedule must hold costs with a known loss distribution, got {cost}")
