# SPDX-License-Identifier: Apache-2.0
"""Lécuyer (2021), "Practical Privacy Filters and Odometers with Rényi Differential Privacy".

The single-order filter (Theorem 1) is sound. The filter over the Rényi curve (its
Corollary 1) is not: the order that is within budget may depend on the path, and the
proof needs one order for all paths; `dosimeter attack` plays the counterexample. The
odometer (Theorem 2 with the union bound over orders of its Section 4.4) is sound
one-sided. Formulas were read from the paper's text.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.classic.feldman_zrnic2021 import FixedOrderFilter
from dosimeter.accounting.classic.rule import Conversion, CurveRule, Validity
from dosimeter.errors import UnsoundRuleWarning
from dosimeter.rdp import Orders
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import not_negative

PAPER_ORDERS = Orders([*(1.25 + 0.25 * i for i in range(36)), 16.0, 32.0])
"""The 38 orders of the paper's Section 4.5: 1.25 to 10 by 0.25, 16 and 32."""


class SingleOrderFilter(FixedOrderFilter):
    """Theorem 1 with the paper's conversion, its Equation 2."""

    def __init__(self, epsilon: float, delta: float, *, order: float) -> None:
        super().__init__(epsilon, delta, order=order, conversion=Conversion.TAIL)


class CurveFilter(CurveRule):
    """Corollary 1: refuses only what takes *every* order past its budget. Unsound.

    Warns UnsoundRuleWarning when made: an adaptive sequence can reach twice the delta
    with two orders, and more with more.
    """

    validity: ClassVar[Validity] = Validity.UNSOUND

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        orders: Iterable[float] = PAPER_ORDERS,
        conversion: Conversion = Conversion.TAIL,
    ) -> None:
        super().__init__(orders=orders, delta=delta, limit=epsilon)
        self._conversion = conversion
        if len(self._orders) > 1:
            warnings.warn(
                "CurveFilter does not keep (epsilon, delta)-DP under adaptive spending: the "
                "order within budget may depend on the path. Use dosimeter.Filter instead.",
                UnsoundRuleWarning,
                stacklevel=2,
            )

    def _reading(self, sums: FloatArray) -> float:
        epsilons = self._conversion.epsilon(self._orders.array, sums, self._delta)
        return not_negative(float(epsilons.min()))


class LecuyerOdometer(CurveRule):
    """Theorem 2 over the curve: doubling filters at each order, union bound over orders.

    Args:
        delta: The delta of every reading.
        orders: The orders; the paper's 38 by default.
        first_filter: Size of the first filter, as a multiple of the paper's choice
            log(2 |orders| / delta) / (order - 1).

    Guarantee:
        Anytime-valid, one-sided: with probability 1 - delta the privacy loss is at most
        the reading (sum over f of 1/(2 f^2) is 0.822). The paper's two-sided statement
        needs a factor of up to 1 + e^-epsilon on delta.
    """

    validity: ClassVar[Validity] = Validity.ANYTIME

    def __init__(
        self,
        delta: float,
        *,
        orders: Iterable[float] = PAPER_ORDERS,
        first_filter: float = 1.0,
    ) -> None:
        super().__init__(orders=orders, delta=delta)
        scale = arguments.positive("first_filter", first_filter)
        self._first = scale * math.log(2 * len(self._orders) / self._delta) / self._orders.beta

    def _reading(self, sums: FloatArray) -> float:
        with np.errstate(divide="ignore"):
            doublings = np.maximum(0.0, np.ceil(np.log2(sums / self._first)))
        size = self._first * 2.0**doublings
        # Rounding of log2 may name a filter one too small.
        doublings = np.where(size < sums, doublings + 1, doublings)
        size = self._first * 2.0**doublings
        union = np.log(len(self._orders) * 2 * (doublings + 1) ** 2 / self._delta)
        return float((size + union / self._orders.beta).min())
