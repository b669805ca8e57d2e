# SPDX-License-Identifier: Apache-2.0
"""Noise: the least with which a filter with a menu admits what is planned.

Making a menu takes seconds, so the search is done on the exact sum of what is planned, which a menu
comes close to. A menu is then made, and where it is short of quanta, another one at more noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dosimeter.accounting import Filter
from dosimeter.accounting.priced.share import fits_menu
from dosimeter.rdp import Cost

MOST = 1e4
"""More noise, or more epsilon, than anyone asks for."""

_LEAST = 1e-3
_DIGITS = 5
_TRIES = 12


def least(
    enough: Callable[[float], bool], *, near: float = 1.0, stride: float = 2.0, most: float = MOST
) -> float | None:
    """The least number that is enough, to one part in two thousand, rounded up to five digits.

    Args:
        enough: Whether a number is; if one is, so are all larger ones.
        near: Where to look first.
        stride: The factor by which to go on from there.
        most: The largest number to try; None comes back if it is not enough.
    """
    low = high = near
    while not enough(high):
        if high >= most:
            return None
        low, high, stride = high, min(most, stride * high), stride**2
    while low == high and high > _LEAST:
        low = max(_LEAST, high / stride)
        if enough(low):
            high, stride = low, stride**2
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    rounded = _rounded_up(high)
    return rounded if enough(rounded) else high


def menu_noise(
    epsilon: float,
    delta: float,
    *,
    menu: Callable[[float], Sequence[Cost]],
    planned: Callable[[float], Iterable[tuple[Cost, int]]],
    near: float = 1.0,
) -> tuple[float, Filter]:
    """The least noise, to a few parts in a thousand, at which a filter with a menu admits a plan.

    Args:
        epsilon: The budget.
        delta: The budget.
        menu: What the filter must be able to sell if the noise is this, the nominal cost first.
        planned: What is run how often if the noise is this; all of it on the menu.
        near: Where to look first.

    Returns:
        The noise, and the filter for it, of which nothing is spent.

    Raises:
        ValueError: There is no such menu, or no noise is enough.
    """

    def enough(noise: float) -> bool:
        return fits_menu(list(planned(noise)), epsilon, delta)

    def only_planned(noise: float) -> Sequence[Cost]:
        return [cost for cost, _ in planned(noise)]

    noise = least(enough, near=near, stride=1.1)
    if noise is None:
        raise ValueError(f"epsilon must pay for the plan with some noise, got {epsilon!r}")
    # What is not planned takes long to price and hardly any quanta, so it joins at the end.
    noise, gate = _sold(epsilon, delta, only_planned, planned, noise)
    if set(menu(noise)) == set(only_planned(noise)):
        return noise, gate
    return _sold(epsilon, delta, menu, planned, noise)


def _sold(
    epsilon: float,
    delta: float,
    menu: Callable[[float], Sequence[Cost]],
    planned: Callable[[float], Iterable[tuple[Cost, int]]],
    noise: float,
) -> tuple[float, Filter]:
    """The noise, raised until the menu sells all that is planned, and the filter with it."""
    for _ in range(_TRIES):
        gate = Filter(epsilon, delta, menu=menu(noise))
        wanted = _share_of_quanta(gate, planned(noise))
        if wanted <= 1:
            return noise, gate
        # What a step costs falls with about the square of its noise.
        noise = _rounded_up(noise * max(1.0005, math.sqrt(wanted)))
    raise ValueError(f"epsilon must pay for the plan with some noise, got {epsilon!r}")


def _share_of_quanta(gate: Filter, planned: Iterable[tuple[Cost, int]]) -> float:
    """What a plan would buy, as a share of what the menu may sell."""
    quanta = 0
    for cost, count in planned:
        item = gate.price(cost)
        if item is None:
            raise ValueError(f"menu must hold all that is planned, got {cost} besides")
        quanta += -(-count // item.steps) * item.price
    return quanta / gate.quanta_left


def _rounded_up(value: float) -> float:
    digits = _DIGITS - 1 - math.floor(math.log10(value))
    return math.ceil(value * 10.0**digits) / 10.0**digits
