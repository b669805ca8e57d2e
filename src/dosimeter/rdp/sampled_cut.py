# SPDX-License-Identifier: Apache-2.0
"""The sampled Gaussian with a tail of its outputs cut off (Theorem 8 in docs/guarantees.md).

At high orders a small sample rate costs what outputs cost that never occur: beyond order
1 + 2 s^2 log(1/q) the moment is carried by outputs that only the sampled record makes, at a
probability far below any delta. Left out, at the price of their probability, the rest costs about
as much as a Gaussian. On the line, in units of the noise, with m = 1/s and r the likelihood ratio
1 + q (e^{m x - m^2/2} - 1):

* Whoever has the record sees x > t with probability (1-q) N(-t) + q N(m-t). On x <= t the moment
  of order a is the binomial sum of `SampledGaussian` with each e^{k(k-1) m^2/2} multiplied by
  N(t - k m); what is then negative is left out.
* For whoever has it not nothing is cut, and the whole curve no longer bounds the other side alone.
  Taylor's theorem for r^{-b}, b = a - 1, with E r = 1 and r >= 1 - q:
  E r^{-b} - 1 <= a b / 2 (E[(r-1)^2; r > 1] + (1-q)^{-b-2} E[(r-1)^2; r < 1]).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dosimeter.rdp.cost import SLACK, SMALLEST, Cut, interpolate
from dosimeter.rdp.moments import BinomialTerms, log_expm1
from dosimeter.rdp.orders import FloatArray, Orders

_NORMAL_ERROR = 1.0 + 1e-12
"""Far more than the relative error of `math.erfc`."""

_FARTHEST = 37.0
"""Deviations beyond which a tail is no longer a normal float."""

_MOST_SHIFT = 25.0
"""The second moment of more is beyond the range of a float."""

_CUT_ERROR = 2.0**-46
_NOTHING = -1e6
"""The logarithm of a term that is left out, in a sum that may have no other."""

_HALVINGS = 30


def cut_sampled(rate: float, noise: float, orders: Orders, chance: float) -> Cut | None:
    """A sampled Gaussian less outputs of at most this probability; None where floats cannot tell.

    The curve may lie above the whole one, which then holds as well.
    """
    shift = 1.0 / noise
    top = _threshold(rate, shift, chance) if shift < _MOST_SHIFT else None
    if top is None:
        return None
    both = np.maximum(_with_record(rate, shift, orders, top), _without(rate, shift, orders))
    # Neither falls as the order grows, so a bound holds at every lower order, too.
    return Cut(np.minimum.accumulate(both[::-1])[::-1], _beyond(rate, shift, top))


def normal(x: float) -> float:
    """The standard normal distribution function, to a few units in the last place."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _beyond(rate: float, shift: float, top: float) -> float:
    """Probability of an output above `top` with the record, rounded up."""
    return ((1.0 - rate) * normal(-top) + rate * normal(shift - top)) * _NORMAL_ERROR


def _threshold(rate: float, shift: float, chance: float) -> float | None:
    """The least output, about, beyond which there is at most this chance."""
    low, high = 0.0, _FARTHEST
    if not _beyond(rate, shift, high) <= chance:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _beyond(rate, shift, middle) <= chance else (middle, high)
    return high


def _with_record(rate: float, shift: float, orders: Orders, top: float) -> FloatArray:
    """The cost of outputs up to `top` for whoever has the record."""
    edges = _edges(orders)
    terms = BinomialTerms.of(edges)
    log_normal = _log_normals(top - shift * terms.k)
    growth = terms.pairs * (shift * shift)
    # Rounded up by more than both logarithms and their sum can be wrong.
    rise = growth + log_normal + _CUT_ERROR * (growth - log_normal)
    kept = rise > 0
    log_growth = np.where(kept, log_expm1(np.where(kept, rise, 1.0)), _NOTHING)
    known = np.maximum.accumulate(terms.rdp(rate, log_growth))
    # The moment of a part is log-convex in the order and at most 1 at order 1, as that of all is.
    return interpolate(np.array(edges, dtype=np.float64), known, orders.array)


@lru_cache(maxsize=64)
def _edges(orders: Orders) -> tuple[int, ...]:
    """The whole orders between which the others lie."""
    return tuple(sorted({whole(a) for a in orders for whole in (math.floor, math.ceil)} - {1}))


def _log_normals(x: FloatArray) -> FloatArray:
    """At least log N(x).

    By bounds on Mills' ratio N(-y) / n(y), y >= 0: below 4 / (3 y + sqrt(y^2 + 8)) (Sampford 1953)
    and above 2 / (y + sqrt(y^2 + 4)) (Birnbaum 1942).
    """
    y = np.abs(x)
    log_density = -y * y / 2 - 0.5 * math.log(2 * math.pi)
    above = np.exp(log_density) * 2 / (y + np.sqrt(y * y + 4))
    below = log_density + np.log(4 / (3 * y + np.sqrt(y * y + 8)))
    return np.asarray(np.where(x > 0, np.log1p(-above), below))


def _without(rate: float, shift: float, orders: Orders) -> FloatArray:
    """The cost of all outputs for whoever has not the record, by the second moments of r - 1."""
    lower = _lower_square(shift)
    whole = math.expm1(shift * shift)
    with np.errstate(over="ignore"):
        factor = np.exp(-(orders.beta + 2.0) * math.log1p(-rate))
        square = (whole + lower * (factor - 1.0)) * rate * rate
        excess = orders.array * orders.beta / 2 * square * SLACK
    return np.asarray(np.log1p(excess) / orders.beta * SLACK + SMALLEST)


def _lower_square(shift: float) -> float:
    """E (1 - e^{m x - m^2/2})^2 on x < m/2, rounded up: at most half of the whole, about."""
    terms = (
        math.exp(shift * shift) * normal(-1.5 * shift),
        -2.0 * normal(-0.5 * shift),
        normal(0.5 * shift),
    )
    return max(math.fsum(terms), 0.0) + 1e-14
