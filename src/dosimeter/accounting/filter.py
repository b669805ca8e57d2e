# SPDX-License-Identifier: Apache-2.0
"""Filter: refuses whatever would take an adaptive sequence past a fixed (epsilon, delta).

mechanism -> cost curve -> account -> decision. A refusal changes nothing, and the filter may
be asked for cheaper things for ever after. With a menu of declared mechanisms quanta stand
beside the sums and decide first, at nearly the price of an exact accountant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dosimeter.accounting.account import Account
from dosimeter.accounting.cutting import FILTER_SHARE
from dosimeter.accounting.meter import Meter
from dosimeter.accounting.priced.items import Menu
from dosimeter.accounting.terms import Terms
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost
from dosimeter.rdp.orders import FloatArray


class Filter(Meter):
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
            (docs/prices.md); making the menu takes seconds. Most other costs are sold too, a
            few percent dearer and priced when they are first asked for; what has no price falls
            to the mixture on a part of delta and, once admitted, ends the menu.
        neighbours: Which two data sets the guarantee speaks about; every cost must be for the
            same relation.
        cut: Share of the mixture's delta for outputs so rare that sampled costs leave them out.
            It makes small sample rates several times cheaper and all else 0.3 % dearer; it
            never changes what is guaranteed.

    Guarantee:
        Everything ever admitted is together (epsilon, delta + approx_delta)-DP for all
        `neighbours`, though each cost may be chosen after seeing all earlier outputs
        (Theorem 3, T4 in docs/guarantees.md). If one stops earlier, `epsilon` holds ex-post, as
        an odometer's reading does (T5). Costs must come from public parameters. Sums
        and epsilon are rounded upward. With a menu the extra record must be on the same
        side in every round, as it is for two neighbouring data sets (Theorem 5 in
        docs/prices.md).

    Example:
        >>> import dosimeter as dm
        >>> budget = dm.Filter(epsilon=1.0, delta=1e-6)
        >>> budget.spend(dm.Gaussian(noise_multiplier=20))
        >>> budget.admits(dm.Gaussian(noise_multiplier=1))
        False
        >>> print(budget.guarantee())
        (1.0, 1e-06)-DP, add/remove one record, fully adaptive, filter
    """

    _kind = "filter"

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
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        cut: float = FILTER_SHARE,
    ) -> None:
        terms = Terms.of_filter(
            epsilon,
            delta,
            plan=plan,
            approx_delta=approx_delta,
            orders=orders,
            weights=weights,
            menu=menu,
            neighbours=neighbours,
            cut=cut,
        )
        super().__init__(Account.open(terms))
