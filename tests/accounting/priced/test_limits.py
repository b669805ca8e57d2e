"""What no filter can do at small budgets, whatever it makes of the costs spent so far.

A filter sees costs alone. If it admits every fixed schedule whose exact epsilon is at most
epsilon / ratio, it admits every path of an adaptive buyer who never leaves that region, and is
false if she passes delta. That the region here lies within the true one dp-accounting says
(pessimistic, both directions); what she reaches is a lower bound that shares no code with tables.
"""

from functools import lru_cache

import pytest
from dp_accounting.pld import privacy_loss_distribution

import dosimeter as dm
from adversaries import player

EPSILON, DELTA = 0.1, 1e-6
BODY, JUMP = dm.SampledGaussian(1e-3, 2.0), dm.SampledGaussian(1e-3, 1.0)
RARER, BROAD = dm.SampledGaussian(1e-3, 0.8), dm.SampledGaussian(1e-2, 4.0)

BEATEN = {
    "noise 2 and 1": (
        (BODY, JUMP),
        (90, 8),
        [24, 23, 22, 21, 20, 18, 17, 16, 14, 13, 11, 10, 8, 7, 5, 4, 2, 1],
        1.07,
        1.01,
    ),
    "rates 0.001 and 0.01": (
        (JUMP, BROAD),
        (9, 8),
        [16, 15, 14, 13, 11, 10, 9, 7, 6, 4, 3, 1, 0],
        1.05,
        1.09,
    ),
    "noise 1 and 0.8": ((JUMP, RARER), (8, 1), [20, 16, 11, 4], 1.02, 1.02),
}
"""Costs, runs in a lot, most lots of the first beside 0, 1, ... of the second, ratio, deltas."""


@lru_cache
def exact(cost):
    """The loss of one run by dp-accounting, both directions, rounded up."""
    return privacy_loss_distribution.from_gaussian_mechanism(
        cost.noise_multiplier, sampling_prob=cost.sample_rate, value_discretization_interval=1e-4
    )


def within_delta(costs, counts, epsilon):
    """Whether a fixed schedule needs no more than epsilon by exact accounting."""
    first, *others = [
        exact(cost).self_compose(count) for cost, count in zip(costs, counts, strict=True) if count
    ]
    for other in others:
        first = first.compose(other)
    return first.get_delta_for_epsilon(epsilon) <= DELTA


@pytest.mark.parametrize(
    ("costs", "sizes", "most", "ratio", "passes"), BEATEN.values(), ids=BEATEN.keys()
)
def test_no_filter_admits_every_schedule_near_its_exact_epsilon(costs, sizes, most, ratio, passes):
    for other, lots in enumerate(most):
        counts = (lots * sizes[0], other * sizes[1])
        assert within_delta(costs, counts, EPSILON / ratio)
    assert player.within(costs, sizes, most, EPSILON, DELTA) > passes * DELTA


@pytest.mark.parametrize(
    ("cost", "lot", "lots"), [(BODY, 83, 30), (JUMP, 13, 13)], ids=["noise 2", "noise 1"]
)
def test_a_buyer_of_one_cost_alone_stays_within_delta(cost, lot, lots):
    """With nearly all the runs that its budget has: so it is choosing that takes her past it."""
    other = BODY if cost is JUMP else JUMP
    reached = player.within((cost, other), (lot, 1), [lots], EPSILON, DELTA)
    assert 0.7 * DELTA < reached <= DELTA
