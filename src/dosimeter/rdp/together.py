# SPDX-License-Identifier: Apache-2.0
"""Several costs spent as one: a query with several mechanisms is paid for whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from types import EllipsisType
from typing import TYPE_CHECKING, ClassVar

from dosimeter.neighbours import Neighbours
from dosimeter.rdp.cost import Cost, summed
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray, Orders

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, repr=False)
class Together(Cost):
    """One run of each of some costs: all or nothing, and one entry in the journal of a ledger.

    A refusal leaves none of them paid. Where a gate has a menu, each part that is on it is bought
    from it; without one the whole curve is charged, of which no rare output is left out. The parts
    are of one relation, which is that of the whole; bundles in it are undone.

    Guarantee:
        Parts are charged before any of them is run, so they may be run in any order, each chosen
        by the answers of those before it as long as it costs no more than was charged for it.
    """

    costs: tuple[Cost, ...]

    kind: ClassVar[str] = "together"
    option: ClassVar[None] = None

    def __init__(
        self, costs: Iterable[Cost], *, neighbours: Neighbours | EllipsisType = ...
    ) -> None:
        if not isinstance(costs, Iterable) or isinstance(costs, str | bytes):
            raise TypeError(f"costs must be a sequence of costs, got {costs!r}")
        given = tuple(costs)
        for cost in given:
            if not isinstance(cost, Cost):
                raise TypeError(f"costs must be mechanisms such as Gaussian(2.0), got {cost!r}")
        if not given:
            raise ValueError("costs must hold at least one cost, got none")
        relation = given[0].neighbours if neighbours is ... else neighbours
        object.__setattr__(self, "costs", tuple(part for cost in given for part in cost.parts))
        object.__setattr__(self, "neighbours", relation)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        for cost in self.costs:
            if cost.neighbours is not self.neighbours:
                raise ValueError(
                    f"costs must be of one neighbouring relation, here {self.neighbours}, got "
                    f"{cost.neighbours}: {cost}. Say neighbours=... in each."
                )
        if not self.delta < 1:
            raise ValueError(f"costs must have deltas with a sum below 1, got {self.delta!r}")

    @property
    def parts(self) -> tuple[Cost, ...]:
        """The costs that it is made of."""
        return self.costs

    @property
    def pure_epsilon(self) -> float:
        """Their sum, where every part is pure."""
        return _sum_up([cost.pure_epsilon for cost in self.costs])

    @property
    def delta(self) -> float:  # type: ignore[override]  # an attribute of the others
        """Their sum."""
        return _sum_up([cost.delta for cost in self.costs])

    def _curve(self, orders: Orders) -> FloatArray:
        return summed([(cost, 1) for cost in self.costs], orders)

    def loss(self, direction: Direction) -> None:
        """None: put its parts on the menu."""

    def dp_event(self) -> dp_accounting.DpEvent | None:
        """The composition of the events of its parts, if all have one."""
        import dp_accounting

        events = [cost.dp_event() for cost in self.costs]
        return None if None in events else dp_accounting.ComposedDpEvent(events)


def _sum_up(values: list[float]) -> float:
    """The sum of numbers that are not negative, rounded up if it is no float."""
    try:
        total = math.fsum(values)
    except OverflowError:
        return math.inf
    if total == math.inf or sum(map(Fraction, values)) <= Fraction(total):
        return total
    return math.nextafter(total, math.inf)
