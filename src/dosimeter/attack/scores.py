# SPDX-License-Identifier: Apache-2.0
"""Scores of canaries: how much more likely what was seen is if a canary was in.

A step that was charged as a sampled Gaussian shows, at a canary's coordinate, noise alone if the
canary was out, and with the sample rate noise around 1 if it was in. The score adds up the log
of the likelihood ratio over the steps, so its moments follow from what was charged.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from dosimeter.attack.bounds import Floats
from dosimeter.rdp import SampledGaussian

_FAR, _POINTS = 12.0, 4801
"""Where the noise is integrated over, in deviations, and at how many points: for smooth functions
under a normal law the plain sum is exact to rounding, down to a noise of 0.05."""


@dataclass(frozen=True)
class Moments:
    """Cumulants of a score: they add up over steps.

    Attributes:
        mean: The first.
        variance: The second.
        fourth: The fourth, which says how well a variance can be measured.
    """

    mean: float = 0.0
    variance: float = 0.0
    fourth: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.mean + other.mean,
            self.variance + other.variance,
            self.fourth + other.fourth,
        )


def log_ratio(seen: Floats, cost: SampledGaussian) -> Floats:
    """The score of one step; `seen` is in units of what one record may move."""
    rate, noise = cost.sample_rate, cost.noise_multiplier
    stays = math.log1p(-rate) if rate < 1 else -math.inf
    return np.logaddexp(stays, math.log(rate) + (2 * seen - 1) / (2 * noise**2))


@functools.lru_cache(maxsize=256)
def expected(cost: SampledGaussian) -> tuple[Moments, Moments]:
    """The moments of one step's score: of a canary that is out, and of one that is in."""
    at = np.linspace(-_FAR, _FAR, _POINTS)
    weights = np.exp(-(at**2) / 2)
    weights /= weights.sum()
    noise, rate = cost.noise_multiplier * at, cost.sample_rate
    out = np.array([weights @ log_ratio(noise, cost) ** power for power in range(1, 5)])
    hit = np.array([weights @ log_ratio(1 + noise, cost) ** power for power in range(1, 5)])
    return _cumulants(out), _cumulants((1 - rate) * out + rate * hit)


def _cumulants(raw: Floats) -> Moments:
    first, second, third, fourth = (float(moment) for moment in raw)
    variance = second - first**2
    central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
    return Moments(first, variance, central - 3 * variance**2)
