# SPDX-License-Identifier: Apache-2.0
"""How much of a filter is used up, by its own measure.

Epsilon is not additive: the first query of many may take a quarter of it, and the seventeen after
it the rest. What does add up are Rényi costs, the probability of what they leave out, and the
quanta of a menu. So the share that is used up is one over how many times everything spent so far
would fit into the filter, or the share of the quanta that are sold; whichever potential has more
left decides.
"""

from __future__ import annotations

import math

from dosimeter.accounting.account import Account
from dosimeter.accounting.sums import Sums

_MOST = 2.0**60
_FINE = 1e-9


def spent_share(account: Account) -> float:
    """The share of a filter that is used up, from 0 to 1, rounded up; 0 for an odometer.

    After n runs of one cost, with room for m more, it is about n / (n + m).
    """
    if account.limit == math.inf:
        return 0.0
    shares = [_of_sums(account.sums, account.limit)]
    if account.quanta is not None:
        shares.append(1 - account.quanta.left / account.quanta.menu.quanta)
    return min(1.0, *shares)


def share_of(gate: object) -> float | None:
    """The share of any gate that is used up; None if it has no limit, or no such measure."""
    if not getattr(gate, "limit", math.inf) < math.inf:
        return None
    share = getattr(gate, "spent_share", None)
    return None if share is None else float(share)


def _of_sums(sums: Sums, limit: float) -> float:
    """One over the greatest multiple of the sums that is within the limit."""
    tally = sums.tally
    # Once nothing more is left out, whole curves are charged and only they count.
    cap = math.inf if sums.cutting is None or tally.cut == math.inf else sums.cutting.cap

    def within(times: float) -> bool:
        if not times * tally.cut <= cap:
            return False
        return min(sums.mixture.epsilon(times * tally.rdp), times * tally.pure_epsilon) <= limit

    if not tally.rdp.any():
        return 0.0
    if within(_MOST):
        return 1 / _MOST
    low, high = 1.0, 2.0
    if not within(low):
        return 1.0
    while within(high):
        low, high = high, 2 * high
    while high - low > _FINE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return 1 / low
