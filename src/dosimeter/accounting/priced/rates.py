# SPDX-License-Identifier: Apache-2.0
"""Exchange rates: how many runs of each mechanism a quantum should buy.

A run is worth one part in as many as the budget admits of it alone. That is a guess: what a menu
at such rates is worth, the value table says, so a bad one costs tightness and never the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dosimeter.accounting.priced.items import Item
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


def exchange(cost: Cost, quantum: float, run: float, quanta: float) -> tuple[Item, float]:
    """The bundle at its rate that wastes least, and what it wastes of a budget.

    Rounding to whole runs wastes a share of what is spent on the item, and the end of a run
    leaves half a bundle unused.

    Args:
        cost: The mechanism.
        quantum: What a quantum is worth.
        run: What a run is worth, in the same unit.
        quanta: About how many quanta there will be.
    """
    least = max(1, math.ceil(run / quantum * (1 - 1e-9)))
    offers = [
        Item(cost, max(1, math.floor(price * quantum / run * (1 + 1e-9))), price)
        for price in range(least, least + _OFFERS)
    ]

    def waste(offer: Item) -> float:
        return (offer.per_run * quantum / run - 1) / _IN_USE + offer.price / (2 * quanta)

    best = min(offers, key=waste)
    return best, waste(best)


def items_at(
    costs: Sequence[Cost], runs: Sequence[float], *, quanta: int, grain: float
) -> list[Item]:
    """Items at their rates, rounded with least waste.

    Args:
        costs: The costs, the nominal one first.
        runs: How many runs of each, spent alone, a budget is worth.
        quanta: About how many quanta to divide the budget into.
        grain: Distance of lattice points over epsilon.
    """

    def offers(steps: float) -> tuple[list[Item], float]:
        quantum, parts = steps / runs[0], runs[0] / steps
        made = [
            exchange(cost, quantum, 1 / most, parts) for cost, most in zip(costs, runs, strict=True)
        ]
        # The menu may let an adversary gain about this much, and the last quantum is cut off.
        worth = parts * (1 - (_MIXED if len(costs) > 1 else _ALONE))
        lost = worth % 1 / worth + _ROUGHNESS * grain**2 * parts
        return [item for item, _ in made], sum(waste for _, waste in made) + lost

    nominal = int(runs[0])
    if nominal < quanta:
        return offers(1 / math.ceil(quanta / nominal))[0] if len(costs) > 1 else offers(1.0)[0]
    smallest, largest = -(-nominal * 2 // (3 * quanta)), nominal * 4 // (3 * quanta)
    sizes = range(smallest, largest + 1, max(1, (largest - smallest) // _SIZES))
    return min((offers(float(steps)) for steps in sizes), key=lambda made: made[1])[0]


def lowered(item: Item, factor: float, quanta: float) -> Item:
    """The item with a smaller rate, so a higher price for each run."""
    return exchange(item.cost, factor, item.per_run, quanta)[0]
