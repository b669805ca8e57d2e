"""Lots of runs at small budgets: losses near epsilon on a fine lattice, and jumps far beyond it.

A view with one lattice for both is too coarse for either. Here a loss beyond a few epsilon is only
known to be one, which is post-processing, and whoever sees it stops. Losses far below 0 are lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adversaries.observer import View, convolved, deal, log_ratio
from adversaries.pairs import outputs

_CUTS = 6000
_LOW, _HIGH = -2.0, 2.5
"""Where losses are near, in epsilons."""

_DROPPED = 1e-9


class Lot(NamedTuple):
    """Losses nearby, and the chances of a jump for either of two data sets."""

    near: View
    p: float
    q: float


class Lots:
    """What is seen of any number of runs, the first data set the one with the extra record."""

    def __init__(self, cost, epsilon, delta, step):
        self._low, self._high, self._delta = _LOW * epsilon, _HIGH * epsilon, delta
        p, q, d = outputs(cost, _CUTS)
        far = log_ratio(p, q, d) > self._high
        near = deal(p[~far], q[~far], d[~far], step, 0.0)
        self._powers = [self._parted(near, float(p[far].sum()), float(q[far].sum()))]

    def of(self, count):
        """The lot of `count` runs."""
        total = None
        for place in range(count.bit_length()):
            if place == len(self._powers):
                self._powers.append(self._both(self._powers[-1], self._powers[-1]))
            if count >> place & 1:
                power = self._powers[place]
                total = power if total is None else self._both(total, power)
        return total

    def _both(self, one, two):
        """One lot, and if it shows no jump another: a jump of either is all that is seen."""
        p = convolved(one.near.p, two.near.p, self._delta)
        near = View(one.near.step, one.near.low + two.near.low, p)
        stays = float(one.near.p @ np.exp(-one.near.losses))
        return self._parted(near, one.p + float(one.near.p.sum()) * two.p, one.q + stays * two.q)

    def _parted(self, view, p, q):
        """The lot of what is nearby, and of jumps to which what has gone too far is added."""
        far = view.losses > self._high
        p += float(view.p[far].sum())
        q += float(view.p[far] @ np.exp(-view.losses[far]))
        first, last = np.searchsorted(view.losses, [self._low, self._high]).tolist()
        near = View(view.step, view.low + first * view.step, view.p[first:last])
        return Lot(near.trimmed(_DROPPED * self._delta), p, q)
