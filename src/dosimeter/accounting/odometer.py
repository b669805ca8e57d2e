# SPDX-License-Identifier: Apache-2.0
"""Odometer: a valid epsilon at any moment at which one may stop.

mechanism -> cost curve -> running sum -> certified epsilon. Nothing is refused (but for a
cap on failure probabilities): the odometer reads, and whoever watches it decides when to
stop, for whatever reason the outputs may give. With a menu of declared mechanisms a ladder
of certified readings stands beside the mixture, and the smaller reading holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dosimeter.accounting.account import Account
from dosimeter.accounting.cutting import ODOMETER_SHARE
from dosimeter.accounting.meter import Meter
from dosimeter.accounting.mixture import Mixture
from dosimeter.accounting.priced.items import Ladder, Plan
from dosimeter.accounting.terms import Terms
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost
from dosimeter.rdp.cost import SLACK
from dosimeter.rdp.orders import FloatArray


class Odometer(Meter):
    """A privacy odometer over Rényi costs, valid at any stopping time.

    Args:
        delta: The delta of every reading, apart from `approx_delta`.
        approx_delta: Cap on the summed delta of costs that have one (`ApproxDp`).
        orders: Orders to count on, by default 54 from 1.25 to 1024.
        weights: Weight of each order, summing to 1; by default a wide hump.
        menu: Mechanisms declared beforehand, the nominal one first; readings are then nearer
            to exact accounting (docs/prices.md). Making the menu takes seconds. Anything
            else leaves the reading to the mixture, on a fiftieth of delta.
        plan: A cost on the menu and a count at which one expects to stop; readings are
            tightest there. With the least and the largest such count, (low, high), they are
            equally near to exact accounting at every moment between; before, the mixture
            reads, up to what is read at `low`, and after it the mixture alone.
        neighbours: Which two data sets the guarantee speaks about; every cost must be for the
            same relation.
        cut: Share of the mixture's delta for outputs so rare that sampled costs leave them out.
            It makes small sample rates several times cheaper and all else 0.1 % dearer; it
            never changes what is guaranteed.

    Guarantee:
        If one stops at any time t that may depend on all outputs so far, then for every
        set S of outcomes P(S) <= the integral over S of e^{epsilon_t} dQ, plus delta +
        approx_delta, for all `neighbours` (Theorem 3,
        T3 in docs/guarantees.md). The claim is about the moment of stopping: it does not
        say that all readings hold at once; `loss_bound` does that for the privacy loss.

    Example:
        >>> import dosimeter as dm
        >>> odometer = dm.Odometer(delta=1e-6)
        >>> odometer.spend(dm.SampledGaussian(sample_rate=0.01, noise_multiplier=1.0), 98)
        >>> print(f"{odometer.epsilon:.3f}")
        1.726
    """

    _kind = "odometer"

    def __init__(
        self,
        delta: float,
        *,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | FloatArray | None = None,
        menu: Sequence[Cost] | Ladder | None = None,
        plan: Plan | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        cut: float = ODOMETER_SHARE,
    ) -> None:
        terms = Terms.of_odometer(
            delta,
            approx_delta=approx_delta,
            orders=orders,
            weights=weights,
            menu=menu,
            plan=plan,
            neighbours=neighbours,
            cut=cut,
        )
        super().__init__(Account.open(terms))

    @property
    def loss_bound(self) -> float:
        """What the privacy loss stays below, at all times at once (T2), but for delta.

        The probability is that of the outputs under either one of two neighbours. Infinite
        once a cost with a delta of its own was spent: (epsilon, delta)-DP bounds the excess
        of the loss over epsilon, not the probability that there is one.
        """
        return self._bound(self._account.terms.mixture)

    @property
    def two_sided_loss_bound(self) -> float:
        """What the absolute privacy loss stays below, at all times at once, but for delta."""
        return self._bound(self._account.terms.mixture.two_sided())

    def _bound(self, mixture: Mixture) -> float:
        account = self._account
        tally, orders = account.sums.tally, mixture.orders
        if tally.delta > 0:
            return math.inf
        rdp = tally.rdp
        if tally.cut > 0:
            # Half for views that make it likely that something left out has happened, and half for
            # the loss of the others, which the mixture sees but for a part (docs, Theorem 8).
            mixture = Mixture(orders, mixture.weights, mixture.delta / 2)
            likely = -math.log1p(-4 * account.terms.cut)
            rdp = rdp + likely * (orders.array / orders.beta) * SLACK
        return min(mixture.loss_bound(rdp), tally.pure_epsilon)
