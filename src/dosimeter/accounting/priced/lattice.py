# SPDX-License-Identifier: Apache-2.0
"""Privacy losses on a lattice, and their sums, without ever losing mass to rounding.

A `Measure` stands for the loss X of some computation in one neighbour direction. It dominates
it: for every g in the class used by the value table (non-decreasing in the loss L, convex and
non-increasing in u = e^-L) the true expectation of g(X) is at most
(1 + rel) (sum p_i g(x_i) + inf g(infinity)). Losses are moved to lattice points by spreads that
keep the mean of u, or upward; sums are plain convolutions, never an FFT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dosimeter.rdp.orders import FloatArray

FINE = 2.5e-4
"""Lattice on which a single run is placed."""

COARSE_LEVEL = 4
"""The value table lives on FINE * 2**COARSE_LEVEL = 4e-3."""

_MAX_POINTS = 8000
_CELL_SLACK = 2e-11
"""Relative error allowed for the probability of a cell (normal distribution function)."""


@dataclass(frozen=True, eq=False)
class Measure:
    """Masses `p` at (lo + i) * FINE * 2**level, `inf` at infinity, all up to a factor 1 + rel."""

    level: int
    lo: int
    p: FloatArray
    inf: float
    rel: float

    @property
    def step(self) -> float:
        """Distance of lattice points."""
        return FINE * 2.0**self.level

    @property
    def mass(self) -> float:
        """Total mass, rounded up."""
        return (float(self.p.sum()) * (1 + len(self.p) * 2.0**-53) + self.inf) * (1 + self.rel)

    def plus(self, other: Measure) -> Measure:
        """The loss of two independent computations."""
        one, two = (self, other) if self.level >= other.level else (other, self)
        while two.level < one.level:
            two = two.coarser()
        shorter = min(len(one.p), len(two.p))
        p = np.convolve(one.p, two.p)
        inf = (one.inf * two.mass + two.inf * one.mass) * (1 + 2.0**-50) + 1e-290
        rel = (1 + one.rel) * (1 + two.rel) * (1 + 1.01 * (shorter + 2) * 2.0**-53) - 1
        return Measure(one.level, one.lo + two.lo, p, inf, rel * (1 + 2.0**-50))

    def pruned(self, tail: float) -> Measure:
        """Mass of at most `tail` at the top goes to infinity, at the bottom up to what is kept."""
        from_top = np.cumsum(self.p[::-1])
        drop = int(np.searchsorted(from_top, tail, side="right"))
        from_bottom = np.cumsum(self.p)
        skip = int(np.searchsorted(from_bottom, tail, side="right"))
        if skip + drop >= len(self.p):
            return self
        p = self.p[skip : len(self.p) - drop].copy()
        lifted = float(from_bottom[skip - 1]) if skip else 0.0
        p[0] += lifted * (1 + 1e-12)
        lost = float(from_top[drop - 1]) * (1 + 1e-12) if drop else 0.0
        return replace(self, lo=self.lo + skip, p=p, inf=self.inf + lost)

    def coarser(self) -> Measure:
        """On the lattice of twice the step: odd points spread so that the mean of u stays."""
        p, lo = self.p, self.lo
        if lo % 2:
            p, lo = np.concatenate([[0.0], p]), lo - 1
        if len(p) % 2 == 0:
            p = np.append(p, 0.0)
        down = 1.0 / (1.0 + math.exp(self.step)) * (1 - 1e-15)
        even, odd = p[0::2].copy(), p[1::2]
        even[:-1] += odd * down
        even[1:] += odd * (1.0 - down)
        rel = (1 + self.rel) * (1 + 4 * 2.0**-53) - 1
        return Measure(self.level + 1, lo // 2, even, self.inf, rel)

    def at_level(self, level: int) -> Measure:
        """On a coarser lattice."""
        measure = self
        while measure.level < level:
            measure = measure.coarser()
        return measure


def composed(single: Measure, count: int, tail: float) -> Measure:
    """The loss of `count` independent runs, on the coarse lattice, pruned to `tail` each time."""
    total: Measure | None = None
    power = _tidy(single, tail)
    remaining = count
    while True:
        if remaining & 1:
            total = power if total is None else _tidy(total.plus(power), tail)
        remaining >>= 1
        if not remaining:
            break
        power = _tidy(power.plus(power), tail)
    assert total is not None
    return total.at_level(max(COARSE_LEVEL, total.level))


def _tidy(measure: Measure, tail: float) -> Measure:
    measure = measure.pruned(tail)
    while len(measure.p) > _MAX_POINTS and measure.level < COARSE_LEVEL:
        measure = measure.coarser()
    return measure


def spread(lo: int, mass_p: FloatArray, mass_q: FloatArray, inf: float) -> Measure:
    """A measure from the probabilities of cells [(lo+i) FINE, (lo+i+1) FINE] in both worlds.

    Each cell's mass goes to its two ends so that mass and mean of u = e^-loss are kept: a spread
    of u, which dominates. What rounding may have misplaced goes to the upper end.
    """
    index = lo + np.arange(len(mass_p), dtype=np.float64)
    below = np.exp(-index * FINE)
    gap = below * -math.expm1(-FINE)
    lower = (mass_q - mass_p * np.exp(-(index + 1) * FINE)) / gap
    lower = np.clip(lower - mass_p * (_CELL_SLACK / -math.expm1(-FINE)), 0.0, mass_p)
    p = np.zeros(len(mass_p) + 1)
    p[:-1] += lower
    p[1:] += mass_p - lower
    return Measure(0, lo, p * (1 + 1e-10), inf * (1 + 1e-10) + 1e-18, 0.0)
