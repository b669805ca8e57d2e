# SPDX-License-Identifier: Apache-2.0
"""Exchange rates: how many runs of each mechanism a quantum should buy.

A rate is a guess from the Rényi costs at the budget's best order. Whatever it is, the value
table says what it is worth, so a bad guess costs tightness and never the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.rdp import Cost

_IN_USE = 4
"""How many items a run is expected to use: each leaves part of a bundle unused at the end."""

_OFFERS = 10
_SIZES = 5000
"""How many sizes of a quantum are tried, at most about."""

_MIXED = 0.006
_ALONE = 0.0005
_ROUGHNESS = 4.0
"""What the lattice adds to the variance of each quantum, in these units."""


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


def exchange(cost: Cost, quantum: float, rdp: float, quanta: float) -> tuple[Item, float]:
    """The bundle at the Rényi rate that wastes least, and what it wastes of a budget.

    Rounding to whole runs wastes a share of what is spent on the item, and the end of a run
    leaves half a bundle unused.
    """
    least = max(1, math.ceil(rdp / quantum * (1 - 1e-9)))
    offers = [
        Item(cost, max(1, math.floor(price * quantum / rdp * (1 + 1e-9))), price)
        for price in range(least, least + _OFFERS)
    ]

    def waste(offer: Item) -> float:
        return (offer.per_run * quantum / rdp - 1) / _IN_USE + offer.price / (2 * quanta)

    best = min(offers, key=waste)
    return best, waste(best)


def items_at(
    costs: Sequence[Cost], scale: Scale, runs: int, *, quanta: int, grain: float
) -> list[Item]:
    """Items at the Rényi rates, rounded with least waste.

    Args:
        costs: The costs, the nominal one first.
        scale: Where their rates come from.
        runs: How many runs of the nominal one the budget is worth.
        quanta: About how many quanta to divide the budget into.
        grain: Distance of lattice points over epsilon.
    """

    def offers(steps: float) -> tuple[list[Item], float]:
        quantum, parts = steps * scale.rdp(costs[0]), runs / steps
        made = [exchange(cost, quantum, scale.rdp(cost), parts) for cost in costs]
        # The menu may let an adversary gain about this much, and the last quantum is cut off.
        worth = parts * (1 - (_MIXED if len(costs) > 1 else _ALONE))
        lost = worth % 1 / worth + _ROUGHNESS * grain**2 * parts
        return [item for item, _ in made], sum(waste for _, waste in made) + lost

    if runs < quanta:
        return offers(1 / math.ceil(quanta / runs))[0] if len(costs) > 1 else offers(1.0)[0]
    smallest, largest = max(1, runs * 2 // (3 * quanta)), runs * 4 // (3 * quanta)
    sizes = range(smallest, largest + 1, max(1, (largest - smallest) // _SIZES))
    return min((offers(float(steps)) for steps in sizes), key=lambda made: made[1])[0]


def lowered(item: Item, factor: float, quanta: float) -> Item:
    """The item with a smaller rate, so a higher price for each run."""
    return exchange(item.cost, factor, item.per_run, quanta)[0]
