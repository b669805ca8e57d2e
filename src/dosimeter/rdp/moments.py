# SPDX-License-Identifier: Apache-2.0
"""Moments of a likelihood ratio without cancellation.

For a ratio x of mean 1 the a-th moment minus 1 equals the mean of x^a - 1 - a (x - 1), which
is never negative: a sum of such terms keeps its relative accuracy however small it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dosimeter.rdp.orders import FloatArray


def log_excess(a: FloatArray, v: FloatArray) -> FloatArray:
    """log(x^a - 1 - a (x - 1)) at x = e^v: what order `a` sees of a loss `v`."""
    u = a * v
    series = np.zeros(np.broadcast_shapes(a.shape, v.shape))
    small = np.clip(v, -0.5, 0.5)
    for k in range(14, 1, -1):
        series = series * small + (a**k - a) / math.factorial(k)
    near = np.log(np.maximum(series * small * small, 5e-324))
    middle = np.expm1(np.minimum(u, 30.0)) - a * np.expm1(np.minimum(v, 30.0))
    large = np.maximum(u, 5.0)
    lost = a * np.exp(np.minimum(v - large, 0.0)) - (a - 1.0) * np.exp(-large)
    away = u + np.log1p(-np.minimum(lost, 0.999))
    direct = np.log(np.maximum(middle, 5e-324))
    return np.where(np.abs(u) < 0.1, near, np.where(u < 5, direct, away))


def log_of_one_plus(log_excess: FloatArray) -> FloatArray:
    """log(1 + e^y): from the log of a moment minus 1 to the log of the moment."""
    small = np.log1p(np.exp(np.minimum(log_excess, 30.0)))
    return np.where(log_excess > 30, log_excess + 1e-13, small)


def log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x - 1) for x > 0."""
    return np.where(
        x < 30,
        np.log(np.expm1(np.minimum(x, 30.0))),
        x + np.log1p(-np.exp(-np.maximum(x, 30.0))),
    )


@dataclass(frozen=True)
class BinomialTerms:
    """The terms k >= 2 of binomial sums over whole orders, laid end to end.

    Attributes:
        k: 2, 3, ... up to the largest order.
        pairs: k (k - 1) / 2 of each.
    """

    k: FloatArray
    pairs: FloatArray
    _orders: FloatArray
    _index: npt.NDArray[np.intp]
    _rest: FloatArray
    _log_choose: FloatArray
    _starts: npt.NDArray[np.intp]
    _sizes: npt.NDArray[np.intp]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(orders: tuple[int, ...]) -> BinomialTerms:
        """The terms of some orders, kept for the next cost."""
        every = np.arange(2, max(orders) + 1, dtype=np.float64)
        chosen = np.concatenate([np.arange(2, a + 1) for a in orders])
        sizes = np.array([a - 1 for a in orders], dtype=np.intp)
        total = np.repeat(np.array(orders), sizes)
        log_factorial = np.array([math.lgamma(i + 1.0) for i in range(max(orders) + 1)])
        ways = log_factorial[total] - log_factorial[chosen] - log_factorial[total - chosen]
        return BinomialTerms(
            k=every,
            pairs=every * (every - 1.0) / 2.0,
            _orders=np.array(orders, dtype=np.float64),
            _index=(chosen - 2).astype(np.intp),
            _rest=(total - chosen).astype(np.float64),
            _log_choose=ways,
            _starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp),
            _sizes=sizes,
        )

    def rdp(self, rate: float, log_growth: FloatArray) -> FloatArray:
        """log1p of sum over k of C(a,k) (1-q)^(a-k) q^k e^{log_growth}, over a - 1; rounded up."""
        exponents = self._log_choose + self._rest * math.log1p(-rate)
        exponents += (self.k * math.log(rate) + log_growth)[self._index]
        peak = np.maximum.reduceat(exponents, self._starts)
        sums = np.add.reduceat(np.exp(exponents - np.repeat(peak, self._sizes)), self._starts)
        value = log_of_one_plus(peak + np.log(sums))
        # Each exponent is a few sums of numbers no larger than a (4 + |log q|).
        slack = 2.0**-50 * (64.0 + self._orders * (4.0 + abs(math.log(rate))))
        return np.asarray(value / (self._orders - 1.0) * (1.0 + slack) + 5e-324)
