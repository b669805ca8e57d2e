# SPDX-License-Identifier: Apache-2.0
"""What is compared: every published rule and ours, each with what its epsilon is worth."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting import Filter, Gate, Odometer
from dosimeter.accounting.classic import (
    AdvancedComposition,
    BasicComposition,
    Conversion,
    CurveFilter,
    FixedOrderFilter,
    LecuyerOdometer,
    RdpComposition,
    RogersFilter,
    StackedOdometer,
    Validity,
)
from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.errors import BudgetExceeded, UnsoundRuleWarning
from dosimeter.rdp import Cost

_WIDE = 1e6
_TYPICAL_ORDER = 6.0


@dataclass(frozen=True)
class Reader:
    """A rule whose epsilon can be read after every spend."""

    name: str
    validity: Validity
    make: Callable[[], Gate]
    ours: bool = False


def readers(schedule: Sequence[tuple[Cost, int]], delta: float) -> list[Reader]:
    """Every rule that reads as it goes; orders that a rule needs are the best for the schedule."""
    total = np.asarray(sum(count * cost.rdp(DEFAULT_ORDERS) for cost, count in schedule))
    best = int(np.argmin(Conversion.TIGHT.epsilon(DEFAULT_ORDERS.array, total, delta)))
    order = DEFAULT_ORDERS[best]
    # Fewer, larger filters waste less of the last; each must hold one run of everything.
    largest = max(float(cost.rdp([order])[0]) for cost, _ in schedule)
    # A whole number of runs fills each exactly, so the last digits must not decide if it fits.
    size = max(float(total[best]) / 8, largest) * (1 + 1e-9)

    def curve() -> Gate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsoundRuleWarning)
            return CurveFilter(_WIDE, delta, orders=DEFAULT_ORDERS, conversion=Conversion.TIGHT)

    made: list[Reader] = [
        Reader("odometer", Validity.ANYTIME, lambda: Odometer(delta), ours=True),
        Reader("Lécuyer's odometer", LecuyerOdometer.validity, lambda: LecuyerOdometer(delta)),
        Reader(
            f"filter at order {order:g}",
            FixedOrderFilter.validity,
            lambda: FixedOrderFilter(_WIDE, delta, order=order),
        ),
        Reader(
            "stacked filters",
            StackedOdometer.validity,
            lambda: StackedOdometer(delta, order=order, size=size),
        ),
        Reader("some order within budget", Validity.UNSOUND, curve),
        Reader(
            "basic composition", BasicComposition.validity, lambda: BasicComposition(delta=delta)
        ),
        Reader(
            "advanced composition",
            AdvancedComposition.validity,
            lambda: AdvancedComposition(delta=delta),
        ),
        Reader("Rényi, tight", RdpComposition.validity, lambda: RdpComposition(delta=delta)),
    ]
    return made


LIMITED: dict[str, Callable[[float, float], Gate]] = {
    "filter": Filter,
    "Rogers' filter": RogersFilter,
}
"""Filters whose bound depends on the limit, so that only the least limit says what they need."""


def least_limit(
    new_filter: Callable[[float, float], Gate],
    schedule: Sequence[tuple[Cost, int]],
    delta: float,
    *,
    start: float,
) -> float:
    """The least limit at which a filter admits a schedule, to one part in a thousand or 1e-9."""
    low, high = 0.0, max(start, 1e-3)
    while not _admits(new_filter(high, delta), schedule):
        low, high = high, 2 * high
        if high > _WIDE:
            return math.inf
    while high - low > max(1e-3 * high, 1e-9):
        middle = (low + high) / 2
        within = _admits(new_filter(middle, delta), schedule)
        low, high = (low, middle) if within else (middle, high)
    return high


def menu_limit(
    schedule: Sequence[tuple[Cost, int]], delta: float, *, exact: float
) -> tuple[float, int]:
    """A limit at which a filter with a menu of the schedule's costs admits it, and menus made.

    It is searched upward from the exact epsilon in small steps, each of which makes a menu.
    """
    menu = menu_of(schedule)
    for tries, ratio in enumerate((1.01, 1.02, 1.03, 1.05, 1.08, 1.15, 1.3), 1):
        try:
            gate = Filter(exact * ratio, delta, menu=menu)
        except ValueError:
            continue
        if _admits(gate, schedule) and gate.standing.menu:
            return exact * ratio, tries
    return math.inf, 7


def menu_of(schedule: Sequence[tuple[Cost, int]]) -> list[Cost]:
    """The costs of a schedule, the one that it spends most on first."""
    spent: dict[Cost, float] = {}
    for cost, count in schedule:
        spent[cost] = spent.get(cost, 0.0) + count * float(cost.rdp([_TYPICAL_ORDER])[0])
    return sorted(spent, key=lambda cost: -spent[cost])


def planned_odometer(schedule: Sequence[tuple[Cost, int]], delta: float) -> Odometer:
    """An odometer with a menu of the schedule's costs that expects to stop at its end."""
    menu = menu_of(schedule)
    total = sum(count * float(cost.rdp([_TYPICAL_ORDER])[0]) for cost, count in schedule)
    # Bundles are rounded up, so a schedule of many costs needs a little more than its sum.
    spare = 1.0 if len(menu) == 1 else 1.03
    runs = math.ceil(spare * total / float(menu[0].rdp([_TYPICAL_ORDER])[0]) * (1 - 1e-9))
    return Odometer(delta, menu=menu, plan=(menu[0], runs))


def _admits(gate: Gate, schedule: Sequence[tuple[Cost, int]]) -> bool:
    try:
        for cost, count in schedule:
            gate.spend(cost, count)
    except BudgetExceeded:
        return False
    return True
