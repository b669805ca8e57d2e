# SPDX-License-Identifier: Apache-2.0
"""Odometer: a valid epsilon at any moment at which one may stop.

mechanism -> cost curve -> running sum -> certified epsilon. Nothing is refused (but for a
cap on failure probabilities): the odometer reads, and whoever watches it decides when to
stop, for whatever reason the outputs may give. With a menu of declared mechanisms a ladder
of certified readings stands beside the mixture, and the smaller reading holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from dosimeter.accounting import state as saved
from dosimeter.accounting.account import FIELDS, Account, largest
from dosimeter.accounting.guarantee import MENU_CONDITIONS, OdometerGuarantee, Standing
from dosimeter.accounting.mixture import Mixture
from dosimeter.accounting.priced import share
from dosimeter.accounting.priced.counter import Counter
from dosimeter.accounting.priced.items import Ladder, Menu
from dosimeter.accounting.tally import charge
from dosimeter.accounting.weights import DEFAULT_ORDERS, default_weights
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.orders import FloatArray


class Odometer(Account):
    """A privacy odometer over Rényi costs, valid at any stopping time.

    Args:
        delta: The delta of every reading, apart from `approx_delta`.
        approx_delta: Cap on the summed delta of costs that have one (`ApproxDp`).
        orders: Orders to count on, by default 54 from 1.25 to 1024.
        weights: Weight of each order, summing to 1; by default a wide hump.
        menu: Mechanisms declared beforehand, the nominal one first; readings are then nearer
            to exact accounting (docs/prices.md). Making the menu takes seconds. Anything
            else leaves the reading to the mixture, on a twentieth of delta.
        plan: A cost on the menu and a count at which one expects to stop; readings are
            tightest there.

    Guarantee:
        If one stops at any time t that may depend on all outputs so far, then for every
        set S of outcomes P(S) <= the integral over S of e^{epsilon_t} dQ, plus delta +
        approx_delta, for neighbours that differ in one added or removed record (Theorem 3,
        T3 in docs/guarantees.md). The claim is about the moment of stopping: it does not
        say that all readings hold at once; `loss_bound` does that for the privacy loss.

    Example:
        >>> import dosimeter as dm
        >>> odometer = dm.Odometer(delta=1e-6)
        >>> odometer.spend(dm.SampledGaussian(sample_rate=0.01, noise_multiplier=1.0), 98)
        >>> print(f"{odometer.epsilon:.3f}")
        1.899
    """

    def __init__(
        self,
        delta: float,
        *,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | FloatArray | None = None,
        menu: Sequence[Cost] | Ladder | None = None,
        plan: tuple[Cost, int] | None = None,
    ) -> None:
        grid = DEFAULT_ORDERS if orders is None else Orders(orders)
        super().__init__(
            grid,
            default_weights(grid) if weights is None else weights,
            delta,
            approx_delta,
            share=1.0 if menu is None else share.ODOMETER_MIXTURE_SHARE,
        )
        self._two_sided = self._mixture.two_sided()
        self._ladder = None if menu is None else share.ladder_for(menu, self.delta, plan)
        if menu is None and plan is not None:
            raise ValueError(f"plan must come with a menu, got {plan!r} without one")
        self._counter = None if self._ladder is None else Counter(self._ladder.menu)

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up; it never falls."""
        if self._ladder is None or self._counter is None or not self._counter.open:
            return super().epsilon
        with self._lock:
            spent = self._counter.menu.quanta - self._counter.quanta
            climbed = self._ladder.readings[spent] if self._tally.rdp.any() else 0.0
            value = min(self._mixture.epsilon(self._tally.rdp), self._tally.pure_epsilon, climbed)
            self._reported = max(self._reported, value)
            return self._reported

    @property
    def menu(self) -> Menu | None:
        """The declared mechanisms and their prices; None without a menu."""
        return None if self._counter is None else self._counter.menu

    @property
    def standing(self) -> Standing:
        """Which parts still read: the ladder of the menu, the mixture, or both."""
        open_menu = self._counter is not None and self._counter.open
        return Standing(menu=open_menu, mixture=self._mixture.epsilon(self._tally.rdp) < math.inf)

    @property
    def loss_bound(self) -> float:
        """What the privacy loss stays below, at all times at once (T2), but for delta.

        The probability is that of the outputs under either one of two neighbours. Infinite
        once a cost with a delta of its own was spent: (epsilon, delta)-DP bounds the excess
        of the loss over epsilon, not the probability that there is one.
        """
        return self._bound(self._mixture)

    @property
    def two_sided_loss_bound(self) -> float:
        """What the absolute privacy loss stays below, at all times at once, but for delta."""
        return self._bound(self._two_sided)

    def _bound(self, mixture: Mixture) -> float:
        tally = self._tally
        if tally.delta > 0:
            return math.inf
        return min(mixture.loss_bound(tally.rdp), tally.pure_epsilon)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """True, unless the deltas of the costs would pass `approx_delta`; changes nothing."""
        asked = charge(cost, count, self.orders)
        return self._failure_excess(self._tally.plus(asked)) is None

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Spends `count` runs of `cost`; call it before the data are touched.

        Raises:
            BudgetExceeded: The deltas of the costs would pass `approx_delta`. Nothing changed.
        """
        if self._counter is not None and isinstance(cost, Cost):
            cost = self._counter.declared(cost)
        asked = charge(cost, count, self.orders)
        with self._lock:
            purchase = None if self._counter is None else self._counter.quote(cost, count)
            if self._counter is not None and purchase is not None:
                if purchase.bundles:
                    bought = charge(cost, purchase.runs, self.orders)
                    self._tally = self._tally.plus(bought)
                self._counter.take(purchase)
                return
            tally = self._tally.plus(asked)
            excess = self._failure_excess(tally)
            if excess:
                raise BudgetExceeded(
                    cost=cost,
                    count=count,
                    spent=self.epsilon,
                    limit=math.inf,
                    affordable=largest(lambda number: self.admits(cost, number)),
                    reason=excess,
                )
            self._tally = tally
            if self._counter is not None:
                # Prepaid runs stay in the tally unused: charging them again is safe.
                self._counter.open = False

    def guarantee(self) -> OdometerGuarantee:
        """What holds if one stops now."""
        conditions = () if self._counter is None else MENU_CONDITIONS
        return OdometerGuarantee(self.epsilon, self.total_delta, conditions)

    def state(self) -> saved.State:
        """Everything needed to go on elsewhere, as plain JSON values."""
        with self._lock:
            if self._ladder is None or self._counter is None:
                return self._state("odometer", {})
            more = {"readings": list(self._ladder.readings), **share.counter_state(self._counter)}
            return self._state("odometer", more)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The odometer that `state()` described.

        Raises:
            StateError: The state is of another kind or version, or was edited.
        """
        priced = isinstance(state, Mapping) and "menu" in state
        if priced:
            share.require_format(state)
        more = share.STATE_FIELDS | {"readings"} if priced else frozenset()
        fields = saved.unseal("odometer", state, FIELDS | more)
        try:
            restored = cls(
                fields["delta"],
                approx_delta=fields["approx_delta"],
                orders=fields["orders"],
                weights=fields["weights"],
                menu=share.read_ladder(fields) if priced else None,
            )
            restored._restore(fields)
            if restored._counter is not None:
                share.restore_counter(restored._counter, fields)
            restored._keep_mark(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state must describe an odometer: {error}") from error
        return restored
