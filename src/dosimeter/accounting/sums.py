# SPDX-License-Identifier: Apache-2.0
"""Sums: the Rényi mixture at the costs summed so far, as a potential.

Most decisions need only a plane that lies above epsilon (one dot product); the exact solve is
called when the plane can no longer tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from dosimeter.accounting.cutting import Cutting
from dosimeter.accounting.mixture import Mixture, Root, Tangent
from dosimeter.accounting.tally import Tally, charge, charge_after, largest
from dosimeter.rdp import Cost
from dosimeter.rdp.cost import UP
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import at_most, exact

_Owed = tuple[Tally, Cost, int, int]
"""A tally, and charges not yet added to it: of which cost, of how many runs, how many times."""


class Sums:
    """A tally under a mixture; vouches while epsilon is within `limit`.

    A frozen value: what is kept beside the tally are answers that were worked out before. Runs that
    another potential vouched for are noted, and added one by one when the tally is asked for.
    """

    __slots__ = (
        "_epsilon",
        "_floor",
        "_owed",
        "_root",
        "_tangent",
        "approx_delta",
        "cutting",
        "limit",
        "mixture",
    )

    def __init__(
        self,
        mixture: Mixture,
        limit: float,
        approx_delta: float,
        cutting: Cutting | None,
        tally: Tally | _Owed,
        tangent: Tangent | None = None,
        before: Sums | None = None,
    ) -> None:
        self.mixture = mixture
        self.limit = limit
        self.approx_delta = approx_delta
        self.cutting = cutting
        # One slot for either, so that two threads cannot add the same charges twice.
        self._owed = tally
        if isinstance(tally, Tally):
            tally.rdp.setflags(write=False)
        self._tangent = tangent
        self._epsilon: float | None = None
        self._root: Root | None = None
        self._floor = 0.0
        if before is not None:
            self._root = before._root
            self._floor = before._floor if before._epsilon is None else before._epsilon

    def take(self, cost: Cost, count: int) -> tuple[Sums, int] | None:
        """The sums after a spend, if they stay within the limit and the cap on failures."""
        spent = self.tally
        asked = self._asked_after(spent, cost, count)
        tally = spent.plus(asked)
        if not tally.delta <= self.approx_delta:
            return None
        if self.limit == math.inf:
            return self._with(tally), count
        plane = self.tangent
        # A curve does not fall, so its last value tells whether it is finite throughout.
        if asked.rdp.item(-1) < math.inf:
            bound = plane.after(asked.rdp)
            if bound <= self.limit:
                return self._with(tally, Tangent(bound, plane.slope)), count
        plane = self.mixture.tangent(tally.rdp)
        if min(plane.epsilon, tally.pure_epsilon) <= self.limit:
            return self._with(tally, plane), count
        return None

    def charged(self, cost: Cost, runs: int) -> Sums:
        """The sums after runs that they need not vouch for."""
        owed = self._owed
        if not isinstance(owed, Tally):
            tally, same, bundle, times = owed
            if same is cost and bundle == runs:
                return self._with((tally, cost, runs, times + 1))
        charge(cost, runs, self.mixture.orders, self.cutting)  # refuses now what cannot be summed
        return self._with((self.tally, cost, runs, 1))

    def released(self, cost: Cost, runs: int) -> Sums:
        """The sums without runs that are part of them, rounded up."""
        tally = self.tally.minus(charge(cost, runs, self.mixture.orders, self.cutting))
        return Sums(self.mixture, self.limit, self.approx_delta, self.cutting, tally)

    def at(self, tally: Tally) -> Sums:
        """The sums at another tally; if it has grown from this one, by what is known here."""
        if tally.rdp.item(-1) < math.inf and tally.pure_epsilon >= self.tally.pure_epsilon:
            rise = tally.rdp - self.tally.rdp
            if rise.item(rise.argmin()) >= 0:
                return self._with(tally, self._plane_after(rise))
        return Sums(self.mixture, self.limit, self.approx_delta, self.cutting, tally)

    def _plane_after(self, rise: FloatArray) -> Tangent | None:
        """The plane here, raised to where the sums have grown; None if it says nothing there."""
        if self.limit == math.inf:
            return None
        # At least the exact difference: `rise` is one subtraction.
        bound = self.tangent.after(rise * UP)
        return Tangent(bound, self.tangent.slope) if bound <= self.limit else None

    def most(self, cost: Cost) -> int:
        """The largest count that stays within the limit."""
        return largest(lambda count: self.take(cost, count) is not None)

    @property
    def tally(self) -> Tally:
        """What everything charged so far sums to, read-only."""
        owed = self._owed
        if isinstance(owed, Tally):
            return owed
        tally, cost, runs, times = owed
        for _ in range(times):
            tally = tally.plus(self._asked_after(tally, cost, runs))
        tally.rdp.setflags(write=False)
        self._owed = tally
        return tally

    @property
    def reading(self) -> float:
        """Epsilon of the sums, rounded up; never below that of the sums before."""
        if self._epsilon is None:
            tally = self.tally
            mixed, self._root = self.mixture.solve(tally.rdp, self._root)
            if not mixed >= 0:  # no number is no bound, and min and max would pass over it
                mixed = math.inf
            # The loss never passes the pure total, so its minimum needs no weight.
            self._epsilon = max(self._floor, min(mixed, tally.pure_epsilon))
        return self._epsilon

    @property
    def tangent(self) -> Tangent:
        """A plane above epsilon from here on."""
        if self._tangent is None:
            self._tangent = self.mixture.tangent(self.tally.rdp)
        return self._tangent

    @property
    def holds(self) -> bool:
        """Whether the sums, taken alone, are within the limit."""
        return min(self.mixture.epsilon(self.tally.rdp), self.tally.pure_epsilon) <= self.limit

    def remaining(self, limit: float) -> float:
        """How far the reading is from a limit, rounded down."""
        return max(0.0, (limit - self.reading) / UP)

    def shortage(self, cost: Cost, count: int) -> str:
        """Which limit would be passed."""
        tally = self.tally.plus(self._asked_after(self.tally, cost, count))
        if not tally.delta <= self.approx_delta:
            return (
                f"the deltas of its costs would sum to {at_most(tally.delta)}, over "
                f"approx_delta={exact(self.approx_delta)}, which was set when the gate was made"
            )
        after = min(self.mixture.epsilon(tally.rdp), tally.pure_epsilon)
        return f"epsilon would be {at_most(after)}"

    def _asked_after(self, spent: Tally, cost: Cost, count: int) -> Tally:
        return charge_after(spent, cost, count, self.mixture.orders, self.cutting)

    def _with(self, tally: Tally | _Owed, tangent: Tangent | None = None) -> Sums:
        return Sums(self.mixture, self.limit, self.approx_delta, self.cutting, tally, tangent, self)


def read_all(several: Iterable[Sums]) -> None:
    """Works out the readings of many sums at once: each is there when it is asked for."""
    groups: dict[Mixture, list[Sums]] = {}
    for sums in dict.fromkeys(several):
        if sums._epsilon is None:
            groups.setdefault(sums.mixture, []).append(sums)
    for mixture, unread in groups.items():
        rows = np.array([sums.tally.rdp for sums in unread])
        for sums, mixed in zip(unread, mixture.epsilons(rows).tolist(), strict=True):
            if mixed >= 0:
                sums._epsilon = max(sums._floor, min(mixed, sums.tally.pure_epsilon))
