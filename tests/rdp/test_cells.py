"""Probabilities of losses between cuts, against eighty digits."""

import itertools

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
from dosimeter.accounting.priced.profiles import pair_of
from dosimeter.rdp.loss import Direction, normal_reach

ULPS = 16


def in_both_worlds(rate, noise, cuts, direction):
    """Probabilities of cells between losses of a sampled Gaussian, from its outputs."""
    shift = 1 / mpf(noise)

    def output(loss):
        inner = mp.expm1(loss) + rate
        return mp.log(inner / rate) / shift + shift / 2 if inner > 0 else mp.ninf

    sign = 1 if direction is Direction.REMOVE else -1
    ends = sorted(output(sign * cut) for cut in cuts)
    plain, moved = ([mp.ncdf(end - by) for end in ends] for by in (0, shift))
    plain, moved = ([b - a for a, b in itertools.pairwise(each)] for each in (plain, moved))
    mixed = [(1 - rate) * a + rate * b for a, b in zip(plain, moved, strict=True)]
    return (mixed, plain) if sign > 0 else (plain[::-1], mixed[::-1])


def nudged(cuts, by):
    """Cuts that lie some units in the last place higher or lower, in turn."""
    room = ULPS * mpf(2) ** -53
    return [mpf(float(c)) + by * (-1) ** i * room * max(1, abs(c)) for i, c in enumerate(cuts)]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("rate", "noise"),
    [(1e-9, 0.25), (1e-6, 0.3), (1e-4, 0.5), (1e-4, 1.0), (0.01, 1.0), (0.01, 100.0), (0.1, 0.3),
     (0.5, 3.0), (0.999, 1.0), (0.999999, 0.2), (1 - 1e-12, 0.2), (1 - 1e-12, 1.0)],
)  # fmt: skip
def test_cells_are_those_of_cuts_that_are_nearly_the_given_ones(rate, noise, direction):
    """Off by no more than they say, between losses that are right but for their last digits."""
    loss = dm.SampledGaussian(rate, noise).loss(direction)
    low, high = max(loss.low, -40.0), min(loss.high, 40.0)
    rng = np.random.default_rng(0)
    for width in loss.scale * np.array([1e-3, 0.03, 1.0]):
        near = np.clip(loss.scale * rng.normal(size=3), low, high)
        for start in [low, 0.0, high - 3 * width, *near, *rng.uniform(low, high, 3)]:
            cuts = start + width * np.arange(6)
            found = loss.cells(cuts)
            with mp.workdps(80):
                ways = [
                    in_both_worlds(mpf(rate), noise, nudged(cuts, by), direction) for by in (-1, 1)
                ]
                for place in range(1, 5):  # the first holds all that is lower, the last may be cut
                    slack = mpf(float(found.error[place])) + 2 * mpf(10) ** -25  # tails
                    weight = mp.exp(mpf(float(cuts[place + 1])))
                    for world, size in ((0, 1), (1, weight)):
                        seen = mpf(float(found[world][place]))
                        least, most = sorted(way[world][place] for way in ways)
                        assert least - slack / size <= seen <= most + slack / size


@pytest.mark.parametrize("rate", [0.6, 0.999, 1 - 1e-9, 1 - 1e-12, 1 - 1e-15])
@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_the_largest_loss_at_rates_near_one_is_not_understated(rate, noise):
    """It is that of an output which hardly any drawn record has: nearly log 1/(1-q)."""
    loss = dm.SampledGaussian(rate, noise).loss(Direction.ADD)
    with mp.workdps(50):
        exponent = -(normal_reach() + 1 / mpf(2 * noise)) / noise
        truth = float(-mp.log(1 - mpf(rate) + mpf(rate) * mp.exp(exponent)))
    assert loss.high == pytest.approx(truth, rel=1e-14)


@pytest.mark.parametrize("rate", [0.999999, 1 - 1e-12])
@pytest.mark.parametrize("epsilon", [12.0, 13.5, 20.0, 27.0])
def test_both_roads_know_the_hockey_stick_at_rates_near_one(rate, epsilon):
    """Against eighty digits, in the direction whose losses end at log 1/(1-q)."""
    noise, cost = 0.2, dm.SampledGaussian(rate, 0.2)
    with mp.workdps(80):
        inner = mp.expm1(-mpf(epsilon)) + mpf(rate)
        cut = mp.log(inner / mpf(rate)) * noise + 1 / mpf(2 * noise) if inner > 0 else mp.ninf
        mixed = (1 - mpf(rate)) * mp.ncdf(cut) + mpf(rate) * mp.ncdf(cut - 1 / mpf(noise))
        truth = float(mp.ncdf(cut) - mp.exp(mpf(epsilon)) * mixed)
    over, mass = pair_of(cost, Direction.ADD).tails(np.array([epsilon]))
    assert over[0] - np.exp(epsilon) * mass[0] == pytest.approx(truth, rel=1e-9, abs=1e-20)
