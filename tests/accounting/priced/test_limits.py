"""What no filter can do at small budgets, whatever it makes of the costs spent so far.

A filter sees costs alone. If it admits every fixed schedule whose exact epsilon is at most
epsilon / ratio, it admits every path of an adaptive buyer who never leaves that region, and is
false if she passes delta. That the region here lies within the true one dp-accounting says
(pessimistic, both directions); what she reaches is a lower bound that shares no code with tables.
"""

import math
from functools import lru_cache
from itertools import count, pairwise
from typing import NamedTuple

import pytest
from dp_accounting.pld import privacy_loss_distribution

import dosimeter as dm
from adversaries import player

EPSILON, DELTA = 0.1, 1e-6
BODY, JUMP = dm.SampledGaussian(1e-3, 2.0), dm.SampledGaussian(1e-3, 1.0)
RARER, BROAD = dm.SampledGaussian(1e-3, 0.8), dm.SampledGaussian(1e-2, 4.0)
SMALL, SMALLER = dm.SampledGaussian(1e-4, 1.0), dm.SampledGaussian(1e-4, 2.0)


class Region(NamedTuple):
    """Two costs, runs in a lot, and most lots of the first beside 0, 1, ... of the second."""

    costs: tuple[dm.Cost, dm.Cost]
    sizes: tuple[int, int]
    most: list[int]
    ratio: float
    epsilon: float = EPSILON

    def reached(self, most):
        """What a buyer reaches, in deltas, who stays within so many lots."""
        return player.within(self.costs, self.sizes, most, self.epsilon, DELTA) / DELTA


def lots(written):
    return [int(number) for number in written.split()]


_TWO_AND_ONE = lots("36 35 34 32 31 29 28 27 25 24 22 20 19 17 16 14 12 11 9 7 5 4 2 0")
_TWO_RATES = lots(
    "46 45 44 42 41 40 38 37 36 34 33 31 30 28 27 26 24 23 21 20 18 16 15 13 12 10 8 6 5 3 1"
)
FEW = Region((JUMP, RARER), (2, 1), [77, 60, 39, 14], 1.05)
BEATEN = {
    "noise 2 and 1": (
        Region((BODY, JUMP), (60, 6), _TWO_AND_ONE, 1.08),
        1.005,
    ),
    "noise 1 and 0.8": (FEW._replace(most=[79, 62, 42, 17], ratio=1.04), 1.02),
}
"""Regions, and what a buyer passes in each, in deltas."""

SLOWER = {
    "noise 2 and 1, half the budget": (
        Region(
            (BODY, JUMP), (10, 1), [56, 53, 50, 47, 43, 39, 34, 29, 22, 15, 8, 0], 1.10, EPSILON / 2
        ),
        1.04,
    ),
    "rates 0.001 and 0.01": (
        Region((JUMP, BROAD), (3, 3), _TWO_RATES, 1.08),
        1.01,
    ),
    "rate 0.0001": (
        Region((SMALL, SMALLER), (8, 70), [*range(47, 19, -1), *range(20, -1, -1)], 1.04, 0.01),
        1.01,
    ),
}


@lru_cache
def exact(cost, interval):
    """The loss of one run by dp-accounting, both directions, rounded up."""
    return privacy_loss_distribution.from_gaussian_mechanism(
        cost.noise_multiplier,
        sampling_prob=cost.sample_rate,
        value_discretization_interval=interval,
    )


def within_delta(region, lots):
    """Whether a fixed schedule needs at most epsilon / ratio by exact accounting."""
    first, *others = [
        exact(cost, region.epsilon / 1000).self_compose(size * lot)
        for cost, size, lot in zip(region.costs, region.sizes, lots, strict=True)
        if lot
    ]
    for other in others:
        first = first.compose(other)
    return first.get_delta_for_epsilon(region.epsilon / region.ratio) <= DELTA


@pytest.mark.parametrize(
    ("region", "passes"),
    [
        *(pytest.param(*case, id=name) for name, case in BEATEN.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOWER.items()),
    ],
)
def test_no_filter_admits_every_schedule_near_its_exact_epsilon(region, passes):
    for other, lots in enumerate(region.most):
        assert within_delta(region, (lots, other))
    assert region.reached(region.most) > passes


def sold(most, low, high):
    """Most lots of the first that whoever sells all of `most` sells beside 0, 1, ... others.

    At any price of the second between `low` and `high` lots of the first.
    """
    for other in count():
        lots = max(m + min((k - other) * low, (k - other) * high) for k, m in enumerate(most))
        if lots < 0:
            return
        yield math.floor(lots + 1e-9)


def test_no_fixed_price_of_a_run_sells_all_of_a_region_that_a_filter_might():
    """Two jumps of which a budget has few: one price for each run must sell too much somewhere.

    Below the lowest price looked at more is sold, and above the highest one more beside the others.
    """
    for other, lots in enumerate(FEW.most):
        assert within_delta(FEW, (lots, other))
    steps = [one - two for one, two in pairwise(FEW.most)]
    for low in range(min(steps), max(steps)):
        assert FEW.reached(list(sold(FEW.most, low, low + 1))) > 1.02
    highest = list(sold(FEW.most, max(steps), max(steps)))
    assert FEW.reached(highest[: len(FEW.most)]) > 1.02
    assert FEW.reached(FEW.most) < 1


@pytest.mark.parametrize(
    ("cost", "lot", "lots"), [(BODY, 83, 30), (JUMP, 13, 13)], ids=["noise 2", "noise 1"]
)
def test_a_buyer_of_one_cost_alone_stays_within_delta(cost, lot, lots):
    """With nearly all the runs that its budget has: so it is choosing that takes her past it."""
    other = BODY if cost is JUMP else JUMP
    reached = player.within((cost, other), (lot, 1), [lots], EPSILON, DELTA)
    assert 0.7 * DELTA < reached <= DELTA
