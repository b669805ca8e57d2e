# SPDX-License-Identifier: Apache-2.0
"""Moments of a likelihood ratio without cancellation.

For a ratio x of mean 1 the a-th moment minus 1 equals the mean of x^a - 1 - a (x - 1), which
is never negative: a sum of such terms keeps its relative accuracy however small it is.
"""

from __future__ import annotations

import math

import numpy as np

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
