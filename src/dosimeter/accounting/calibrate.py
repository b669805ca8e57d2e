# SPDX-License-Identifier: Apache-2.0
"""Calibration: the least noise with which a filter admits what is planned, and the least epsilon.

The filter has a menu of it (docs/prices.md), so it needs hardly more noise than a plan that nobody
may change, and stays adaptive. Making a menu takes seconds, so the search is done on the exact sum
of what is planned, which a menu comes close to. A menu is then made, and where it is short of
quanta, another one at more noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from dosimeter import arguments
from dosimeter.accounting.filter import Filter
from dosimeter.accounting.priced.share import fits_menu
from dosimeter.rdp import Cost, Gaussian, SampledGaussian

Planned = Callable[[float], Iterable[tuple[Cost, int]]]
Declared = Callable[[float], Sequence[Cost]]

MOST = 1e4
"""More noise, or more epsilon, than anyone asks for."""

_LEAST = 1e-3
_DIGITS = 5
_TRIES = 12


def noise_for(epsilon: float, delta: float, *, steps: int, sample_rate: float = 1.0) -> float:
    """The least noise with which (epsilon, delta) lasts for `steps` steps, to a few parts in 1,000.

    They last in `Filter(epsilon, delta, menu=[step])`, where the step is
    `SampledGaussian(sample_rate, noise)`, or `Gaussian(noise)` at rate 1.

    Args:
        epsilon: The budget.
        delta: The budget.
        steps: How many steps are wanted.
        sample_rate: Probability that a record joins a step; 1 for all records in each.

    Raises:
        ValueError: No noise up to 10,000 is enough, or there is no menu of such a step.

    Example:
        >>> noise_for(3.0, 1e-6, steps=10)
        4.9...
    """

    def refuse(error: Exception) -> None:
        raise error

    steps = arguments.count("steps", steps)
    noise, _ = calibrated(
        arguments.positive("epsilon", epsilon),
        arguments.open_unit("delta", delta),
        menu=lambda noise: [mechanism(sample_rate, noise)],
        planned=lambda noise: [(mechanism(sample_rate, noise), steps)],
        note=refuse,
    )
    return noise


def epsilon_for(
    noise_multiplier: float, delta: float, *, steps: int, sample_rate: float = 1.0
) -> float:
    """The least epsilon that lasts for `steps` steps, to a few parts in 1,000.

    The inverse of `noise_for`. It lasts in a filter with a menu of the step, or without one where
    that asks for less.

    Args:
        noise_multiplier: Noise over what one record can change.
        delta: The budget.
        steps: How many steps are wanted.
        sample_rate: Probability that a record joins a step; 1 for all records in each.

    Raises:
        ValueError: It would be above 10,000, or there is no menu of such a step.

    Example:
        >>> 2.9 < epsilon_for(4.91, 1e-6, steps=10) < 3.1
        True
    """
    steps, delta = arguments.count("steps", steps), arguments.open_unit("delta", delta)
    cost = mechanism(sample_rate, noise_multiplier)
    plain = least(lambda epsilon: Filter(epsilon, delta).admits(cost, steps))
    if plain is None:
        raise ValueError(
            f"noise_multiplier must be enough for {steps} steps, got {noise_multiplier!r}"
        )
    exact = least(
        lambda epsilon: fits_menu([(cost, steps)], epsilon, delta), near=plain / 1.1, stride=1.1
    )
    epsilon = exact or plain
    while epsilon < plain:
        with suppress(ValueError):  # a little less than one run needs makes no menu
            if Filter(epsilon, delta, menu=[cost]).admits(cost, steps):
                return epsilon
        epsilon = _rounded_up(1.002 * epsilon)
    return plain


def mechanism(sample_rate: float, noise_multiplier: float) -> Cost:
    """The sampled Gaussian mechanism, or the plain one at rate 1."""
    if sample_rate == 1:
        return Gaussian(noise_multiplier)
    return SampledGaussian(sample_rate, noise_multiplier)


def calibrated(
    epsilon: float,
    delta: float,
    *,
    menu: Declared | None,
    planned: Planned,
    note: Callable[[Exception], None],
) -> tuple[float, Filter]:
    """The least noise with which a filter admits a plan, and the filter, nothing of it spent.

    Args:
        epsilon: The budget.
        delta: The budget.
        menu: As in `menu_noise`; None for a filter without a menu.
        planned: As in `menu_noise`.
        note: Told why, where there can be no menu and the filter has none.

    Raises:
        ValueError: No noise is enough for a filter without a menu.
    """

    def enough(noise: float, limit: float) -> bool:
        gate = Filter(limit, delta)
        for cost, count in planned(noise):
            if not gate.admits(cost, count):
                return False
            gate.spend(cost, count)
        return True

    plain = least(lambda noise: enough(noise, epsilon))
    if plain is None:
        needed = least(lambda limit: enough(MOST, limit))
        way = "more epsilon" if needed is None else f"epsilon {needed}"
        steps = sum(count for _, count in planned(MOST))
        raise ValueError(
            f"epsilon must pay for {steps} steps with a noise of at most {MOST:g}, got "
            f"{epsilon!r}. It takes {way}, or fewer steps"
        )
    if menu is not None:
        try:
            return menu_noise(epsilon, delta, menu=menu, planned=planned, near=plain / 1.1)
        except (TypeError, ValueError) as error:
            note(error)
    return plain, Filter(epsilon, delta)


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
    menu: Declared,
    planned: Planned,
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
        """In the order of the menu, whose first cost is the nominal one."""
        wanted = {cost for cost, _ in planned(noise)}
        return [cost for cost in menu(noise) if cost in wanted]

    only_planned(near)  # what can have no menu says so itself, before it is priced
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
    menu: Declared,
    planned: Planned,
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
