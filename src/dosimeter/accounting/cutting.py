# SPDX-License-Identifier: Apache-2.0
"""Cutting: which outputs a mixture leaves out, at the price of their probability.

A share of delta is set aside for outputs so rare that they are left out of the Rényi curves of
mechanisms that can tell (`Cost.cut`): Theorem 8 in docs/guarantees.md. What is left out of a run
depends on the run alone, in proportion to its part of what the budget admits, so that both are used
up together. The sum is capped; once it is, whole curves are charged for good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.weights import budget_centre
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.cost import Cut
from dosimeter.rdp.gaussian import widest_gaussian

FILTER_SHARE = 0.05
ODOMETER_SHARE = 0.01
"""The usual shares of delta. A filter's costs it 0.3 % where nothing is gained; an odometer, which
does not know how much it will see, gains less from more."""

_MOST_SHARE = 0.2
_BELOW = 1.0 - 1e-15
_ADMITTED = 0.9
"""A mixture admits about this part of the squared parameter that the best filter would."""

_ODOMETER_SCALE = 4.0
"""Squared parameter at which an odometer's share is used up; beyond, only low orders count."""

_TIMES_CENTRE = 4.0
_SECOND = Orders([2.0])


@dataclass(frozen=True, eq=False)
class Cutting:
    """How much may be left out; one and the same for equal budgets, so that it hashes at once.

    Attributes:
        cap: The sum of probabilities never to be passed.
        scale: The sum of E r^2 - 1, r the likelihood ratio of a run, at which it is reached.
        highest: The order up to which curves are cut; those beyond do not matter to the budget.
    """

    cap: float
    scale: float
    highest: float

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(share: float, delta: float, limit: float) -> Cutting | None:
        """The cutting of a share of delta under a limit on epsilon; None if there is no share."""
        if not share:
            return None
        cap = delta * share * _BELOW
        if limit == math.inf:
            return Cutting(cap, _ODOMETER_SCALE, math.inf)
        highest = 1.0 + _TIMES_CENTRE * budget_centre(limit, delta)
        return Cutting(cap, _ADMITTED * widest_gaussian(limit, delta), highest)

    def cut(self, cost: Cost, orders: Orders) -> Cut | None:
        """The cost of a run without its rarest outputs; None if the whole curve is to be used."""
        part = math.expm1(min(cost.rdp(_SECOND).item(), 1e2)) / self.scale
        chance = self.cap * part
        some = _up_to(self.highest, orders)
        cut = cost.cut(some, chance) if part < 1 and some is not None else None
        if cut is None or some is None:
            return None
        if not (np.all(cut.rdp >= 0) and 0 <= cut.chance <= chance):
            raise ValueError(f"{cost} must be cut at costs >= 0 and within {chance!r}, got {cut}")
        rdp = cost.rdp(orders).copy()
        np.minimum(cut.rdp, rdp[: len(some)], out=rdp[: len(some)])
        return Cut(rdp, cut.chance)


@lru_cache(maxsize=1024)
def _up_to(highest: float, orders: Orders) -> Orders | None:
    some = [order for order in orders if order <= highest]
    return Orders(some) if some else None


def checked_share(share: float) -> float:
    """A share of delta that may be set aside."""
    share = arguments.non_negative("cut", share)
    if not share <= _MOST_SHARE:
        raise ValueError(f"cut must be a share of delta of at most {_MOST_SHARE}, got {share!r}")
    return share


def kept_share(share: float) -> float:
    """What the mixture keeps; the sum of both is below 1 whatever rounding does."""
    return (1.0 - share) * _BELOW if share else 1.0
