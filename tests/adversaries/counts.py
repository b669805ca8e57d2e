"""Closed forms: how many of n outputs pass a threshold, and the sum of Gaussian outputs.

Counting is the crudest way to look at outputs, and needs nothing but the binomial distribution.
"Some output > t" is its case of a count of at least one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from mpmath import mp, mpf
from scipy.special import log_ndtr
from scipy.stats import binom

import dosimeter as dm
from adversaries.pairs import outputs

_THRESHOLDS = 300


class Count(NamedTuple):
    """An event: at least (or, swapped, at most) `least` of the outputs are beyond a place."""

    reached: float
    place: int
    least: int
    swapped: bool


def counted(cost, count, epsilon):
    """The best event that counts outputs of `count` runs, in both directions."""
    seen = outputs(cost, _THRESHOLDS)
    # Chance, under the second data set, of an interval at or above each one, and the difference.
    q, d = np.cumsum(seen.q[::-1])[::-1][1:], np.cumsum(seen.d[::-1])[::-1][1:]
    # Of one below it: 1 less the chances above would be rounded, and e^epsilon makes that large.
    below_p, below_q = np.cumsum(seen.p)[:-1], np.cumsum(seen.q)[:-1]
    inside = (q > 0) & (d > 0) & (below_p > 0) & (q + d < 1)
    places, q, d = 1 + np.nonzero(inside)[0], q[inside], d[inside]
    below_p, below_q = below_p[inside], below_q[inside]
    if not len(q):
        return Count(0.0, 0, 0, False)
    rise, fall = np.log1p(d / q), np.log1p(d / below_p)
    # The ratio of the two chances of k is e^{k rise - (count - k) fall}.
    forth = np.floor((epsilon + count * fall) / (rise + fall)) + 1
    back = np.ceil((count * fall - epsilon) / (rise + fall)) - 1
    found = [
        (_many(forth, count, q + d) - _times(epsilon, _many(forth, count, q)), forth),
        (
            _many(count - back, count, below_q)
            - _times(epsilon, _many(count - back, count, below_p)),
            back,
        ),
    ]
    best = Count(0.0, 0, 0, False)
    for swapped, (value, least) in enumerate(found):
        top = int(np.nanargmax(value))
        if value[top] > best.reached:
            best = Count(float(value[top]), int(places[top]), int(least[top]), bool(swapped))
    return best


def _many(least, count, chance):
    """The chance of at least so many of `count`."""
    return binom.sf(least - 1, count, chance)


def _times(epsilon, chance):
    with np.errstate(divide="ignore"):
        return np.exp(epsilon + np.log(chance))


def summed(spent, epsilon):
    """Gaussian runs are one Gaussian of mean mu = sqrt(sum of n / noise^2): its hockey stick."""
    mu = math.sqrt(math.fsum(n / cost.noise_multiplier**2 for cost, n in spent))
    far = epsilon / mu
    return math.exp(log_ndtr(mu / 2 - far)) - math.exp(epsilon + log_ndtr(-mu / 2 - far))


def some_output_beyond(spent, threshold, epsilon):
    """P - e^epsilon Q of "some output of the sampled Gaussians exceeds threshold", 40 digits."""
    with mp.workdps(40):
        t, p, q = mpf(threshold), mpf(1), mpf(1)
        for cost, n in spent:
            rate, noise = _rate(cost), mpf(cost.noise_multiplier)
            below, shifted = mp.ncdf(t / noise), mp.ncdf((t - 1) / noise)
            p *= ((1 - rate) * below + rate * shifted) ** n
            q *= below**n
        return float((1 - p) - mp.exp(epsilon) * (1 - q))


def _rate(cost):
    return mpf(cost.sample_rate) if isinstance(cost, dm.SampledGaussian) else mpf(1)


def best_threshold(spent, epsilon):
    """The threshold at which "some output exceeds it" reaches most, and what it reaches."""
    noises = [cost.noise_multiplier for cost, _ in spent]
    t = np.linspace(0.0, 1 + 10 * max(noises), 400)
    log_p = log_q = 0.0
    for cost, n in spent:
        noise, rate = cost.noise_multiplier, float(_rate(cost))
        above, shifted = np.exp(log_ndtr(-t / noise)), np.exp(log_ndtr((1 - t) / noise))
        log_q = log_q + n * np.log1p(-above)
        with np.errstate(divide="ignore"):
            log_p = log_p + n * np.log1p(-((1 - rate) * above + rate * shifted))
    value = -np.expm1(log_p) + math.exp(min(epsilon, 600.0)) * np.expm1(log_q)
    best = int(np.nanargmax(value))
    return float(t[best]), float(value[best])
