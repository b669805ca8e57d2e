# SPDX-License-Identifier: Apache-2.0
"""Filter: refuses whatever would take an adaptive sequence past a fixed (epsilon, delta).

mechanism -> cost curve -> running sum -> certified epsilon -> decision. Most decisions
need only a plane that lies above epsilon (one dot product); the exact solve is called when
the plane can no longer tell. A refusal changes nothing, and the filter may be asked for
cheaper things for ever after. With a menu of declared mechanisms a counter of quanta stands
beside the sums and decides first, at nearly the price of an exact accountant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from dosimeter import arguments
from dosimeter.accounting import state as saved
from dosimeter.accounting.account import FIELDS, Account, largest
from dosimeter.accounting.guarantee import MENU_CONDITIONS, FilterGuarantee, Standing
from dosimeter.accounting.mixture import Tangent
from dosimeter.accounting.priced import share
from dosimeter.accounting.priced.counter import Counter, Purchase
from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.accounting.tally import Tally, charge
from dosimeter.accounting.weights import budget_orders, budget_weights, plan_weights
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.cost import UP
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import at_most


class Filter(Account):
    """A privacy filter over Rényi costs, sound under full adaptivity.

    Args:
        epsilon: The epsilon never to be passed.
        delta: The delta of the guarantee, apart from `approx_delta`.
        plan: A cost and a count that are expected. It shapes the weights and so the
            tightness; it never changes what is guaranteed.
        approx_delta: Cap on the summed delta of costs that have one (`ApproxDp`).
        orders: Orders to count on, by default 54 of them, extended to suit the budget.
        weights: Weight of each order, summing to 1; by default shaped by the budget.
        menu: Mechanisms declared beforehand, the nominal one first. Runs of them are bought
            with quanta, in any adaptive order, at nearly the price of exact accounting
            (docs/prices.md); making the menu takes seconds. Anything else falls to the
            mixture on a tenth of delta and, once admitted, ends the menu.

    Guarantee:
        Everything ever admitted is together (epsilon, delta + approx_delta)-DP for
        neighbours that differ in one added or removed record, though each cost may be
        chosen after seeing all earlier outputs (Theorem 3, T4 in docs/guarantees.md).
        Costs must come from public parameters. Sums and epsilon are rounded upward. With
        a menu the extra record must be on the same side in every round, as it is for two
        neighbouring data sets (Theorem 5 in docs/prices.md).

    Example:
        >>> import dosimeter as dm
        >>> budget = dm.Filter(epsilon=1.0, delta=1e-6)
        >>> budget.spend(dm.Gaussian(noise_multiplier=20))
        >>> budget.admits(dm.Gaussian(noise_multiplier=1))
        False
        >>> print(budget.guarantee())
        (1.0, 1e-06)-DP, add/remove one record, fully adaptive, filter
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        plan: tuple[Cost, int] | None = None,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | FloatArray | None = None,
        menu: Sequence[Cost] | Menu | None = None,
    ) -> None:
        self._limit = arguments.positive("epsilon", epsilon)
        delta = arguments.open_unit("delta", delta)
        part = 1.0 if menu is None else share.MIXTURE_SHARE
        grid = budget_orders(self._limit, delta * part) if orders is None else Orders(orders)
        if weights is None:
            weights = budget_weights(grid, self._limit, delta * part)
            if plan is not None:
                weights = plan_weights(grid, weights, plan, delta * part)
        elif plan is not None:
            raise ValueError(f"plan must not be given together with weights, got {plan!r}")
        super().__init__(grid, weights, delta, approx_delta, share=part)
        self._tangent = self._mixture.tangent(self._tally.rdp)
        self._counter = None if menu is None else Counter(share.menu_for(menu, self._limit, delta))

    @property
    def limit(self) -> float:
        """The epsilon never to be passed."""
        return self._limit

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up; it never falls and never passes the limit."""
        # Whatever was admitted is certified to be within the limit, and more finely than
        # the last digits of a fresh solve.
        return min(super().epsilon, self._limit)

    @property
    def remaining(self) -> float:
        """How far epsilon is from the limit, rounded down.

        While a menu is open, at least the share of the limit that its unsold quanta are: the
        mixture beside it reaches the limit long before they are gone.
        """
        left = max(0.0, (self._limit - self.epsilon) / UP)
        if self._counter is None:
            return left
        return max(left, self._limit * (self.quanta_left / self._counter.menu.quanta) / UP)

    @property
    def menu(self) -> Menu | None:
        """The declared mechanisms and their prices; None without a menu."""
        return None if self._counter is None else self._counter.menu

    @property
    def quanta_left(self) -> int:
        """How many quanta the menu may still sell; 0 without a menu or once it has ended."""
        counter = self._counter
        return counter.quanta if counter is not None and counter.open else 0

    @property
    def standing(self) -> Standing:
        """Which parts still hold: the menu, the mixture, or both."""
        with self._lock:
            return Standing(
                menu=self._counter is not None and self._counter.open,
                mixture=min(self._mixture.epsilon(self._tally.rdp), self._tally.pure_epsilon)
                <= self._limit,
            )

    def price(self, cost: Cost) -> Item | None:
        """The bundle in which the menu sells `cost`; None for what is not on the menu."""
        return None if self._counter is None else self._counter.item(cost)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of `count` runs of `cost` would be accepted now; changes nothing."""
        asked = charge(cost, count, self.orders)
        with self._lock:
            if self._counter is not None:
                cost = self._counter.declared(cost)
                if self._counter.quote(cost, count) is not None:
                    return True
                asked = charge(cost, count - self._counter.prepaid.get(cost, 0), self.orders)
            return self._after(asked) is not None

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Spends `count` runs of `cost`; call it before the data are touched.

        Raises:
            BudgetExceeded: The spend would pass the limit. Nothing has changed.
        """
        if self._counter is not None:
            self._spend_with_menu(self._counter, cost, count)
            return
        asked = charge(cost, count, self.orders)
        with self._lock:
            after = self._after(asked)
            if after is None:
                raise self._refusal(cost, count, self._tally.plus(asked))
            tally, self._tangent = after
            self._tally = tally

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that would be admitted now, at most 2**53."""
        one = charge(cost, 1, self.orders)
        with self._lock:
            if self._counter is not None:
                cost = self._counter.declared(cost)
            by_mixture = largest(lambda count: self._after(one.times(count)) is not None)
            if self._counter is None:
                return by_mixture
            by_mixture += self._counter.prepaid.get(cost, 0)
            return min(max(by_mixture, self._counter.most(cost)), arguments.MAX_COUNT)

    def guarantee(self) -> FilterGuarantee:
        """What holds for everything this filter ever admits."""
        conditions = () if self._counter is None else MENU_CONDITIONS
        return FilterGuarantee(self._limit, self.total_delta, conditions)

    def state(self) -> saved.State:
        """Everything needed to go on elsewhere, as plain JSON values."""
        with self._lock:
            more = {} if self._counter is None else share.counter_state(self._counter)
            return self._state("filter", {"epsilon": self._limit, **more})

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The filter that `state()` described.

        Raises:
            StateError: The state is of another kind or version, or was edited.
        """
        priced = isinstance(state, Mapping) and "menu" in state
        if priced:
            share.require_format(state)
        names = FIELDS | {"epsilon"} | (share.STATE_FIELDS if priced else frozenset())
        fields = saved.unseal("filter", state, names)
        try:
            restored = cls(
                fields["epsilon"],
                fields["delta"],
                approx_delta=fields["approx_delta"],
                orders=fields["orders"],
                weights=fields["weights"],
                menu=share.read_menu(fields["menu"]) if priced else None,
            )
            restored._restore(fields)
            if restored._counter is not None:
                share.restore_counter(restored._counter, fields)
            restored._keep_mark(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state must describe a filter: {error}") from error
        restored._tangent = restored._mixture.tangent(restored._tally.rdp)
        if restored._counter is not None and restored._counter.open:
            return restored
        within = min(restored._tangent.epsilon, restored._tally.pure_epsilon)
        # Spends are admitted by bounds that may be finer than a fresh solve.
        if not within <= restored._limit + 1e-7 * max(1.0, restored._limit):
            raise StateError(f"state must be within its limit {restored._limit}, got {within}")
        return restored

    def _after(self, asked: Tally) -> tuple[Tally, Tangent] | None:
        """The sums after a charge and a plane above epsilon there; None if it must be refused."""
        tally = self._tally.plus(asked)
        if not tally.delta <= self._approx_delta:
            return None
        # A curve does not fall, so its last value tells whether it is finite throughout.
        if asked.rdp.item(-1) < math.inf:
            bound = self._tangent.after(asked.rdp)
            if bound <= self._limit:
                return tally, Tangent(bound, self._tangent.slope)
        exact = self._mixture.tangent(tally.rdp)
        if min(exact.epsilon, tally.pure_epsilon) <= self._limit:
            return tally, exact
        return None

    def _spend_with_menu(self, counter: Counter, cost: Cost, count: int) -> None:
        """Prepaid runs, else quanta, else the mixture, which ends the menu; or a refusal."""
        count = arguments.count("count", count)
        if not isinstance(cost, Cost):
            charge(cost, count, self.orders)
        with self._lock:
            if counter.uses(cost, count):
                return
            cost = counter.declared(cost)
            purchase = counter.quote(cost, count)
            if purchase is not None:
                if purchase.bundles:
                    self._buy(purchase)
                counter.take(purchase)
                return
            wanted = count - counter.prepaid.get(cost, 0)
            asked = charge(cost, wanted, self.orders)
            after = self._after(asked)
            if after is None:
                raise self._refusal(cost, count, self._tally.plus(asked))
            self._tally, self._tangent = after
            counter.use(cost, count)
            counter.open = False

    def _buy(self, purchase: Purchase) -> None:
        """Charges the mixture for every run that is bought, whether it will be used or not.

        Charging runs only when they are used would let a stranger in between be paid by the
        mixture and the prepaid runs by the menu: together far over delta.
        """
        asked = charge(purchase.item.cost, purchase.runs, self.orders)
        tally = self._tally.plus(asked)
        if asked.rdp[-1] < math.inf:
            self._tangent = Tangent(self._tangent.after(asked.rdp), self._tangent.slope)
        else:
            self._tangent = self._mixture.tangent(tally.rdp)
        self._tally = tally

    def _refusal(self, cost: Cost, count: int, tally: Tally) -> BudgetExceeded:
        after = min(self._mixture.epsilon(tally.rdp), tally.pure_epsilon)
        return BudgetExceeded(
            cost=cost,
            count=count,
            spent=self.epsilon,
            limit=self._limit,
            affordable=self.affordable(cost),
            reason=self._failure_excess(tally)
            or f"{self._shortage(cost)}epsilon would be {at_most(after)}",
        )

    def _shortage(self, cost: Cost) -> str:
        """What the menu says to a cost that it cannot sell."""
        if self._counter is None:
            return ""
        item = self._counter.item(cost) if self._counter.open else None
        if item is None:
            return "off the menu, and by the mixture "
        return (
            f"{item.steps} of it cost {item.price} of the {self._counter.quanta} quanta left, "
            "and by the mixture "
        )
