# SPDX-License-Identifier: Apache-2.0
"""The Poisson-subsampled Gaussian mechanism, the step of DP-SGD.

Its cost at order a is log(A_a) / (a - 1) with A_a the a-th moment of the likelihood ratio
under the smaller data set; the other direction costs no more (Mironov, Talwar and Zhang
2019, Theorem 5). A_a - 1 is evaluated as a sum of positive terms, so small costs keep
their relative accuracy: a finite sum at whole orders, the trapezoidal rule at others,
which converges geometrically for this analytic integrand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dosimeter import arguments
from dosimeter.rdp.cost import Cost, interpolate
from dosimeter.rdp.mechanisms import Gaussian
from dosimeter.rdp.moments import log_excess, log_of_one_plus
from dosimeter.rdp.orders import FloatArray, Orders

_QUADRATURE_SLACK = 1.0 + 1e-9
_MAX_NODES = 200_000
_HALF_WIDTH = 10.0


@dataclass(frozen=True)
class SampledGaussian(Cost):
    """One step on a Poisson sample: every record joins independently with `sample_rate`.

    `noise_multiplier` is the standard deviation of the noise on the *sum* over its
    sensitivity (for DP-SGD, the clipping norm). Batches of fixed size, shuffled batches
    and sampling without replacement cost more than this curve says.
    """

    sample_rate: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        rate = arguments.real("sample_rate", self.sample_rate)
        if not 0 < rate <= 1:
            raise ValueError(f"sample_rate must lie in (0, 1], got {self.sample_rate!r}")
        object.__setattr__(self, "sample_rate", rate)
        object.__setattr__(
            self, "noise_multiplier", arguments.positive("noise_multiplier", self.noise_multiplier)
        )

    @property
    def _rate(self) -> float:
        """The rate, raised where its logarithm or its inverse would leave the range of a float."""
        return max(self.sample_rate, 1e-290)

    def _curve(self, orders: Orders) -> FloatArray:
        if self.sample_rate == 1.0:
            return Gaussian(self.noise_multiplier)._curve(orders)
        inverse_variance = 1.0 / self.noise_multiplier / self.noise_multiplier
        if not inverse_variance < 1e290:
            return np.full(len(orders), math.inf)
        if not inverse_variance > 1e-290:
            # Beyond the reach of the sums below; sampling never costs more than no sampling.
            return Gaussian(self.noise_multiplier)._curve(orders)
        whole = orders.array == np.floor(orders.array)
        curve = np.empty(len(orders))
        if whole.any():
            curve[whole] = self._at_whole(tuple(int(a) for a in orders.array[whole]))
        if not whole.all():
            curve[~whole] = self._between(orders.array[~whole])
        return curve

    def _at_whole(self, orders: tuple[int, ...]) -> FloatArray:
        """log1p of sum over k >= 2 of C(a,k) (1-q)^(a-k) q^k (e^{k(k-1)/2s^2} - 1), over a - 1."""
        q, s = self._rate, self.noise_multiplier
        terms = _binomial_terms(orders)
        growth = terms.pairs / s / s
        log_growth = np.where(
            growth < 30,
            np.log(np.expm1(np.minimum(growth, 30.0))),
            growth + np.log1p(-np.exp(-np.maximum(growth, 30.0))),
        )
        exponents = terms.log_choose + terms.rest * math.log1p(-q) + terms.k * math.log(q)
        exponents += log_growth
        peak = np.maximum.reduceat(exponents, terms.starts)
        sums = np.add.reduceat(np.exp(exponents - np.repeat(peak, terms.sizes)), terms.starts)
        log_moment = peak + np.log(sums)
        array = np.array(orders, dtype=np.float64)
        value = log_of_one_plus(log_moment)
        # Each exponent is a few sums of numbers no larger than a (4 + |log q|).
        slack = 2.0**-50 * (64.0 + array * (4.0 + abs(math.log(q))))
        return np.asarray(value / (array - 1.0) * (1.0 + slack) + 5e-324)

    def _between(self, orders: FloatArray) -> FloatArray:
        """The trapezoidal rule, or the chord between whole orders where it needs many nodes."""
        s = self.noise_multiplier
        step = min(0.35, 0.3 * s)
        low, high = -_HALF_WIDTH, _HALF_WIDTH + float(orders[-1]) / s
        nodes = (high - low) / step
        if not nodes * len(orders) <= _MAX_NODES:
            edges = sorted({int(a) + i for a in orders for i in (0, 1)} - {1})
            at_edges = np.maximum.accumulate(self._at_whole(tuple(edges)))
            return interpolate(np.array(edges, dtype=np.float64), at_edges, orders)
        t = low + step * np.arange(math.ceil(nodes) + 1, dtype=np.float64)
        log_ratio = self._log_ratio(t)
        exponents = log_excess(orders[:, None], log_ratio[None, :]) - t * t / 2.0
        peak = exponents.max(axis=1)
        log_moment = peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))
        log_moment += math.log(step) - 0.5 * math.log(2 * math.pi)
        value = log_of_one_plus(log_moment)
        return np.asarray(value / (orders - 1.0) * _QUADRATURE_SLACK + 5e-324)

    def _log_ratio(self, t: FloatArray) -> FloatArray:
        """log(1 - q + q e^{t/s - 1/2s^2}), the loss at noise t standard deviations."""
        q, s = self._rate, self.noise_multiplier
        shift = t / s - 0.5 / s / s
        total = math.log(q) + shift
        # Each form where it neither cancels nor overflows: a tiny rate needs the middle one.
        far = total + np.log1p((1 - q) * np.exp(-np.maximum(total, 30.0)))
        near = np.where(shift < 1, q * np.expm1(np.minimum(shift, 1.0)), np.exp(total) - q)
        return np.where(total > 30, far, np.log1p(np.where(total > 30, 0.0, near)))


@dataclass(frozen=True)
class _Terms:
    """The parts of the binomial sums that depend on the orders alone, laid end to end."""

    k: FloatArray
    rest: FloatArray
    pairs: FloatArray
    log_choose: FloatArray
    starts: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]


@lru_cache(maxsize=64)
def _binomial_terms(orders: tuple[int, ...]) -> _Terms:
    k = np.concatenate([np.arange(2, a + 1, dtype=np.float64) for a in orders])
    sizes = np.array([a - 1 for a in orders], dtype=np.intp)
    a = np.repeat(np.array(orders, dtype=np.float64), sizes)
    log_factorial = np.array([math.lgamma(i + 1.0) for i in range(max(orders) + 1)])
    total, chosen = a.astype(np.intp), k.astype(np.intp)
    return _Terms(
        k=k,
        rest=a - k,
        pairs=k * (k - 1.0) / 2.0,
        log_choose=log_factorial[total] - log_factorial[chosen] - log_factorial[total - chosen],
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp),
        sizes=sizes,
    )
