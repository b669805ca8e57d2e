"""Theorem: Mironov, Talwar and Zhang 2019. Oracle: 50-digit sums and quadrature."""

import itertools
import math
import time

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp as dp_accounting_rdp
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

import dosimeter as dm
import oracles
from dosimeter.accounting.weights import DEFAULT_ORDERS

RATES = [1e-6, 1e-3, 0.01024, 0.3, 0.999]
NOISES = [0.3, 1.0, 4.0, 200.0]


def relative_excess(value, exact):
    return float((mpf(float(value)) - exact) / exact)


@pytest.mark.parametrize(("rate", "noise"), list(itertools.product(RATES, NOISES)))
def test_whole_orders_are_exact_and_never_low(rate, noise):
    with mp.workdps(50):
        orders = [2, 3, 8, 31, 128]
        for order, value in zip(orders, dm.SampledGaussian(rate, noise).rdp(orders), strict=True):
            excess = relative_excess(value, oracles.sampled_gaussian_rdp(rate, noise, order))
            assert 0 <= excess < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "noise"), list(itertools.product(RATES, NOISES)))
def test_order_1024_is_exact_and_never_low(rate, noise):
    with mp.workdps(50):
        value = dm.SampledGaussian(rate, noise).rdp([1024])[0]
        excess = relative_excess(value, oracles.sampled_gaussian_rdp(rate, noise, 1024))
    assert 0 <= excess < 1e-10


@pytest.mark.parametrize(
    ("rate", "noise", "order"),
    [
        *[
            (1e-6, 0.3, 1.25),
            (1e-6, 200, 11.5),
            (0.01024, 1, 2.5),
            (0.3, 0.6, 1.75),
            (0.999, 4, 9.5),
        ],
        (1e-24, 0.25, 1.5),
    ],
)
def test_orders_between_are_tight_and_never_low(rate, noise, order):
    # The moment exceeds 1 by about the square of the rate.
    with mp.workdps(50 + round(-2 * math.log10(rate))):
        value = dm.SampledGaussian(rate, noise).rdp([order])[0]
        excess = relative_excess(value, oracles.sampled_gaussian_rdp(rate, noise, order))
    assert 0 <= excess < 2e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "noise"), list(itertools.product(RATES, [0.3, 0.6, 1.0, 20.0, 200.0]))
)
def test_orders_between_on_a_wide_grid(rate, noise):
    with mp.workdps(50):
        orders = [1.01, 1.5, 2.25, 6.5, 11.5]
        for order, value in zip(orders, dm.SampledGaussian(rate, noise).rdp(orders), strict=True):
            excess = relative_excess(value, oracles.sampled_gaussian_rdp(rate, noise, order))
            assert 0 <= excess < 2e-9


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.29])
@pytest.mark.parametrize("rate", [1e-20, 1e-24, 1e-30, 1e-60])
def test_tiny_rates_do_not_cancel_between_whole_orders(rate, noise):
    """A Rényi curve does not fall, and lies below the chord of its whole orders."""
    cost = dm.SampledGaussian(rate, noise)
    for order in (2.25, 3.5, 7.75):
        below, above = cost.rdp([math.floor(order), math.ceil(order)])
        assert below * (1 - 1e-9) <= cost.rdp([order])[0] <= above


def test_small_noise_falls_back_to_a_sound_chord():
    with mp.workdps(30):
        value = dm.SampledGaussian(0.01, 0.02).rdp([1.5, 7.3, 900.7])
        whole = dm.SampledGaussian(0.01, 0.02).rdp([2, 8, 901])
    assert np.all(value <= whole)
    below = dm.SampledGaussian(0.01, 0.02).rdp([1.01, 7, 900])
    assert np.all(value >= below)


@pytest.mark.parametrize(("rate", "noise"), [(0.01024, 1.0), (0.5, 0.7), (0.2, 3.0)])
@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
def test_the_other_direction_costs_no_more(rate, noise, order):
    with mp.workdps(30):
        forth = oracles.sampled_gaussian_moment(rate, noise, order)
        back = oracles.sampled_gaussian_moment(rate, noise, order, swapped=True)
    assert back <= forth


@given(rate=st.floats(1e-6, 1.0), noise=st.floats(0.3, 200.0))
def test_agrees_with_dp_accounting(rate, noise):
    orders = [2.0, 2.5, 5.0, 10.5, 32.0, 256.0]
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    theirs = dp_accounting_rdp.RdpAccountant(orders).compose(event).rdp
    ours = dm.SampledGaussian(rate, noise).rdp(orders)
    # Theirs loses digits of small costs to cancellation, and overstates between whole orders.
    slack = 1e-12 / (np.array(orders) - 1)
    assert np.all(ours <= theirs * (1 + 1e-8) + slack)
    whole = np.array(orders) == np.floor(orders)
    assert np.all((ours >= theirs * (1 - 1e-8) - slack)[whole])


@given(rate=st.floats(1e-6, 0.9), noise=st.floats(0.3, 100.0), factor=st.floats(1.001, 2.0))
def test_cost_falls_with_noise_and_rises_with_rate(rate, noise, factor):
    cost = dm.SampledGaussian(rate, noise).rdp(DEFAULT_ORDERS)
    quieter = dm.SampledGaussian(rate, noise * factor).rdp(DEFAULT_ORDERS)
    more = dm.SampledGaussian(min(1.0, rate * factor), noise).rdp(DEFAULT_ORDERS)
    assert np.all(quieter <= cost * (1 + 2e-9))
    assert np.all(more >= cost * (1 - 2e-9))


def test_full_sampling_is_the_gaussian():
    assert np.array_equal(
        dm.SampledGaussian(1.0, 3.0).rdp(DEFAULT_ORDERS), dm.Gaussian(3.0).rdp(DEFAULT_ORDERS)
    )


@pytest.mark.parametrize(
    ("rate", "noise"),
    [
        (5e-324, 1.0),
        (5e-310, 0.3),
        (0.5, 5e-324),
        (0.5, 1e-200),
        (0.5, 1e200),
        (1e-300, 1e300),
        (0.5, 1e308),
    ],
)
def test_extreme_parameters_give_a_positive_cost(rate, noise):
    curve = dm.SampledGaussian(rate, noise).rdp(DEFAULT_ORDERS)
    assert np.all(curve > 0)
    assert not np.isnan(curve).any()


def test_a_new_mechanism_takes_at_most_three_milliseconds():
    dm.SampledGaussian(0.02, 1.5).rdp(DEFAULT_ORDERS)
    best = math.inf
    for i in range(20):
        mechanism = dm.SampledGaussian(0.02 + i * 1e-5, 1.5)
        start = time.perf_counter()
        mechanism.rdp(DEFAULT_ORDERS)
        best = min(best, time.perf_counter() - start)
    assert best <= 3e-3
