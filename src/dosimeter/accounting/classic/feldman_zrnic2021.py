# SPDX-License-Identifier: Apache-2.0
"""Feldman and Zrnic (2021), "Individual Privacy Accounting via a Rényi Filter".

Their filter adds Rényi costs at one order fixed beforehand and is sound under full
adaptivity. Their odometer stacks such filters: the reading is the number of filters
opened times their size, for a number of filters fixed beforehand.

Checked: the fixed-order filter follows from the supermartingale argument in
docs/guarantees.md with all weight on one order. The statement and number of the odometer
(Proposition 5.2) are as Lécuyer (2021), Section 4.2, quotes them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.classic.rule import Conversion, CurveRule, Validity
from dosimeter.rdp import Cost
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import not_negative


class FixedOrderFilter(CurveRule):
    """Refuses what would take the Rényi sum at one fixed order past its budget.

    Guarantee:
        (epsilon, delta)-DP under full adaptivity (Feldman and Zrnic 2021, fixed-order
        Rényi filter; Lécuyer 2021, Theorem 1), for an order chosen before the first spend.
    """

    validity: ClassVar[Validity] = Validity.FILTER

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        order: float,
        conversion: Conversion = Conversion.TIGHT,
    ) -> None:
        super().__init__(orders=[order], delta=delta, limit=epsilon)
        self._conversion = conversion

    def _reading(self, sums: FloatArray) -> float:
        return not_negative(
            float(self._conversion.epsilon(self._orders.array, sums, self._delta)[0])
        )


class StackedOdometer(CurveRule):
    """Stacks filters of one size at one order; reads the size of those opened.

    Guarantee:
        For a number of filters k fixed beforehand, everything run until the k-th is full
        costs at most k times the size (Proposition 5.2). A reading at a moment chosen by
        looking at the outputs is not covered.
    """

    validity: ClassVar[Validity] = Validity.FIXED

    def __init__(
        self,
        delta: float,
        *,
        order: float,
        size: float,
        conversion: Conversion = Conversion.TIGHT,
    ) -> None:
        super().__init__(orders=[order], delta=delta)
        self._size = arguments.positive("size", size)
        self._conversion = conversion
        self._opened = 0
        self._filled = Fraction(self._size)

    @property
    def epsilon(self) -> float:
        """Epsilon of all filters opened so far."""
        if not self._opened:
            return 0.0
        rdp = np.array([self._opened * self._size])
        return not_negative(
            float(self._conversion.epsilon(self._orders.array, rdp, self._delta)[0])
        )

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether one run fits into an empty filter; changes nothing."""
        self._checked(cost, count)
        return bool(self._features(cost)[0] <= self._size)

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Spends as if run by run, opening a filter whenever the last has no room left."""
        self._require(cost, count, f"of size {self._size!r} cannot hold one run of it")
        one = Fraction(float(self._features(cost)[0]))
        if one == 0:
            return
        fits = min(count, int((Fraction(self._size) - self._filled) // one))
        self._filled += fits * one
        left, each = count - fits, int(Fraction(self._size) // one)
        if left:
            self._opened += -(-left // each)
            self._filled = ((left - 1) % each + 1) * one

    def _reading(self, sums: FloatArray) -> float:
        raise NotImplementedError("a stack of filters is not a function of the sum")
