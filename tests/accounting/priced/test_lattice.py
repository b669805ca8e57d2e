"""Losses on the lattice dominate the exact ones: at every epsilon, both ways, after sums too."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
from dosimeter.accounting.priced.items import Direction
from dosimeter.accounting.priced.lattice import LatticeError, Measure, Runs, step_of
from dosimeter.accounting.priced.losses import single_loss
from dosimeter.compare.adversaries import FiniteMechanism

REMOVE, ADD = Direction.REMOVE, Direction.ADD
EPSILONS = [-8.0, -1.0, -0.1, -0.0102, -1e-3, 0.0, 1e-4, 1e-3, 0.0301, 0.1, 0.5, 1.0, 3.0, 7.0]


def profile(measure, epsilon):
    """E (1 - e^{epsilon - X})+ of a measure."""
    x = (measure.lo + np.arange(len(measure.p))) * measure.step
    gain = np.where(x > epsilon, -np.expm1(np.minimum(epsilon - x, 0.0)), 0.0)
    return (float(gain @ measure.p) + measure.inf) * (1 + measure.rel)


def mean_of_u(measure):
    x = (measure.lo + np.arange(len(measure.p))) * measure.step
    return float(np.exp(-x) @ measure.p)


def exact_sampled(rate, noise, direction, epsilon):
    """The hockey stick of (1-q) N(0) + q N(1) and N(0), from distribution functions."""
    q, s, e = mpf(rate), mpf(noise), mpf(epsilon)

    def tail(cut, mean):
        return mp.ncdf((mean - cut) / s)

    def mixed(cut):
        return (1 - q) * tail(cut, 0) + q * tail(cut, 1)

    def output(loss):
        inner = mp.exp(loss) - 1 + q
        return s * s * mp.log(inner / q) + mpf(1) / 2 if inner > 0 else None

    if direction is REMOVE:
        cut = output(e)
        return 1 - mp.exp(e) if cut is None else mixed(cut) - mp.exp(e) * tail(cut, 0)
    cut = output(-e)
    if cut is None:
        return mpf(0)
    return (1 - tail(cut, 0)) - mp.exp(e) * (1 - mixed(cut))


def exact_laplace(scale, epsilon):
    e, loss = mpf(epsilon), 1 / mpf(scale)
    if e >= loss:
        return mpf(0)
    return 1 - mp.exp((e - loss) / 2) if e > -loss else 1 - mp.exp(e)


def exact_response(epsilon0, epsilon, runs=1):
    """Randomised response run several times: binomial."""
    e0, e = mpf(epsilon0), mpf(epsilon)
    p = 1 / (1 + mp.exp(-e0))
    terms = []
    for k in range(runs + 1):
        ways = mp.binomial(runs, k)
        loss = (2 * k - runs) * e0
        chance = ways * p**k * (1 - p) ** (runs - k)
        terms.append(chance * max(mpf(0), 1 - mp.exp(e - loss)))
    return mp.fsum(terms)


MECHANISMS = [
    (dm.SampledGaussian(rate, noise), lambda d, e, q=rate, s=noise: exact_sampled(q, s, d, e))
    for rate, noise in [
        (512 / 50000, 1.0),
        (0.001, 0.6),
        (1e-4, 1.0),
        (0.2, 8.0),
        (0.05, 2.0),
        (0.9, 0.5),
        (0.01, 0.2),
    ]
]
MECHANISMS += [
    (dm.Gaussian(noise), lambda d, e, s=noise: exact_sampled(1, s, REMOVE, e))
    for noise in (0.2, 1.0, 30.0, 1000.0)
]
MECHANISMS += [
    (dm.Laplace(scale), lambda d, e, b=scale: exact_laplace(b, e)) for scale in (0.5, 10.0, 777.0)
]
MECHANISMS += [
    (dm.PureDp(size), lambda d, e, s=size: exact_response(s, e)) for size in (0.1, 1.2345, 1e-3)
]


@pytest.mark.parametrize(
    ("cost", "exact"), [pytest.param(*pair, id=str(pair[0])) for pair in MECHANISMS]
)
@pytest.mark.parametrize("direction", Direction)
class TestOneRun:
    def test_dominates_the_exact_profile_at_every_epsilon(self, cost, exact, direction):
        measure = single_loss(cost, direction, 4)
        x = (measure.lo + np.arange(len(measure.p))) * measure.step
        inside = np.interp([0.02, 0.3, 0.5, 0.8, 0.999], np.cumsum(measure.p), x)
        with mp.workdps(40):
            for epsilon in [*EPSILONS, *inside.tolist()]:
                true = exact(direction, epsilon)
                assert profile(measure, epsilon) >= true

    def test_is_close_to_it(self, cost, exact, direction):
        measure = single_loss(cost, direction, 0)
        with mp.workdps(40):
            for epsilon in (0.0, measure.step, 0.01, 0.1):
                true = float(exact(direction, epsilon))
                assert profile(measure, epsilon) <= true + 0.1 * measure.step + 1e-8

    def test_keeps_mass_and_mean(self, cost, exact, direction):
        measure = single_loss(cost, direction, 4)
        assert 1 <= measure.mass <= 1 + 1e-9
        assert np.all(measure.p >= 0)
        assert 1 - 1e-8 - 2 * measure.inf <= mean_of_u(measure) <= 1 + 1e-9 or measure.lo < -2000


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("level", [-9, -8, -5, -2, 0, 4])
@pytest.mark.parametrize("noise", [0.2, 0.5, 0.8, 3.0, 1e4])
@pytest.mark.parametrize("rate", [1e-6, 1e-4, 0.01, 0.9])
def test_a_long_tail_never_makes_the_lattice_coarser_than_asked(rate, noise, level, direction):
    """That of rate 1e-4 and noise 0.5 at level -3 once did, and a menu sold 17 delta."""
    reach = 1500 * step_of(level)
    measure = single_loss(dm.SampledGaussian(rate, noise), direction, level, reach)
    assert measure.level <= level
    assert 1 <= measure.mass <= 1 + 1e-8
    with mp.workdps(40):
        for epsilon in (0.0, reach / 7, reach / 2, 0.99 * reach, reach + 1.0):
            assert profile(measure, epsilon) >= exact_sampled(rate, noise, direction, epsilon)


class TestSums:
    @pytest.mark.parametrize("count", [1, 2, 7, 98, 1000])
    def test_of_gaussians_dominate_the_exact_gaussian(self, count):
        """k runs of noise s are one of s / sqrt(k), exactly."""
        runs = Runs(single_loss(dm.Gaussian(40.0), REMOVE, 4), 4, top=1e-18, bottom=1e-10)
        measure = runs.of(count)
        with mp.workdps(40):
            noise = 40 / mp.sqrt(count)
            for epsilon in [0.0, 0.05, 0.1, 0.5, 1.0, 2.0, 4.0]:
                true = exact_sampled(1, noise, REMOVE, epsilon)
                assert profile(measure, epsilon) >= true
                if true > 1e-10 and count > 1:
                    coarse = 60 * (measure.step * noise) ** 2 + 1e-3
                    assert profile(measure, epsilon) <= true * (1 + coarse) + 1e-12

    @pytest.mark.parametrize("count", [2, 13, 64])
    def test_of_responses_dominate_the_exact_binomial(self, count):
        runs = Runs(single_loss(dm.PureDp(0.1), REMOVE, 2), 2, top=1e-18, bottom=1e-10)
        with mp.workdps(40):
            for epsilon in [-1.0, 0.0, 0.05, 0.55, 1.0, 2.0]:
                true = exact_response(0.1, epsilon, count)
                value = profile(runs.of(count), epsilon)
                assert value >= true
                assert value <= true * (1 + 2e-2) + 1e-9

    def test_match_dp_accounting_on_dp_sgd(self):
        from dp_accounting import pld

        distribution = pld.privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=512 / 50000, value_discretization_interval=1e-4
        ).self_compose(98)
        cost = dm.SampledGaussian(512 / 50000, 1.0)
        sums = [
            Runs(single_loss(cost, way, 4), 4, top=1e-18, bottom=1e-9).of(98) for way in Direction
        ]
        for epsilon in (0.1, 0.5, 1.0):
            ours = max(profile(measure, epsilon) for measure in sums)
            theirs = distribution.get_delta_for_epsilon(epsilon)
            assert ours == pytest.approx(theirs, rel=2e-3)

    def test_a_sum_in_parts_is_the_sum(self):
        runs = Runs(single_loss(dm.Laplace(10.0), REMOVE, 0), 0, top=0.0, bottom=0.0)
        one, two, five = runs.of(2), runs.of(3), runs.of(5)
        total = one.plus(two)
        assert total.lo == five.lo
        assert np.allclose(total.p, five.p, rtol=1e-12, atol=1e-300)


class TestMeasure:
    measure = Measure(0, -3, np.array([0.1, 0.2, 0.3, 0.25, 0.15]), 1e-9, 0.0)

    def test_coarser_keeps_mass_and_mean_of_u_and_dominates(self):
        coarse = self.measure.coarser()
        assert coarse.step == 2 * self.measure.step
        assert coarse.p.sum() == pytest.approx(self.measure.p.sum(), rel=1e-15)
        assert mean_of_u(coarse) == pytest.approx(mean_of_u(self.measure), rel=1e-14)
        for epsilon in np.linspace(-8, 8, 200) * self.measure.step:
            assert profile(coarse, epsilon) >= profile(self.measure, epsilon) * (1 - 1e-13)

    def test_pruning_only_raises_expectations(self):
        pruned = self.measure.pruned(0.2, 0.15)
        assert len(pruned.p) == 3
        assert pruned.mass >= self.measure.mass
        for epsilon in np.linspace(-8, 8, 100) * self.measure.step:
            assert profile(pruned, epsilon) >= profile(self.measure, epsilon)
        assert self.measure.pruned(0.9, 0.9) is self.measure

    def test_capping_keeps_mass_and_mean_of_u_and_dominates(self):
        capped = self.measure.capped(-1)
        assert len(capped.p) == 3
        assert capped.p.sum() + capped.inf == pytest.approx(1 + 1e-9, rel=1e-14)
        assert mean_of_u(capped) == pytest.approx(mean_of_u(self.measure), rel=1e-14)
        for epsilon in np.linspace(-8, 8, 200) * self.measure.step:
            assert profile(capped, epsilon) >= profile(self.measure, epsilon)
        assert self.measure.capped(1) is self.measure

    def test_lattices_are_never_mixed(self):
        coarse = self.measure.coarser()
        with pytest.raises(LatticeError, match=r"one lattice, got levels \[0, 1\]"):
            self.measure.plus(coarse)
        with pytest.raises(LatticeError, match="must not be finer"):
            coarse.at_level(0)

    def test_infinite_losses_add_up(self):
        assert self.measure.plus(self.measure).inf == pytest.approx(2e-9, rel=1e-6)


class TestFiniteMechanisms:
    @pytest.mark.parametrize("direction", Direction)
    def test_dominate_their_exact_profile(self, direction):
        cost = FiniteMechanism((1.5, -0.3, 0.2), (0.01, 0.3, 0.2))
        measure = single_loss(cost, direction, 4)
        with mp.workdps(40):
            pairs = cost.worlds() if direction is REMOVE else [(q, p) for p, q in cost.worlds()]
            for epsilon in EPSILONS:
                true = mp.fsum(max(mpf(0), p - mp.exp(epsilon) * q) for p, q in pairs)
                assert true <= profile(measure, epsilon) <= true + step_of(4)


@pytest.mark.parametrize(
    ("cost", "reason"),
    [
        (dm.SampledGaussian(1.0, 2.0), r"rate 1, got .*; give Gaussian\(2.0\)"),
        (dm.Gaussian(0.1), "noise of at least 0.2"),
        (dm.SampledGaussian(0.1, 0.19), "noise of at least 0.2"),
        (dm.ApproxDp(1.0, 1e-9), "hold Gaussian"),
        (dm.Curve([2.0], [math.inf]), "hold Gaussian"),
        (dm.Zcdp(0.1), "hold Gaussian"),
        (dm.Laplace(1e-5), "losses stay within"),
        (dm.PureDp(1e6), "losses stay within"),
    ],
)
def test_refuses_what_has_no_price(cost, reason):
    with pytest.raises(ValueError, match=f"^menu must.*{reason}"):
        single_loss(cost, REMOVE, 0)
