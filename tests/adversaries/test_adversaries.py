"""The adversaries reach no more than the truth, and nearly all of it, where it is known exactly."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from mpmath import mp, mpf
from scipy.stats import binom

import dosimeter as dm
from adversaries import counts, player
from adversaries.lots import Lots
from adversaries.observer import Runs, seen_of
from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.compare.adversaries import FiniteMechanism

ROUNDING = 1 + 1e-9


def gaussian(mu, epsilon):
    with mp.workdps(40):
        mu, e = mpf(mu), mpf(epsilon)
        return float(mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu))


def sampled(rate, noise, epsilon, added):
    """One run, by its distribution functions."""
    with mp.workdps(40):
        q, s, e = mpf(rate), mpf(noise), mpf(epsilon)

        def above(cut):
            return (1 - q) * mp.ncdf(-cut / s) + q * mp.ncdf((1 - cut) / s), mp.ncdf(-cut / s)

        inner = (mp.exp(-e) if added else mp.exp(e)) - 1 + q
        if inner <= 0:
            return 0.0
        mixed, plain = above(s * s * mp.log(inner / q) + mpf(1) / 2)
        if added:
            return float((1 - plain) - mp.exp(e) * (1 - mixed))
        return float(mixed - mp.exp(e) * plain)


def binomial(epsilon0, runs, epsilon):
    k = np.arange(runs + 1)
    p = 1 / (1 + np.exp(-epsilon0))
    gain = -np.expm1(np.minimum(epsilon - (2 * k - runs) * epsilon0, 0.0))
    return float(binom.pmf(k, runs, p) @ gain)


@pytest.mark.parametrize(
    ("noise", "runs", "epsilon"),
    [
        *((1.0, 1, 4.9), (10.0, 100, 4.9), (1e4, 10**8, 4.9), (1e4, 10**6, 0.3), (3.0, 40, 25.0)),
        (0.5778053830844289, 1, 13.584706546537017),  # 1 less a chance would be rounded
    ],
)
def test_of_gaussians(noise, runs, epsilon):
    exact = gaussian(np.sqrt(runs) / noise, epsilon)
    spent = [(dm.Gaussian(noise), runs)]
    assert 0.98 * exact <= seen_of(spent, epsilon, exact) <= exact * ROUNDING
    assert counts.summed(spent, epsilon) == pytest.approx(exact, rel=1e-9)
    assert counts.counted(*spent[0], epsilon).reached <= exact * ROUNDING
    assert counts.best_threshold(spent, epsilon)[1] <= exact * ROUNDING


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    ("rate", "noise", "epsilon"),
    [(1e-4, 0.5, 0.1), (0.01, 1.0, 0.005), (0.3, 0.6, 0.2), (0.9, 3.0, 0.5), (1e-3, 20.0, 1e-4)],
)
def test_of_one_sampled_gaussian(rate, noise, epsilon, added):
    exact = sampled(rate, noise, epsilon, added)
    view = Runs(dm.SampledGaussian(rate, noise), added, epsilon=epsilon, delta=1e-9).of(1)
    assert view.hockey_stick(epsilon) <= exact * ROUNDING + 1e-18
    assert view.hockey_stick(epsilon) >= 0.95 * exact - 1e-12


@pytest.mark.parametrize(
    ("size", "runs", "epsilon"), [(0.1, 64, 2.0), (1.0, 1, 0.5), (0.01, 10**4, 3.0)]
)
def test_of_randomised_responses(size, runs, epsilon):
    exact, cost = binomial(size, runs, epsilon), dm.PureDp(size)
    assert 0.98 * exact <= seen_of([(cost, runs)], epsilon, exact) <= exact * ROUNDING
    assert 0.98 * exact <= counts.counted(cost, runs, epsilon).reached <= exact * ROUNDING


def test_of_a_sequence():
    spent = [(dm.Gaussian(20.0), 100), (dm.Gaussian(50.0), 900), (dm.Gaussian(7.0), 3)]
    exact = gaussian(np.sqrt(100 / 400 + 900 / 2500 + 3 / 49), 4.0)
    assert 0.97 * exact <= seen_of(spent, 4.0, exact) <= exact * ROUNDING


def test_of_some_large_output():
    """The event of the first false menu: 16.9 delta."""
    spent = [(dm.SampledGaussian(1e-4, 0.5), 64)]
    threshold, value = counts.best_threshold(spent, 0.1)
    assert value == pytest.approx(16.9e-6, rel=1e-2)
    assert counts.some_output_beyond(spent, threshold, 0.1) == pytest.approx(value, rel=1e-9)
    assert value <= seen_of(spent, 0.1, 1e-6) <= 1.1 * value


class TestPlayers:
    ONE = FiniteMechanism((0.9,), (0.01,))
    TWO = FiniteMechanism((-0.3,), (0.3,))

    def exact(self, readings, spent, p, q, swap, stops):
        """The best of all strategies, from the leaves up."""
        best = max(0.0, p - np.exp(readings[spent]) * q) if stops or spent == 4 else 0.0
        if spent == 4:
            return best
        for mechanism in (self.ONE, self.TWO):
            total = 0.0
            for pair in mechanism.worlds():
                a, b = map(float, reversed(pair) if swap else pair)
                total += self.exact(readings, spent + 1, p * a, q * b, swap, stops)
            best = max(best, total)
        return best

    @pytest.mark.parametrize("stops", [False, True])
    def test_reach_no_more_than_the_best_strategy_and_nearly_as_much(self, stops):
        readings = (0.0, 0.7, 1.0, 1.1, 1.3) if stops else (1.3,) * 5
        exact = max(self.exact(readings, 0, 1.0, 1.0, swap, stops) for swap in (False, True))
        menu = Menu(1.3, 1e-3, 4, (Item(self.ONE, 1, 1), Item(self.TWO, 1, 1)))
        reached = (
            player.stopping(menu, readings, turns=4) if stops else player.adaptive(menu, turns=4)
        )
        assert 0.7 * exact <= reached <= exact * ROUNDING

    def test_who_may_stop_reaches_at_least_what_one_stop_does(self):
        cost, reads = dm.Gaussian(10.0), [1.0, 1.2, 1.4]
        reached = player.stopped(cost, [20], reads, 1e-3)
        single = max(gaussian(np.sqrt(20 * (n + 1)) / 10, e) for n, e in enumerate(reads))
        assert 0.97 * single <= reached <= 3 * single


@pytest.mark.parametrize(("noise", "count"), [(0.8, 1), (0.8, 3), (1.0, 20), (1.0, 150)])
def test_a_lot_reaches_no_more_than_its_runs_and_nearly_all(noise, count):
    """Jumps count for both data sets; by dp-accounting, rounded up."""
    epsilon = 0.1
    lot = Lots(dm.SampledGaussian(1e-3, noise), epsilon, 1e-6, epsilon / 1000).of(count)
    near = lot.near.hockey_stick(epsilon)
    reached = near + max(0.0, lot.p - math.exp(epsilon) * lot.q)
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=1e-3, value_discretization_interval=1e-4
    )
    exact = one.self_compose(count).get_delta_for_epsilon(epsilon)
    assert 0.99 * exact <= reached <= exact
    assert lot.q > 0.1 * exact
