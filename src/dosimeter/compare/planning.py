# SPDX-License-Identifier: Apache-2.0
"""Planning: the most steps a budget affords, or the least noise that some steps need.

Both come with the price of being adaptive: what the same budget affords under the exact
accountant with everything fixed beforehand, and under rules that let every choice depend on
what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from dosimeter import arguments
from dosimeter.accounting import Filter
from dosimeter.accounting.account import largest
from dosimeter.accounting.classic import RdpComposition, Validity
from dosimeter.accounting.priced.losses import Direction
from dosimeter.accounting.priced.menu import Losses, hockey_stick, lattice_level
from dosimeter.accounting.priced.rates import Scale
from dosimeter.compare.exact import distribution, interval
from dosimeter.compare.schedule import mechanism
from dosimeter.rdp import Cost
from dosimeter.rounding import exact

_MOST_NOISE = 1e4
_MOST_STEPS = 2**40


@dataclass(frozen=True)
class Row:
    """How many steps one rule affords."""

    rule: str
    validity: Validity
    steps: int


@dataclass(frozen=True)
class Plan:
    """A mechanism, and how many runs of it each rule affords within a budget.

    Attributes:
        cost: The mechanism.
        epsilon: The budget.
        delta: The budget.
        rows: Menu filter, mixture filter, tight Rényi and exact accounting.
    """

    cost: Cost
    epsilon: float
    delta: float
    rows: tuple[Row, ...]

    @property
    def steps(self) -> int:
        """Runs under full adaptivity, with the mechanism on the menu."""
        return self.rows[0].steps

    def __str__(self) -> str:
        most = max(row.steps for row in self.rows)
        lines = [f"{self.cost} within ({exact(self.epsilon)}, {exact(self.delta)}):"]
        for row in self.rows:
            share = f"{row.steps / most:7.1%}" if most else "       "
            lines.append(f"  {row.rule:34} {row.steps:>9} steps {share}  {row.validity.value}")
        return "\n".join(lines)


def plan(
    epsilon: float,
    delta: float,
    *,
    cost: Cost | None = None,
    steps: int | None = None,
    sample_rate: float = 1.0,
) -> Plan:
    """The most steps of `cost`, or the mechanism with the least noise that allows `steps`.

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
        cost = _least_noise(epsilon, delta, arguments.count("steps", steps), sample_rate)
    rdp = RdpComposition(delta=delta)
    rows = (
        Row("filter with a menu", Validity.FILTER, _menu_steps(cost, epsilon, delta)),
        Row("filter", Validity.FILTER, Filter(epsilon, delta).affordable(cost)),
        Row("Rényi, tight", Validity.FIXED, largest(lambda n: _within(rdp, cost, n, epsilon))),
        Row("PLD, fixed beforehand", Validity.FIXED, _exact_steps(cost, epsilon, delta)),
    )
    return Plan(cost, epsilon, delta, rows)


def _within(rule: RdpComposition, cost: Cost, count: int, epsilon: float) -> bool:
    trial = RdpComposition(delta=rule.delta)
    trial.spend(cost, count)
    return trial.epsilon <= epsilon


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


def _least_noise(epsilon: float, delta: float, steps: int, rate: float) -> Cost:
    """The least noise, to one part in a thousand, with which a menu filter admits `steps`."""
    share = 0.9 * delta * (1 - 1e-9)

    def enough(noise: float) -> bool:
        cost = mechanism(rate, noise)
        losses = Losses(Scale.of(cost, epsilon, share), share, lattice_level(epsilon) + 1)
        return all(hockey_stick(losses.of(cost, steps, way), epsilon) <= share for way in Direction)

    low, high = 0.2, 0.4
    if not enough(_MOST_NOISE):
        raise ValueError(f"steps must be affordable with noise {_MOST_NOISE:g}, got {steps!r}")
    while not enough(high):
        low, high = high, 2 * high
    while high / low > 1.0005:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    # The menu sells whole bundles, so a little more noise may be needed than for the sum.
    for raised in range(40):
        cost = mechanism(rate, round(high * 1.001**raised, 6))
        if _menu_steps(cost, epsilon, delta) >= steps:
            return cost
    raise ArithmeticError(f"no noise found for {steps} steps; the search should have found one")
