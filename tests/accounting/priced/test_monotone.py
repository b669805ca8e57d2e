"""A larger budget admits what a smaller one does: every schedule, counted exactly.

Bundles are cut anew for each budget, so that two that are close may each sell something that the
other does not (docs/prices.md). How close, is shown here.
"""

import math
import random

import numpy as np
import pytest
from scipy.special import log_ndtr

import dosimeter as dm
from dosimeter.accounting.priced.menu import make_menu

DELTA = 9e-7


def dearest(small, large):
    """The most quanta of one menu that anything costs which the other sells, by trying it all."""
    most = np.zeros(small.quanta + 1, dtype=np.int64)
    for one, two in zip(small.items, large.items, strict=True):
        best = most.copy()
        for bundles in range(1, small.quanta // one.price + 1):
            spent = bundles * one.price
            price = -(-bundles * one.steps // two.steps) * two.price
            best[spent:] = np.maximum(best[spent:], most[: len(most) - spent] + price)
        most = best
    return int(most[-1])


def covers(large, small):
    return dearest(small, large) <= large.quanta


def gaussian_runs(noise, epsilon, delta):
    """How many runs there are room for, from the closed form of the Gaussian mechanism."""

    def within(runs):
        mu = math.sqrt(runs) / noise
        far = epsilon / mu
        reached = math.exp(log_ndtr(mu / 2 - far)) - math.exp(epsilon + log_ndtr(-mu / 2 - far))
        return reached <= delta

    low, high = 0, 1
    while within(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 3.0, 20.0])
@pytest.mark.parametrize("noise", [30.0, 2000.0])
def test_one_mechanism_is_sold_run_by_run_at_its_exact_price(epsilon, noise):
    # Beyond a million runs the lattice is coarse for each.
    exact = gaussian_runs(noise, epsilon, DELTA)
    if not 1 <= exact <= 10**6:
        return
    menu = make_menu([dm.Gaussian(noise)], epsilon, DELTA)
    assert menu.items[0].steps == menu.items[0].price == 1
    assert 0.99 * exact - 1 <= menu.quanta <= exact


@pytest.mark.parametrize(
    "cost",
    [dm.Gaussian(40.0), dm.Laplace(9.0), dm.SampledGaussian(0.01, 1.0), dm.PureDp(0.05)],
    ids=str,
)
def test_more_runs_of_one_mechanism_fit_into_a_larger_budget(cost):
    epsilons = [1.1 * 1.0015**turn for turn in range(5)]
    sold = [make_menu([cost], epsilon, DELTA).quanta for epsilon in epsilons]
    assert sold == sorted(sold)


def drawn(seed):
    """One mechanism of which a budget has some runs, and a second budget that is larger."""
    rng = random.Random(seed)

    def between(low, high):
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    while True:
        small, delta = between(0.05, 20.0), between(1e-9, 1e-4)
        cost = rng.choice(
            [
                dm.SampledGaussian(between(1e-3, 0.2), between(0.6, 10.0)),
                dm.Gaussian(between(3.0, 300.0)),
                dm.Laplace(between(3.0, 300.0)),
            ]
        )
        if 1 <= dm.Filter(small, delta).affordable(cost) <= 3000:
            return cost, small, small * (1 + between(0.0015, 0.5)), delta


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 100), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_what_a_budget_admits_of_any_one_mechanism_a_larger_one_does(seeds):
    for seed in seeds:
        cost, small, large, delta = drawn(seed)
        sold = [make_menu([cost], epsilon, 0.9 * delta).quanta for epsilon in (small, large)]
        assert sold == sorted(sold), (seed, cost, small, large, delta)


PLAIN = [dm.Gaussian(100.0), dm.Gaussian(30.0), dm.Laplace(40.0)]


@pytest.mark.slow
def test_a_mix_fits_into_a_budget_that_is_a_little_larger():
    menus = [make_menu(PLAIN, 2.2 * times, DELTA) for times in (1.0, 1.05, 1.3)]
    for place, small in enumerate(menus):
        for large in menus[place + 1 :]:
            assert covers(large, small)


def test_a_menu_that_sells_less_of_something_does_not_pass_for_a_larger_one():
    menu = make_menu(PLAIN[:2], 2.2, DELTA)
    assert covers(menu, menu)
    first, second = menu.items
    dearer = type(second)(second.cost, second.steps, second.price + 1)
    assert not covers(type(menu)(menu.epsilon, menu.delta, menu.quanta, (first, dearer)), menu)
