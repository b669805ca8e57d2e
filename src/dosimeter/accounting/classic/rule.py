# SPDX-License-Identifier: Apache-2.0
"""Rule: a published composition rule as a gate, for comparison.

A rule adds up some features of each cost and reads an epsilon off the sums. Rules are
here to be measured against and to match a paper's figures; they carry no lock, no upward
rounding and no saved state. Use Filter and Odometer to protect data.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.tally import largest
from dosimeter.errors import BudgetExceeded
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.orders import FloatArray


class Validity(enum.Enum):
    """When the epsilon of a rule holds."""

    FIXED = "holds if all costs and their number were fixed beforehand"
    FILTER = "holds for adaptively chosen costs up to a limit fixed beforehand"
    ANYTIME = "holds for adaptively chosen costs at any stopping time"
    UNSOUND = "does not hold for adaptively chosen costs"


class Conversion(enum.Enum):
    """How Rényi DP at one order is turned into (epsilon, delta)-DP."""

    TAIL = "Mironov 2017, Proposition 3"
    TIGHT = "Canonne, Kamath and Steinke 2020, Proposition 12"

    def epsilon(self, orders: FloatArray, rdp: FloatArray, delta: float) -> FloatArray:
        """Epsilon implied by `rdp` at each order."""
        if self is Conversion.TAIL:
            return np.asarray(rdp + math.log(1 / delta) / (orders - 1))
        return np.asarray(rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))


class Rule(ABC):
    """A gate whose epsilon is a function of summed features of the costs."""

    validity: ClassVar[Validity]

    def __init__(self, *, delta: float, limit: float = math.inf) -> None:
        self._delta = arguments.open_unit("delta", delta)
        self._limit = limit if limit == math.inf else arguments.positive("epsilon", limit)
        self._sums: FloatArray | float = 0.0
        self._neighbours: Neighbours | None = None

    @property
    def delta(self) -> float:
        """The delta of every reading."""
        return self._delta

    @property
    def limit(self) -> float:
        """The epsilon not to be passed; infinite where the rule only reads."""
        return self._limit

    @property
    def epsilon(self) -> float:
        """Epsilon that the rule reports for what was spent."""
        return 0.0 if isinstance(self._sums, float) else self._reading(self._sums)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether the rule would accept a spend now; changes nothing."""
        number = self._checked(cost, count)
        return self._reading(self._sums + number * self._features(cost)) <= self._limit

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Spends, or raises BudgetExceeded and changes nothing."""
        self._require(cost, count, "would pass its limit")
        self._sums = self._sums + count * self._features(cost)

    def _require(self, cost: Cost, count: int, refusal: str) -> None:
        """Raises BudgetExceeded unless the rule admits a spend; its relation is then the rule's."""
        if self.admits(cost, count):
            self._neighbours = cost.neighbours
            return
        raise BudgetExceeded(
            cost=cost,
            count=count,
            spent=self.epsilon,
            limit=self._limit,
            affordable=largest(lambda number: self.admits(cost, number)),
            reason=f"{type(self).__name__} {refusal}",
        )

    def _checked(self, cost: Cost, count: int) -> int:
        """The count, if both are such as a gate takes, and of the relation of what was spent."""
        if not isinstance(cost, Cost):
            raise TypeError(f"cost must be a mechanism such as dosimeter.Gaussian, got {cost!r}")
        if self._neighbours not in (None, cost.neighbours):
            raise ValueError(
                f"cost must be for neighbours that {self._neighbours}, as what was spent before, "
                f"got one for {cost.neighbours}: {cost}; spend it from a gate of its own"
            )
        return arguments.count("count", count)

    @abstractmethod
    def _features(self, cost: Cost) -> FloatArray:
        """What one run of `cost` adds to the sums."""

    @abstractmethod
    def _reading(self, sums: FloatArray) -> float:
        """Epsilon as a function of the sums."""


class CurveRule(Rule):
    """A rule over summed Rényi curves; a cost that may fail has none."""

    def __init__(self, *, orders: Iterable[float], delta: float, limit: float = math.inf) -> None:
        super().__init__(delta=delta, limit=limit)
        self._orders = Orders(orders)

    @property
    def orders(self) -> Orders:
        """The grid of orders."""
        return self._orders

    def _features(self, cost: Cost) -> FloatArray:
        return cost.rdp(self._orders) if cost.delta == 0 else np.full(len(self._orders), math.inf)


class EpsilonRule(Rule):
    """A rule over the (epsilon_i, delta_i) of each cost; a cost without one counts as infinite."""

    def _features(self, cost: Cost) -> FloatArray:
        """Sums of e, e^2, e (exp(e) - 1), and delta."""
        e = cost.pure_epsilon
        growth = e * math.expm1(e) if e < 700 else math.inf
        return np.array([e, e * e, growth, cost.delta])
