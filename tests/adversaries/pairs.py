"""What one run shows of either of two neighbours: probabilities of outputs, by definition.

Outputs are cut into intervals, from the one that speaks most for the second data set to the one
that speaks most for the first. Whoever sees only the interval knows no more than whoever sees the
output, so all that is computed from these probabilities is a lower bound. Each interval has its
probability q for the second data set and the difference d = p - q, so that even losses of 1e-12
keep their digits.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce
from typing import NamedTuple

import numpy as np
from mpmath import mp, mpf
from scipy.special import ndtr

import dosimeter as dm

_FAR = 9.6
"""Deviations of a normal output that are looked at; 1e-21 lies beyond."""

_CUTS = 3000


class Outputs(NamedTuple):
    """Probabilities of intervals of outputs in rising order of p / q, and d = p - q."""

    p: np.ndarray
    q: np.ndarray
    d: np.ndarray


def outputs(cost, cuts=_CUTS):
    """What one run of `cost` gives, the first data set the one with the extra record."""
    match cost:
        case dm.SampledGaussian(sample_rate=rate, noise_multiplier=noise):
            return _gaussian(rate, 1 / noise, cuts)
        case dm.Gaussian(noise_multiplier=noise):
            return _gaussian(1.0, 1 / noise, cuts)
        case dm.ApproxZcdp(rho=rho):
            return _gaussian(1.0, math.sqrt(2 * rho), cuts)
        case dm.Laplace(scale=scale):
            return _laplace(1 / scale, min(cuts, 400))
        case dm.BestOf(cost=one, steps=steps, mean=mean, eta=eta):
            trial = reduce(_both, [outputs(one, min(cuts, 80)) for _ in range(steps)])
            return best(trial, law(mean, eta))
        case dm.Together(costs=costs):
            return reduce(_both, [outputs(part, min(cuts, 80)) for part in costs])
        case dm.PureDp(epsilon=epsilon):
            less, more = 1 / (1 + math.exp(epsilon)), 1 / (1 + math.exp(-epsilon))
            gap = math.tanh(epsilon / 2)
            return Outputs(*map(np.array, ([less, more], [more, less], [-gap, gap])))
    pairs = sorted(((float(p), float(q)) for p, q in cost.worlds()), key=lambda w: w[0] / w[1])
    return Outputs(*map(np.array, zip(*((p, q, p - q) for p, q in pairs), strict=True)))


def law(mean, eta):
    """The generating function of the truncated negative binomial law with this mean."""

    def expected(gamma):
        top = 1 - gamma
        return top / gamma / (-mp.log(gamma) if eta == 0 else (1 - gamma**eta) / eta)

    with mp.workdps(60):
        low, high = mpf("1e-200"), mpf(1) - mpf("1e-40")
        for _ in range(2000 if mean > 1 else 0):
            middle = mp.sqrt(low * high)
            low, high = (middle, high) if expected(middle) > mean else (low, middle)
        gamma = high
        if mean == 1:
            return lambda z: mpf(z)
        if eta == 0:
            return lambda z: mp.log(1 - (1 - gamma) * z) / mp.log(gamma)
        return lambda z: ((1 - (1 - gamma) * z) ** -eta - 1) / (gamma**-eta - 1)


def best(trial, generating):
    """What the best of K trials shows, the score the loss: P(best <= y) is E[P(one <= y)^K]."""
    with mp.workdps(60):
        sides = []
        for side in (trial.p, trial.q):
            whole = mp.fsum(mpf(float(x)) for x in side)
            below = [mpf(0)]
            for x in side:
                below.append(below[-1] + mpf(float(x)) / whole)
            reached = [generating(z) for z in below]
            sides.append([b - a for a, b in itertools.pairwise(reached)])
        rows = [(p, q, p - q) for p, q in zip(*sides, strict=True) if p > 0 and q > 0]
        return Outputs(
            *(np.array([float(x) for x in column]) for column in zip(*rows, strict=True))
        )


def _both(one, two):
    """What two independent runs show, the second the same whatever the first one showed."""
    p, q = np.outer(one.p, two.p).ravel(), np.outer(one.q, two.q).ravel()
    d = (np.outer(one.p, two.d) + np.outer(one.d, two.q)).ravel()
    rising = np.argsort(np.log(p) - np.log(q))
    return Outputs(p[rising], q[rising], d[rising])


def between(cuts):
    """Normal probability of the intervals between cuts, from the nearer tail."""
    low, high = cuts[:-1], cuts[1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _gaussian(rate, shift, cuts):
    """N(0, 1) and (1 - rate) N(0, 1) + rate N(shift, 1)."""
    inner = np.linspace(-_FAR, _FAR + shift, cuts)
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    q, shifted = between(edges), between(edges - shift)
    p, d = (1 - rate) * q + rate * shifted, rate * (shifted - q)
    # Where either data set gives nothing that a float can hold, nothing is looked at.
    return Outputs(*(x[(q > 0) & (p > 0)] for x in (p, q, d)))


def _laplace(loss, cuts):
    """Laplace noise of scale 1 / loss around 1 and around 0: outputs up to 0, to 1, beyond."""
    edges = np.linspace(0.0, 1.0, cuts)
    low, high = edges[:-1], edges[1:]
    width = -np.expm1(-loss * (high - low)) / 2
    q = width * np.exp(-loss * low)
    d = q * np.expm1(loss * (low + high - 1))
    rare, rest = math.exp(-loss) / 2, -math.expm1(-loss) / 2
    p = width * np.exp(-loss * (1 - high))
    return Outputs(
        np.concatenate([[rare], p, [0.5]]),
        np.concatenate([[0.5], q, [rare]]),
        np.concatenate([[-rest], d, [rest]]),
    )
