# SPDX-License-Identifier: Apache-2.0
"""The certified map from summed Rényi costs to epsilon.

Fix orders a, weights w_a that sum to at most 1, and delta, before the first spend. With
R(a) the summed cost and L the privacy loss so far, b = a - 1,

    T(L, R) = delta * sum_a w_a e^{b (L - R(a))}

starts at no more than delta and does not grow in expectation, whatever is spent next:
each term is a supermartingale, so their sum is, even though the best order depends on
the path. Hence epsilon(R) = sup over l with T(l) < 1 of l + log(1 - T(l)) holds at every
stopping time. docs/guarantees.md has the proof; this module evaluates the supremum so
that rounding can only raise it. It refuses to guess: NaN and negative sums are errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter import arguments
from dosimeter.rdp.cost import UP, UP_EACH
from dosimeter.rdp.orders import FloatArray, Orders, locked
from dosimeter.rounding import not_negative

_WEIGHT_SLACK = 1e-12
"""Weights are scaled down by this, so that rounding cannot make them sum to more than 1."""

_MAX_STEPS = 100
_STEPS_OF_MANY = 16


class Tangent(NamedTuple):
    """A plane above epsilon(R): epsilon(R + c) <= epsilon + slope . c for every c >= 0."""

    epsilon: float
    slope: FloatArray

    def after(self, rdp: FloatArray) -> float:
        """Upper bound on epsilon once `rdp` more is spent; finite at every order."""
        rise = float(self.slope.dot(rdp))
        return self.epsilon + rise + 1e-15 * (abs(self.epsilon) + rise)


class Root(NamedTuple):
    """Where the optimum lies for some sums, to begin from when they have grown a little.

    The level of the optimum is concave in the sums, so the plane `anchor + pull . sums / weight`
    lies above it.
    """

    level: float
    anchor: float
    pull: FloatArray
    weight: float


class _Constants(NamedTuple):
    """The logarithms of a sum's constants, and the levels where each term alone is over 1."""

    log: FloatArray
    crossings: FloatArray


class Mixture:
    """The mixture supermartingale over Rényi orders: weights, delta, and what they certify.

    Guarantee:
        For add/remove-one neighbours and any adaptive sequence of spends whose summed
        curve is R: `epsilon(R)` is a valid epsilon, at the given delta, at any stopping
        time (Theorem 3, T3 in docs/guarantees.md), and the privacy loss stays below
        `loss_bound(R)` at all times at once with probability 1 - delta (T2). Both are
        at least the exact value and at most 1e-7 (1e-14 of it, where that is more) above.
    """

    def __init__(
        self, orders: Iterable[float], weights: Sequence[float] | FloatArray, delta: float
    ) -> None:
        self._orders = Orders(orders)
        self._delta = arguments.open_unit("delta", delta)
        self._weights = _checked_weights(weights, len(self._orders))
        beta = self._orders.beta
        self._least, self._most = beta.item(0), beta.item(-1)
        excess = max(0.0, math.log(math.fsum(self._weights))) + _WEIGHT_SLACK
        log_tail = np.log(self._weights) + math.log(self._delta) - excess
        self._ones, self._inverse = np.ones(len(beta)), 1.0 / self._orders.array
        # Certificate for sums S with log S near 0: each of the k terms e^x, x <= 0, has an
        # error of at most 2^-52 (2|x| + 4|log constant| + 2) e^x, |x| e^x <= 1/e, and adding k
        # terms, in any order, costs k/2 more units. `_noise` bounds the total relative to S.
        largest = float(np.abs(log_tail).max())
        self._noise = (32 + 4 * len(beta) + 4 * largest) * 2.0**-52
        # Stopping at log S <= tolerance over-reports by at most tolerance / beta (d epsilon /
        # d log delta = T / (1 - T) <= 1 / min beta).
        self._aim = max(2.5e-12 * min(1.0, self._least), 4 * self._noise)
        self._tolerance = 4 * self._aim
        # By the tangent of the concave function it is (log S)^2 / (beta (1 - T)), and 1 - T is
        # about beta / (1 + beta) at least: stopping here over-reports by at most about 1e-9.
        self._near = max(2e-5 * min(1.0, self._least), self._tolerance)
        self._tail, self._slope = (
            _Constants(log, (2 * self._aim - log) / beta)
            for log in (log_tail, log_tail + np.log(self._orders.array))
        )

    @property
    def orders(self) -> Orders:
        """The grid of orders."""
        return self._orders

    @property
    def weights(self) -> FloatArray:
        """The weight of each order, read-only."""
        return self._weights

    @property
    def delta(self) -> float:
        """The delta that the mixture spends, whatever the sequence."""
        return self._delta

    def epsilon(self, rdp_sums: npt.ArrayLike) -> float:
        """Epsilon after spends that sum to `rdp_sums` (one value per order); rounded up."""
        return self.solve(rdp_sums, None)[0]

    def solve(self, rdp_sums: npt.ArrayLike, last: Root | None) -> tuple[float, Root | None]:
        """As `epsilon`, with its root; twice as fast from the `last` root of smaller sums.

        The last digits depend on where it begins, within the error that is certified.
        """
        base, excess = self._shifted(rdp_sums)
        if base == math.inf:
            return math.inf, None
        finite = excess.item(excess.argmax()) < math.inf
        start = self._start(base, excess, last) if finite else None
        level, terms, total = self._level(self._slope, excess, self._near, start)
        root = last
        if level != start:
            root = self._root(base, excess, level, terms) if finite else None
        tail, log_total = float(self._inverse.dot(terms)), math.log(total)
        if not log_total <= self._near:
            return not_negative(self._optimum(base, level, tail / total)), root
        # Theorem 4e: the supremum is no higher than the tangent at this level reaches it.
        slope = (total * (1.0 + self._noise) - 1.0) / (1.0 - tail * (1.0 + self._noise))
        beyond = slope * (log_total + 2.0 * self._noise) / self._least
        value = level + math.log1p(-tail * (1.0 - self._noise)) + beyond
        return not_negative(_round_up(base, value, scale=abs(level))), root

    def epsilons(self, rows: FloatArray) -> FloatArray:
        """As `epsilon`, for the sums in each row at once; NaN where it must be asked one by one."""
        base = rows.min(axis=1)
        found = np.full(len(rows), math.nan)
        usual = np.flatnonzero((base >= 0) & (base < math.inf))
        base, beta = base[usual], self._orders.beta
        excess = (rows[usual] - base[:, None]) * UP
        level = (excess + self._slope.crossings).min(axis=1)
        for _ in range(_STEPS_OF_MANY):
            terms = np.exp(self._slope.log + beta * (level[:, None] - excess))
            total = terms @ self._ones
            log_total = np.log(total)
            far = ~(log_total <= self._near)
            if not far.any():
                break
            level -= np.where(far, (log_total - self._aim) * total / (terms @ beta), 0.0)
        # By the tangent, as in `solve`.
        tail = terms @ self._inverse
        slope = (total * (1.0 + self._noise) - 1.0) / (1.0 - tail * (1.0 + self._noise))
        beyond = slope * (log_total + 2.0 * self._noise) / self._least
        raised = level + np.log1p(-tail * (1.0 - self._noise)) + beyond
        raised += 1e-14 * (1.0 + np.abs(level))
        value = np.maximum((base + raised) + np.abs(base + raised) * (UP - 1.0), 0.0)
        found[usual] = np.where(~far & (log_total >= 2 * self._noise), value, math.nan)
        return found

    def tangent(self, rdp_sums: npt.ArrayLike) -> Tangent:
        """Epsilon at `rdp_sums`, which may be negative here, and a plane that bounds it beyond.

        At any level with S >= 1 the level is the exact optimum for delta / S <= delta, so
        value and gradient there bound those for delta (Theorem 4, a and c).
        """
        base, excess = self._shifted(rdp_sums)
        if base == math.inf:
            return Tangent(math.inf, np.zeros(len(self._orders)))
        level, terms, total = self._level(self._slope, excess, self._tolerance)
        tail = float(self._inverse.dot(terms))
        slope = terms * (self._orders.beta / self._orders.array)
        return Tangent(
            self._optimum(base, level, tail / total),
            slope * ((1.0 + 16.0 * self._noise) / (total - tail)),
        )

    def loss_bound(self, rdp_sums: npt.ArrayLike) -> float:
        """Level that the privacy loss passes at some time with probability at most delta."""
        base, excess = self._shifted(rdp_sums)
        if base == math.inf:
            return math.inf
        level, _, _ = self._level(self._tail, excess, self._tolerance)
        return _round_up(base, level, scale=abs(level))

    def two_sided(self) -> Mixture:
        """A mixture whose `loss_bound` holds for the absolute loss with probability 1 - delta.

        The lower tail adds at most e^{-l(0)} times the upper one, l(0) the bound before the
        first spend; the bound is at most 1e-7 high, so 1e-6 is taken off (docs, point 2).
        """
        start = self.loss_bound(np.zeros(len(self._orders))) - 1e-6
        smaller = self._delta / (1.0 + math.exp(-start)) * (1.0 - 1e-15)
        return Mixture(self._orders, self._weights, smaller)

    def _optimum(self, base: float, level: float, tail: float) -> float:
        """Epsilon at the level of the optimum, where T is `tail`; rounded up."""
        share = (tail - self._noise) / (1.0 + self._noise)
        return _round_up(base, level + math.log1p(-share), scale=abs(level))

    def _shifted(self, rdp_sums: npt.ArrayLike) -> tuple[float, FloatArray]:
        """Smallest sum, and the sums above it: epsilon(R + t) = epsilon(R) + t."""
        sums = np.asarray(rdp_sums, dtype=np.float64)
        if sums.shape != self._weights.shape:
            raise ValueError(
                f"rdp_sums must hold one value per order ({len(self._orders)}), "
                f"got shape {sums.shape}"
            )
        # The place of the least costs a third of `min`, and is the first NaN where there is one.
        base = sums.item(sums.argmin())
        if not base >= 0:
            raise ValueError(f"rdp_sums must be >= 0 at every order, got {base!r}")
        if base == math.inf:
            return base, sums
        excess = sums - base
        # Differences that are subnormal are exact.
        excess *= UP_EACH
        return base, excess

    def _root(self, base: float, excess: FloatArray, level: float, terms: FloatArray) -> Root:
        pull = self._orders.beta * terms
        weight = float(self._ones.dot(pull))
        return Root(base + level, level - float(pull.dot(excess)) / weight, pull, weight)

    def _start(self, base: float, excess: FloatArray, last: Root | None) -> float | None:
        """A level just over that of the optimum if sums have grown little; None if not."""
        if last is None:
            return None
        level = last.anchor + float(last.pull.dot(excess)) / last.weight
        risen = base + level - last.level
        # No term grows by more than e to this, so nothing overflows.
        if not 0.0 <= risen * self._most <= 1.0:
            return None
        return level + 4.0 * self._noise / self._least

    def _level(
        self, constants: _Constants, rdp: FloatArray, tolerance: float, start: float | None = None
    ) -> tuple[float, FloatArray, float]:
        """A level l where S(l) = sum e^{log + b (l - R)} is just over 1; its terms; S.

        log S is convex and increasing, so Newton's method from the right stays right of the
        root and falls towards it. By default it starts where the largest term is just over 1,
        so that nothing overflows.
        """
        beta = self._orders.beta
        if start is None:
            crossings = rdp + constants.crossings
            start = crossings.item(crossings.argmin())
        level = start
        nudge = 0.0
        for _ in range(_MAX_STEPS):
            terms = level - rdp
            terms *= beta
            terms += constants.log
            terms = np.exp(terms)
            # A product with ones adds up in a third of the time of `sum`.
            total = float(self._ones.dot(terms))
            log_total = math.log(total)
            if log_total < 2 * self._noise:
                # Floats are too coarse here to meet the aim: take the first level above it.
                nudge = max(2 * nudge, 2.0**-52 * (1.0 + abs(level)))
                level += nudge
            elif nudge or log_total <= tolerance:
                return level, terms, total
            else:
                lower = level - (log_total - self._aim) * total / float(beta.dot(terms))
                if lower == level:
                    return level, terms, total
                level = lower
        raise ArithmeticError("no certified level found; the sums are beyond double precision")


def _checked_weights(weights: Sequence[float] | FloatArray, size: int) -> FloatArray:
    if isinstance(weights, str | bytes) or not isinstance(weights, Iterable):
        raise TypeError(f"weights must be a sequence of numbers, got {weights!r}")
    values = [arguments.positive("weights", weight) for weight in weights]
    if len(values) != size:
        raise ValueError(f"weights must hold one value per order ({size}), got {len(values)}")
    total = math.fsum(values)
    if not abs(total - 1.0) <= 1e-9:
        raise ValueError(f"weights must sum to 1, got a sum of {total!r}; divide them by it")
    return locked(np.array(values))


def _round_up(base: float, value: float, *, scale: float) -> float:
    """base + value, never below the real sum."""
    raised = value + 1e-14 * (1.0 + scale)
    return (base + raised) + abs(base + raised) * (UP - 1.0)
