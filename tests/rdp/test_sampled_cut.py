"""Theorem 8 in docs/guarantees.md: sampled Gaussians without a tail. Oracle: 60 digits."""

import itertools

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
import oracles
from dosimeter.rdp import Orders
from dosimeter.rdp.sampled_cut import _log_normals, cut_sampled, normal

ORDERS = Orders([1.25, 2.0, 5.5, 19.0, 64.0, 130.0])
POINTS = [
    *[(1e-4, 1.0, 1e-12), (3e-4, 0.8, 1e-11), (1e-3, 0.6, 3e-10), (1e-6, 0.3, 1e-14)],
    *[(0.01, 2.0, 1e-12), (0.3, 1.0, 1e-9), (0.9, 3.0, 1e-6), (1e-3, 50.0, 1e-20)],
]


def threshold(rate, noise, chance):
    """The output, in units of the noise, beyond which there is exactly this chance."""
    q, shift = mpf(rate), 1 / mpf(noise)

    def beyond(t):
        return (1 - q) * mp.ncdf(-t) + q * mp.ncdf(shift - t) - mpf(chance)

    low, high = mpf(0), mpf(40)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) < 0 else (middle, high)
    return high


def kept_moment(rate, noise, order, top):
    """E_Q (P/Q)^a over outputs up to `top`: a finite sum at whole orders, quadrature at others."""
    q, shift, a = mpf(rate), 1 / mpf(noise), mpf(order)
    if order == int(order):
        n = int(order)
        return mp.fsum(
            mp.binomial(n, k)
            * (1 - q) ** (n - k)
            * q**k
            * mp.exp(k * (k - 1) * shift**2 / 2)
            * mp.ncdf(top - k * shift)
            for k in range(n + 1)
        )

    def integrand(t):
        return (1 - q + q * mp.exp(t * shift - shift * shift / 2)) ** a * mp.npdf(t)

    return mp.quad(integrand, [*range(-12, int(top) + 1, 2), top])


@pytest.mark.parametrize(("rate", "noise", "chance"), POINTS)
def test_what_is_kept_is_bounded_at_the_probability_that_is_charged(rate, noise, chance):
    cut = cut_sampled(rate, noise, ORDERS, chance)
    assert 0 < cut.chance <= chance
    with mp.workdps(60):
        top = threshold(rate, noise, cut.chance)
        for order, value in zip(ORDERS, cut.rdp, strict=True):
            if order == int(order):
                assert value >= mp.log(kept_moment(rate, noise, order, top)) / (mpf(order) - 1)


@pytest.mark.parametrize(("rate", "noise", "chance"), [POINTS[1], POINTS[5]])
def test_and_between_whole_orders(rate, noise, chance):
    cut = cut_sampled(rate, noise, ORDERS, chance)
    with mp.workdps(25):
        top = threshold(rate, noise, cut.chance)
        for place in (0, 2):
            moment = kept_moment(rate, noise, ORDERS[place], top)
            assert cut.rdp[place] >= mp.log(moment) / (ORDERS[place] - 1)


@pytest.mark.parametrize(("rate", "noise", "chance"), POINTS)
def test_the_other_direction_is_bounded_whole(rate, noise, chance):
    orders = Orders([1.25, 19.0])
    with mp.workdps(25):
        for order, value in zip(orders, cut_sampled(rate, noise, orders, chance).rdp, strict=True):
            back = oracles.sampled_gaussian_moment(rate, noise, order, swapped=True)
            assert value >= mp.log(back) / (mpf(order) - 1)


@pytest.mark.parametrize(("rate", "noise", "chance"), POINTS[:4])
def test_hardly_more_than_what_is_kept_is_charged(rate, noise, chance):
    """At whole orders, and where it is more than the whole curve that one holds as well."""
    orders = Orders([2.0, 8.0, 19.0, 64.0])
    cut = cut_sampled(rate, noise, orders, chance)
    whole = dm.SampledGaussian(rate, noise).rdp(orders)
    with mp.workdps(30):
        top = threshold(rate, noise, cut.chance)
        for order, value, most in zip(orders, cut.rdp, whole, strict=True):
            forth = float(mp.log(kept_moment(rate, noise, order, top)) / (mpf(order) - 1))
            assert min(value, most) <= 1.1 * forth


def test_the_other_direction_counts_after_the_cut():
    """Whoever sees the record may be left with less than whoever does not."""
    with mp.workdps(30):
        rate, noise, order, chance = 0.5, 2.0, 30.0, 0.3
        top = threshold(rate, noise, chance)
        forth = mp.log(kept_moment(rate, noise, order, top)) / (order - 1)
        back = mp.log(oracles.sampled_gaussian_moment(rate, noise, order, swapped=True))
        back /= order - 1
    assert back > 1.5 * forth
    assert cut_sampled(rate, noise, Orders([order]), chance).rdp[0] >= back


@pytest.mark.parametrize("x", np.concatenate([np.linspace(-45, 12, 229), [1e-9, -1e-9]]).tolist())
def test_normal_tails_are_bounded(x):
    with mp.workdps(50):
        exact = mp.log(mp.ncdf(mpf(x)))
        assert float(_log_normals(np.array([x]))[0]) >= exact * (1 + mpf(1e-13))
        assert float(_log_normals(np.array([x]))[0]) <= exact + 0.2
        if x > -37:
            assert abs(normal(x) / mp.ncdf(mpf(x)) - 1) < 5e-13


@pytest.mark.parametrize(
    ("rate", "noise", "chance"),
    [*itertools.product([1e-300, 1e-12, 1 - 1e-16], [0.04, 1.0, 1e8], [0.0, 1e-320, 1e-30, 0.2])],
)
def test_extremes_give_a_bound_or_nothing(rate, noise, chance):
    cut = dm.SampledGaussian(rate, noise).cut(Orders([1.01, 2.0, 7.3, 65536.0]), chance)
    if cut is not None:
        assert np.all(cut.rdp > 0)
        assert np.all(cut.rdp[:-1] <= cut.rdp[1:])
        assert cut.chance <= chance


def test_nothing_is_cut_where_it_cannot_help():
    orders = Orders([2.0, 4.0, 8.0])
    assert dm.SampledGaussian(0.01, 4.0).cut(orders, 1e-10) is None
    assert dm.SampledGaussian(1.0, 1.0).cut(orders, 1e-10) is None
    assert dm.Gaussian(1.0).cut(orders, 1e-10) is None
