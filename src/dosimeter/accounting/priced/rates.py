# SPDX-License-Identifier: Apache-2.0
"""Exchange rates: how many runs of each mechanism a quantum should buy.

A rate is a guess from the Rényi costs at the budget's best order. Whatever it is, the value
table says what it is worth, so a bad guess costs tightness and never the guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.rdp import Cost

_WASTE = 0.012
"""What rounding a rate to whole runs and whole quanta may lose, if a small bundle can do it."""

_LARGER_BUNDLES = 8


@dataclass(frozen=True)
class Item:
    """`steps` runs of `cost` are bought together for `price` quanta."""

    cost: Cost
    steps: int
    price: int

    @property
    def per_run(self) -> float:
        """Quanta that one run costs if the whole bundle is used."""
        return self.price / self.steps


@dataclass(frozen=True)
class Scale:
    """The order at which costs are compared, and what the budget is worth there.

    Attributes:
        order: The order at which the nominal mechanism goes furthest.
        budget: The Rényi budget at that order, under the tight conversion.
    """

    order: float
    budget: float

    @classmethod
    def of(cls, nominal: Cost, epsilon: float, delta: float) -> Scale:
        """The scale of a budget (epsilon, delta) spent on one mechanism."""
        a = DEFAULT_ORDERS.array
        budget = epsilon + np.log(delta * a) / (a - 1) - np.log1p(-1 / a)
        with np.errstate(divide="ignore", invalid="ignore"):
            runs = budget / nominal.rdp(DEFAULT_ORDERS)
        best = int(np.argmax(np.nan_to_num(runs, nan=-math.inf)))
        return cls(float(a[best]), max(float(budget[best]), 0.05 * epsilon))

    def rdp(self, cost: Cost) -> float:
        """The Rényi cost of one run at the order."""
        return max(float(cost.rdp([self.order])[0]), 1e-300)

    def runs(self, cost: Cost) -> float:
        """About how many runs the budget is worth, at least one."""
        return min(max(1.0, self.budget / self.rdp(cost)), 1e12)


def exchange(cost: Cost, quantum: float, rdp: float) -> Item:
    """An item at the Rényi rate: the smallest bundle that rounding hardly makes dearer."""
    least = max(1, math.ceil(rdp / quantum * (1 - 1e-9)))
    offers = [
        Item(cost, max(1, math.floor(price * quantum / rdp * (1 + 1e-9))), price)
        for price in range(least, least + _LARGER_BUNDLES)
    ]
    fair = rdp / quantum
    good = (offer for offer in offers if offer.per_run <= fair * (1 + _WASTE))
    return next(good, min(offers, key=lambda offer: offer.per_run))
