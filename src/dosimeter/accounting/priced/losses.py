# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of one run of a mechanism, as a measure on the lattice, per direction.

Each mechanism here has a dominating pair on the line whose loss is monotone in the output, so
the cells of the lattice are intervals of outputs and their probabilities differences of
distribution functions.
"""

from __future__ import annotations

import enum
import math

import numpy as np
from scipy.special import ndtr, ndtri_exp

from dosimeter.accounting.priced.lattice import FINE, Measure, spread
from dosimeter.rdp import Cost, Gaussian, Laplace, PureDp, SampledGaussian
from dosimeter.rdp.orders import FloatArray


class Direction(enum.Enum):
    """Which of the two neighbours has the extra record."""

    REMOVE = "the first"
    ADD = "the second"


_TAIL = 1e-25
"""Probability beyond which outputs are taken to infinity or to the lowest cell."""


def single_loss(cost: Cost, direction: Direction) -> Measure:
    """The loss of one run of `cost`; a ValueError if its loss distribution is not known."""
    match cost:
        case SampledGaussian(sample_rate=rate, noise_multiplier=noise):
            return _sampled(rate, noise, direction)
        case Gaussian(noise_multiplier=noise):
            return _sampled(1.0, noise, Direction.REMOVE)
        case Laplace():
            return _laplace(cost.pure_epsilon)
        case PureDp() if cost.delta == 0:
            return _randomised_response(cost.epsilon)
    raise ValueError(
        f"menu must hold Gaussian, SampledGaussian, Laplace and PureDp costs, got {cost}"
    )


def _between(cuts: FloatArray) -> FloatArray:
    """Standard normal probability between successive cuts, from the nearer tail."""
    low, high = cuts[:-1], cuts[1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _sampled(rate: float, noise: float, direction: Direction) -> Measure:
    """P = (1-q) N(0,1) + q N(1/s,1), Q = N(0,1) in units of the noise, or the reverse."""
    shift = 1.0 / noise
    far = -float(ndtri_exp(math.log(_TAIL)))

    def loss(x: float) -> float:
        """Loss of the output x in the REMOVE direction."""
        exponent = shift * (x - shift / 2)
        if exponent > 700:
            return exponent + math.log(rate)
        return math.log1p(rate * math.expm1(exponent))

    def output(value: FloatArray) -> FloatArray:
        """The output with a given loss; -infinity where no output has one so low."""
        inner = np.expm1(value) + rate
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(np.maximum(inner, 0.0) / rate) / shift + shift / 2
        # For large losses expm1 overflows long after log(e^v - 1 + q) is v.
        return np.where(value > 600, (value - math.log(rate)) / shift + shift / 2, x)

    low, high = loss(-far), loss(far + shift)
    if direction is Direction.REMOVE:
        first, last = math.floor(low / FINE), math.ceil(high / FINE)
        cuts = output(np.arange(first, last + 1) * FINE)
        cuts[0] = -math.inf
        q = _between(cuts)
        p = (1 - rate) * q + rate * _between(cuts - shift)
        top = float(cuts[-1])
        inf = (1 - rate) * float(ndtr(-top)) + rate * float(ndtr(shift - top))
        return spread(first, p, q, inf)
    first, last = math.floor(-high / FINE), math.ceil(-low / FINE)
    cuts = output(-np.arange(first, last + 1) * FINE)[::-1].copy()
    cuts[0], cuts[-1] = -math.inf, math.inf
    p = _between(cuts)[::-1]
    q = ((1 - rate) * _between(cuts) + rate * _between(cuts - shift))[::-1]
    return spread(first, p, q, 0.0)


def _laplace(epsilon: float) -> Measure:
    """P = Laplace at 0, Q = Laplace at 1: atoms at both ends, an exponential between."""
    first, cells = _cells(epsilon)
    cuts = np.clip((first + np.arange(cells + 1)) * FINE, -epsilon, epsilon)
    p = -0.5 * np.exp((cuts[1:] - epsilon) / 2) * np.expm1(-np.diff(cuts) / 2)
    q = -0.5 * np.exp(-(cuts[:-1] + epsilon) / 2) * np.expm1(-np.diff(cuts) / 2)
    p[-1] += 0.5
    q[-1] += 0.5 * math.exp(-epsilon)
    p[0] += 0.5 * math.exp(-epsilon)
    q[0] += 0.5
    return spread(first, p, q, 0.0)


def _randomised_response(epsilon: float) -> Measure:
    """The worst epsilon-DP mechanism: losses epsilon and -epsilon."""
    first, cells = _cells(epsilon)
    p, q = np.zeros(cells), np.zeros(cells)
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    unlikely = likely * math.exp(-epsilon)
    p[-1], q[-1] = likely, unlikely
    p[0] += unlikely
    q[0] += likely
    return spread(first, p, q, 0.0)


def _cells(epsilon: float) -> tuple[int, int]:
    """First cell and number of cells that cover [-epsilon, epsilon]."""
    most = math.ceil(epsilon / FINE)
    if not most <= 200_000:
        raise ValueError(f"menu must hold costs of at most {200_000 * FINE:g} pure epsilon")
    return -most, 2 * most
