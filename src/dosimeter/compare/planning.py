# SPDX-License-Identifier: Apache-2.0
"""Planning: the most steps a budget affords, or the least noise that some steps need.

Both come with the price of being adaptive: what the same budget affords under the exact
accountant with everything fixed beforehand, and under rules that let every choice depend on
what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dosimeter import arguments
from dosimeter.accounting import Filter
from dosimeter.accounting.calibrate import MOST, least, mechanism, menu_noise
from dosimeter.accounting.classic import RdpComposition, Validity
from dosimeter.accounting.classic.composition import distribution
from dosimeter.accounting.tally import largest
from dosimeter.compare.exact import interval
from dosimeter.rdp import Cost
from dosimeter.rounding import exact

_MOST_STEPS = 2**40
_RULES = (
    ("filter with a menu", Validity.FILTER),
    ("filter", Validity.FILTER),
    ("Rényi, tight", Validity.FIXED),
    ("PLD, fixed beforehand", Validity.FIXED),
)


@dataclass(frozen=True)
class Row:
    """What one rule affords.

    Attributes:
        rule: Its name.
        validity: When it holds.
        cost: The mechanism; where noise was sought, that with the least for this rule.
        steps: The most runs of it; where noise was sought, as many as were wanted.
    """

    rule: str
    validity: Validity
    cost: Cost
    steps: int


@dataclass(frozen=True)
class Plan:
    """A mechanism and how many runs of it fit within a budget, under each rule.

    Attributes:
        epsilon: The budget.
        delta: The budget.
        rows: Menu filter, mixture filter (as a ledger has), tight Rényi and exact accounting.
    """

    epsilon: float
    delta: float
    rows: tuple[Row, ...]

    @property
    def cost(self) -> Cost:
        """The mechanism, with the noise of the menu filter where noise was sought."""
        return self.rows[0].cost

    @property
    def steps(self) -> int:
        """Runs under full adaptivity, with the mechanism on the menu."""
        return self.rows[0].steps

    def __str__(self) -> str:
        lines = [f"within ({exact(self.epsilon)}, {exact(self.delta)}):"]
        for row in self.rows:
            lines.append(f"  {row.rule:22} {row.steps:>9} x {row.cost}, {row.validity.value}")
        return "\n".join(lines)


def plan(
    epsilon: float,
    delta: float,
    *,
    cost: Cost | None = None,
    steps: int | None = None,
    sample_rate: float = 1.0,
) -> Plan:
    """The most steps of `cost`, or the least noise that allows `steps`, for each rule.

    Args:
        epsilon: The budget.
        delta: The budget.
        cost: The mechanism whose steps to count; or give `steps` instead.
        steps: How many steps are wanted of a Gaussian mechanism.
        sample_rate: The rate of that mechanism.
    """
    epsilon = arguments.positive("epsilon", epsilon)
    delta = arguments.open_unit("delta", delta)
    if (cost is None) == (steps is None):
        raise ValueError(f"plan must be given a cost or steps, got {cost!r} and {steps!r}")
    if cost is None:
        return Plan(
            epsilon, delta, _noises(epsilon, delta, arguments.count("steps", steps), sample_rate)
        )
    return Plan(epsilon, delta, _counts(epsilon, delta, cost))


def _counts(epsilon: float, delta: float, cost: Cost) -> tuple[Row, ...]:
    """The most steps under each rule."""

    def within(count: int) -> bool:
        return _renyi(cost, count, delta) <= epsilon

    found = (
        _menu_steps(cost, epsilon, delta),
        Filter(epsilon, delta).affordable(cost),
        largest(within),
        _exact_steps(cost, epsilon, delta),
    )
    return tuple(Row(*rule, cost, count) for rule, count in zip(_RULES, found, strict=True))


def _noises(epsilon: float, delta: float, steps: int, rate: float) -> tuple[Row, ...]:
    """The least noise under each rule, to one part in a thousand."""
    budget = Filter(epsilon, delta)
    plain = _found(lambda noise: budget.admits(mechanism(rate, noise), steps), steps)
    renyi = _found(lambda noise: _renyi(mechanism(rate, noise), steps, delta) <= epsilon, steps)
    menu, _ = menu_noise(
        epsilon,
        delta,
        menu=lambda noise: [mechanism(rate, noise)],
        planned=lambda noise: [(mechanism(rate, noise), steps)],
        near=plain,
    )

    def fits(noise: float) -> bool:
        cost = mechanism(rate, noise)
        total = distribution(cost, interval([(cost, 1)])).self_compose(steps)
        return bool(total.get_delta_for_epsilon(epsilon) <= delta)

    # Adding up losses takes long, so the search begins where it should end.
    found = (menu, plain, renyi, _found(fits, steps, near=menu, stride=1.005))
    return tuple(
        Row(*rule, mechanism(rate, noise), steps) for rule, noise in zip(_RULES, found, strict=True)
    )


def _renyi(cost: Cost, count: int, delta: float) -> float:
    rule = RdpComposition(delta=delta)
    rule.spend(cost, count)
    return rule.epsilon


def _menu_steps(cost: Cost, epsilon: float, delta: float) -> int:
    try:
        return Filter(epsilon, delta, menu=[cost]).affordable(cost)
    except ValueError:
        return 0


def _exact_steps(cost: Cost, epsilon: float, delta: float) -> int:
    single = distribution(cost, interval([(cost, 1)]))

    def fits(count: int) -> bool:
        within = single.self_compose(count).get_delta_for_epsilon(epsilon) <= delta
        return bool(count <= _MOST_STEPS and within)

    return largest(fits)


def _found(
    enough: Callable[[float], bool], steps: int, *, near: float = 1.0, stride: float = 2.0
) -> float:
    noise = least(enough, near=near, stride=stride)
    if noise is None:
        raise ValueError(f"steps must be affordable with noise {MOST:g}, got {steps!r}")
    return noise
