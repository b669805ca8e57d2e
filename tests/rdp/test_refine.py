"""Gradual answers cost what the last one costs, and are as good."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dosimeter as dm

ORDERS = [1.25, 2.0, 8.0, 64.0]
noises = st.lists(st.floats(0.01, 1e4), min_size=2, max_size=9, unique=True)


@given(noises=noises)
def test_the_costs_telescope(noises):
    costs = [dm.Gaussian(noise) for noise in sorted(noises, reverse=True)]
    total = costs[0].rdp(ORDERS)
    for old, new in itertools.pairwise(costs):
        total = total + dm.refine(old, new).cost.rdp(ORDERS)
    assert np.allclose(total, costs[-1].rdp(ORDERS), rtol=1e-9)


@given(noises=noises)
def test_the_mean_has_the_noise_that_was_asked_for(noises):
    """The variance of the weighted mean of independent answers, by hand."""
    sizes = sorted(noises, reverse=True)
    variance, shares = sizes[0] ** 2, 1.0
    for old, new in itertools.pairwise(sizes):
        step = dm.refine(dm.Gaussian(old), dm.Gaussian(new))
        variance = (1 - step.weight) ** 2 * variance + (
            step.weight * step.cost.noise_multiplier
        ) ** 2
        shares = step.combine(shares, 1.0)
        assert math.isclose(variance, new**2, rel_tol=1e-7)
    assert shares == pytest.approx(1.0)  # the true answer keeps its weight


def test_a_hair_less_noise_has_a_finite_price():
    near = dm.refine(dm.Gaussian(1.0), dm.Gaussian(math.nextafter(1.0, 0.0)))
    assert 1e7 < near.cost.noise_multiplier < math.inf
    assert 0 < near.weight < 1e-15


def test_an_odometer_reads_what_the_last_answer_costs_alone():
    gradual, at_once, in_full = (dm.Odometer(1e-6) for _ in range(3))
    levels = [dm.Gaussian(20.0 * 0.7**n) for n in range(8)]
    gradual.spend(levels[0])
    for old, new in itertools.pairwise(levels):
        gradual.spend(dm.refine(old, new).cost)
    at_once.spend(levels[-1])
    for level in levels:
        in_full.spend(level)
    assert gradual.epsilon == pytest.approx(at_once.epsilon, rel=1e-9)
    assert in_full.epsilon > 1.3 * at_once.epsilon


def test_whoever_stops_when_they_are_content_has_paid_for_no_more():
    """Under a filter that affords the last answer at once, all of the way to it is admitted."""
    levels = [dm.Gaussian(8.0 * 0.8**n) for n in range(6)]
    gate = dm.Filter(3.0, 1e-6)
    most = gate.affordable(levels[-1])
    assert most > 0
    gate.spend(levels[-1], most - 1)
    gate.spend(levels[0])
    for old, new in itertools.pairwise(levels):
        gate.spend(dm.refine(old, new).cost)
    assert gate.affordable(levels[-1]) == 0


def test_arrays_are_refined_too():
    step = dm.refine(dm.Gaussian(2.0), dm.Gaussian(1.0))
    assert step.weight == 0.75
    assert np.array_equal(step.combine(np.array([0.0, 4.0]), np.array([4.0, 0.0])), [3.0, 1.0])


@pytest.mark.parametrize("cost", [dm.SampledGaussian(0.1, 1.0), dm.Laplace(1.0), 1.0, None])
def test_what_is_no_gaussian_answer_is_refused(cost):
    for pair in ((cost, dm.Gaussian(1.0)), (dm.Gaussian(9.0), cost)):
        with pytest.raises(TypeError, match=r"must be the Gaussian cost.*pay in full"):
            dm.refine(*pair)


def test_more_noise_and_other_neighbours_are_refused():
    for new in (2.0, 2.5):
        with pytest.raises(ValueError, match="new must have less noise"):
            dm.refine(dm.Gaussian(2.0), dm.Gaussian(new))
    users = dm.Gaussian(1.0, neighbours=dm.Neighbours.ADD_REMOVE_USER)
    with pytest.raises(ValueError, match="new must be for neighbours"):
        dm.refine(dm.Gaussian(2.0), users)
    assert (
        dm.refine(dm.Gaussian(2.0, neighbours=users.neighbours), users).cost.neighbours
        is users.neighbours
    )


def test_a_sampled_answer_would_not_telescope():
    """Why it is refused: two samples at the noises of a refinement cost more than the last one."""
    step = dm.refine(dm.Gaussian(2.0), dm.Gaussian(1.0))
    apart = dm.SampledGaussian(0.1, 2.0).rdp(ORDERS) + dm.SampledGaussian(
        0.1, step.cost.noise_multiplier
    ).rdp(ORDERS)
    assert not np.allclose(apart, dm.SampledGaussian(0.1, 1.0).rdp(ORDERS), rtol=0.1)
