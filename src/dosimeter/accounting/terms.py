# SPDX-License-Identifier: Apache-2.0
"""Terms: what an account is, fixed before the first spend.

The limit, the deltas, the orders and weights of the mixture, and the prices of a menu if there
is one. They come from public parameters and never change; `plain` writes them down exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.cutting import (
    FILTER_SHARE,
    ODOMETER_SHARE,
    Cutting,
    checked_share,
    kept_share,
)
from dosimeter.accounting.mixture import Mixture
from dosimeter.accounting.priced import share
from dosimeter.accounting.priced.items import Ladder, Menu, Plan
from dosimeter.accounting.weights import (
    DEFAULT_ORDERS,
    budget_orders,
    budget_weights,
    default_weights,
    plan_weights,
)
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.cost import UP
from dosimeter.rdp.orders import FloatArray

_USUAL = Neighbours.ADD_REMOVE_RECORD
"""Left out of the plain form, which had no relation at first."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The parameters of an account.

    Attributes:
        limit: The epsilon never to be passed; infinite for an odometer.
        delta: The delta of the guarantee, apart from `approx_delta`.
        approx_delta: Cap on the summed delta of costs that have one.
        mixture: The Rényi mixture, on delta or on its share beside a menu.
        menu: The declared mechanisms and their prices.
        readings: Epsilon after each number of quanta, for an odometer with a menu.
        neighbours: Which two data sets the guarantee speaks about, and so every cost.
        cut: Share of the mixture's delta for outputs that are left out.
    """

    limit: float
    delta: float
    approx_delta: float
    mixture: Mixture
    menu: Menu | None = None
    readings: tuple[float, ...] | None = None
    neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD
    cut: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.neighbours, Neighbours):
            raise TypeError(f"neighbours must be a dosimeter.Neighbours, got {self.neighbours!r}")
        for item in () if self.menu is None else self.menu.items:
            self.require_relation(item.cost)
        if not self.total_delta < 1:
            raise ValueError(f"approx_delta must leave delta below 1, got {self.approx_delta!r}")

    @classmethod
    def of_filter(
        cls,
        epsilon: float,
        delta: float,
        *,
        plan: tuple[Cost, int] | None = None,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | FloatArray | None = None,
        menu: Sequence[Cost] | Menu | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        cut: float = FILTER_SHARE,
    ) -> Terms:
        """The terms of a filter; see `Filter`."""
        limit = arguments.positive("epsilon", epsilon)
        delta = arguments.open_unit("delta", delta)
        approx_delta = arguments.non_negative("approx_delta", approx_delta)
        cut = _cut(cut, neighbours)
        _require_relation_of_all(menu, neighbours)
        if weights is not None and plan is not None:
            raise ValueError(f"plan must not be given together with weights, got {plan!r}")
        chosen = None if orders is None else Orders(orders)  # a menu takes seconds to make
        made = None if menu is None else share.menu_for(menu, limit, delta)
        part = delta if made is None else share.mixture_part(made, delta)
        grid = budget_orders(limit, part) if chosen is None else chosen
        if weights is None:
            hump = budget_weights(grid, limit, part)
            weights = hump if plan is None else plan_weights(grid, hump, plan, part)
        return cls(
            limit=limit,
            delta=delta,
            approx_delta=approx_delta,
            mixture=Mixture(grid, weights, part * kept_share(cut)),
            menu=made,
            neighbours=neighbours,
            cut=cut,
        )

    @classmethod
    def of_odometer(
        cls,
        delta: float,
        *,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | FloatArray | None = None,
        menu: Sequence[Cost] | Ladder | None = None,
        plan: Plan | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        cut: float = ODOMETER_SHARE,
    ) -> Terms:
        """The terms of an odometer; see `Odometer`."""
        delta = arguments.open_unit("delta", delta)
        if menu is None and plan is not None:
            raise ValueError(f"plan must come with a menu, got {plan!r} without one")
        grid = DEFAULT_ORDERS if orders is None else Orders(orders)
        approx_delta = arguments.non_negative("approx_delta", approx_delta)
        cut = _cut(cut, neighbours)
        _require_relation_of_all(menu, neighbours)
        weights = default_weights(grid) if weights is None else weights
        ladder = None if menu is None else share.ladder_for(menu, delta, plan)
        part = delta if ladder is None else share.mixture_part(ladder, delta)
        mixture = Mixture(grid, weights, part * kept_share(cut))
        return cls(
            limit=math.inf,
            delta=delta,
            approx_delta=approx_delta,
            mixture=mixture,
            menu=None if ladder is None else ladder.menu,
            readings=None if ladder is None else ladder.readings,
            neighbours=neighbours,
            cut=cut,
        )

    @cached_property
    def cutting(self) -> Cutting | None:
        """Which outputs the mixture leaves out; None if it takes them all."""
        return Cutting.of(self.cut, self.mixture.delta / kept_share(self.cut), self.limit)

    @property
    def kind(self) -> str:
        """ "filter" or "odometer"."""
        return "filter" if self.limit < math.inf else "odometer"

    @property
    def total_delta(self) -> float:
        """delta + approx_delta, the delta of the guarantee."""
        return (self.delta + self.approx_delta) * UP if self.approx_delta else self.delta

    def require_relation(self, cost: Cost) -> None:
        """Raises ValueError if a cost is for other neighbours than these terms."""
        _require_relation(cost, self.neighbours)

    def repriced(self, other: Terms) -> bool:
        """Whether both are of a filter with the same list for its menu, whatever the prices.

        Two versions of the library may price a list differently, and divide delta differently
        beside it. Where a plan, orders or weights were given besides, nothing is said.
        """
        said, meant = (
            (one.limit, one.delta, one.approx_delta, one.neighbours, one.cut, one._listed())
            for one in (self, other)
        )
        return said == meant and self._listed() is not None

    def _listed(self) -> list[Cost] | None:
        """The costs of a filter's menu, if orders and weights follow from its shares of delta."""
        if self.menu is None or self.readings is not None or self.menu.epsilon != self.limit:
            return None
        part = share.mixture_part(self.menu, self.delta)
        grid = budget_orders(self.limit, part)
        usual = Mixture(grid, budget_weights(grid, self.limit, part), part * kept_share(self.cut))
        same = np.array_equal(self.mixture.orders.array, usual.orders.array)
        same = same and np.array_equal(self.mixture.weights, usual.weights)
        return [item.cost for item in self.menu.items] if same else None

    def plain(self) -> dict[str, Any]:
        """The terms as plain JSON values, from which `from_plain` makes equal ones."""
        return {
            "kind": self.kind,
            **({"epsilon": self.limit} if self.limit < math.inf else {}),
            "delta": self.delta,
            "approx_delta": self.approx_delta,
            "orders": list(self.mixture.orders),
            "weights": self.mixture.weights.tolist(),
            **({"cut": self.cut} if self.cut else {}),
            **({} if self.neighbours is _USUAL else {"neighbours": str(self.neighbours)}),
            **({} if self.menu is None else share.plain_menu(self.menu, self.readings)),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Terms:
        """The terms that `plain` wrote; a menu is confirmed again.

        Raises:
            KeyError, TypeError, ValueError: They are not such terms.
        """
        values = {"cut": 0.0, **plain}  # `plain` leaves it out where nothing is cut
        make: Any = {"filter": cls.of_filter, "odometer": cls.of_odometer}[values.pop("kind")]
        if "neighbours" in values:
            values["neighbours"] = Neighbours.named(values["neighbours"])
        if "menu" in values:
            priced = {name: values.pop(name) for name in share.FIELDS & set(values)}
            values["menu"] = share.read_menu(priced)
        terms: Terms = make(**values)
        if terms.plain() != plain:
            raise ValueError("they change when they are read")
        return terms


def _require_relation(cost: Cost, neighbours: Neighbours) -> None:
    if cost.neighbours is not neighbours:
        raise ValueError(
            f"cost must be for neighbours that {neighbours}, as the gate is, got one for "
            f"{cost.neighbours}: {cost}. Say neighbours=... where the sensitivity was taken in "
            "the gate's relation, or spend it from a gate of its own."
        )


def _require_relation_of_all(menu: object, neighbours: Neighbours) -> None:
    """Before anything is priced, which takes seconds."""
    for cost in menu if isinstance(menu, Sequence) else ():
        if isinstance(cost, Cost):
            _require_relation(cost, neighbours)


def _cut(share: float, neighbours: Neighbours) -> float:
    """The share set aside; none where a record is replaced, and so nothing is sampled."""
    return 0.0 if neighbours is Neighbours.REPLACE_ONE_RECORD else checked_share(share)
