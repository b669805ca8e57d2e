# SPDX-License-Identifier: Apache-2.0
"""Privacy losses on a lattice, and their sums, without ever losing mass to rounding.

A `Measure` stands for the loss X of some computation in one neighbour direction. It dominates
it: for every g in the class used by the value table (non-decreasing in the loss L, convex and
non-increasing in u = e^-L) the true expectation of g(X) is at most
(1 + rel) (sum p_i g(x_i) + inf g(infinity)). Losses are moved to lattice points by spreads that
keep the mean of u, or upward; sums are plain convolutions, never an FFT, whose errors are
absolute and would drown the tails. Masses mean nothing without the step of their lattice, so
measures on different lattices are never added or tabulated together: that is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dosimeter.rdp.orders import FloatArray

FINE = 2.5e-4
"""Distance of lattice points at level 0; a level more doubles it."""

UNIT = 2.0**-53
"""Relative error of one rounding."""

_ENOUGH_POINTS = 2000
_TOO_MANY_POINTS = 8_000
_POINTS_PER_DEVIATION = 48


def step_of(level: int) -> float:
    """Distance of lattice points at a level."""
    return math.ldexp(FINE, level)


@dataclass(frozen=True, eq=False)
class Measure:
    """Masses `p` at (lo + i) * step, `inf` at infinity, all up to a factor 1 + rel."""

    level: int
    lo: int
    p: FloatArray
    inf: float
    rel: float

    @property
    def step(self) -> float:
        """Distance of lattice points."""
        return step_of(self.level)

    @property
    def mass(self) -> float:
        """Total mass, rounded up."""
        finite = float(self.p.sum()) * (1 + len(self.p) * UNIT)
        return (finite + self.inf) * (1 + self.rel) * (1 + 8 * UNIT)

    @property
    def deviation(self) -> float:
        """Standard deviation of the finite losses, to a few digits."""
        x = np.arange(len(self.p)) * self.step
        total = float(self.p.sum())
        mean = float(self.p @ x) / total
        return math.sqrt(max(0.0, float(self.p @ (x - mean) ** 2) / total))

    def plus(self, other: Measure) -> Measure:
        """The loss of two independent computations, both on one lattice."""
        same_lattice([self, other])
        terms = min(len(self.p), len(other.p)) + 2
        inf = (self.inf * other.mass + other.inf * self.mass) * (1 + 8 * UNIT) + 1e-290
        rel = compounded(self.rel, other.rel, 1.01 * terms * UNIT)
        return Measure(self.level, self.lo + other.lo, np.convolve(self.p, other.p), inf, rel)

    def pruned(self, top: float, bottom: float) -> Measure:
        """Mass of at most `top` goes to infinity, at most `bottom` up to the lowest kept."""
        slack = 1 + 2 * (len(self.p) + 2) * UNIT
        from_top, from_bottom = np.cumsum(self.p[::-1]), np.cumsum(self.p)
        drop = int(np.searchsorted(from_top, top, side="right"))
        skip = int(np.searchsorted(from_bottom, bottom, side="right"))
        if skip + drop >= len(self.p):
            return self
        p = self.p[skip : len(self.p) - drop].copy()
        if skip:
            p[0] = (p[0] + float(from_bottom[skip - 1])) * slack
        lost = float(from_top[drop - 1]) if drop else 0.0
        return replace(self, lo=self.lo + skip, p=p, inf=(self.inf + lost) * slack)

    def capped(self, last: int) -> Measure:
        """Mass above the point `last` spread between it and infinity, keeping the mean of u."""
        keep = last - self.lo + 1
        if not 0 < keep < len(self.p):
            return self
        slack = 2 * (len(self.p) + 8) * UNIT
        tail = self.p[keep:]
        near = np.exp(-np.arange(1, len(tail) + 1) * self.step)
        kept = float(tail @ near) * (1 - slack)
        p = self.p[:keep].copy()
        p[-1] = (p[-1] + kept) * (1 + UNIT)
        inf = (self.inf + float(tail.sum()) * (1 + slack) - kept) * (1 + 8 * UNIT)
        return replace(self, p=p, inf=inf)

    def coarser(self) -> Measure:
        """On the lattice of twice the step: odd points spread so that the mean of u stays."""
        p, lo = self.p, self.lo
        if lo % 2:
            p, lo = np.concatenate([[0.0], p]), lo - 1
        if len(p) % 2 == 0:
            p = np.append(p, 0.0)
        # Rounding the lower share down moves mass up, which only raises expectations.
        down = 1.0 / (1.0 + math.exp(self.step)) * (1 - 16 * UNIT)
        even, odd = p[0::2].copy(), p[1::2]
        even[:-1] += odd * down
        even[1:] += odd * (1.0 - down)
        return Measure(self.level + 1, lo // 2, even, self.inf, compounded(self.rel, 8 * UNIT))

    def at_level(self, level: int) -> Measure:
        """On the lattice of a level, which must not be finer; the measure itself if it is there."""
        if self.level > level:
            raise LatticeError(
                f"level must not be finer than that of the measure ({self.level}), got {level}"
            )
        measure = self
        while measure.level < level:
            measure = measure.coarser()
        return measure


class LatticeError(AssertionError):
    """Measures were taken to be on a lattice that they are not on: a bug, never a bad input."""


def same_lattice(measures: Iterable[Measure]) -> int:
    """The level that all measures share; LatticeError if they do not share one."""
    levels = {measure.level for measure in measures}
    if len(levels) != 1:
        raise LatticeError(f"measures must be on one lattice, got levels {sorted(levels)}")
    return levels.pop()


def compounded(*rels: float) -> float:
    """An upper bound on the product of (1 + rel), less 1, for factors that sum to at most 1."""
    total = math.fsum(rels)
    return total * (1 + total) * (1 + 8 * UNIT)


class Runs:
    """The loss of any number of independent runs of one mechanism, sharing powers of two.

    Args:
        single: The loss of one run.
        level: The coarsest lattice to go to, on which every sum is given.
        top: Mass that may go to infinity at each product, per run in it.
        bottom: Mass that may be moved up at each product, per run in it.
    """

    def __init__(self, single: Measure, level: int, *, top: float, bottom: float) -> None:
        self._level, self._top, self._bottom = level, top, bottom
        self._powers = [self._tidy(single, 1)]

    def of(self, count: int) -> Measure:
        """The loss of `count` runs, on the lattice of this level."""
        total: Measure | None = None
        runs = 0
        for place in range(count.bit_length()):
            if len(self._powers) == place:
                last = self._powers[-1]
                self._powers.append(self._tidy(last.plus(last), 1 << place))
            if count >> place & 1:
                runs += 1 << place
                power = self._powers[place]
                total = power if total is None else self._tidy(_added(total, power), runs)
        assert total is not None
        return total.at_level(self._level)

    def _tidy(self, measure: Measure, runs: int) -> Measure:
        measure = measure.pruned(self._top * runs, self._bottom * runs)
        while measure.level < self._level and self._finer_than_needed(measure):
            measure = measure.coarser()
        return measure

    def _finer_than_needed(self, measure: Measure) -> bool:
        points = len(measure.p)
        if points <= _ENOUGH_POINTS:
            return False
        needed = measure.deviation / _POINTS_PER_DEVIATION
        return points > _TOO_MANY_POINTS or 2 * measure.step <= needed


def _added(one: Measure, two: Measure) -> Measure:
    """The sum, on the coarser of the two lattices."""
    level = max(one.level, two.level)
    return one.at_level(level).plus(two.at_level(level))


def spread(
    level: int,
    lo: int,
    mass_p: FloatArray,
    mass_q: FloatArray,
    error: FloatArray,
    beyond: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Measure:
    """A measure from the probabilities of cells [(lo + i), (lo + i + 1)] * step in both worlds.

    Each cell's mass goes to its two ends so that mass and mean of u = e^-loss are kept: a spread
    of u, which dominates. Of the last triple, what lies beyond the last cell, the ends are the
    last point and infinity. Where probabilities may be wrong, twice that is moved from the lower
    to the upper end, and the mass raised by it.

    Args:
        level: The lattice.
        lo: The lower end of the first cell.
        mass_p: Probability of each cell in the first world.
        mass_q: Probability of each cell in the second.
        error: What `mass_p`, and `mass_q` times e^loss, may each be wrong by.
        beyond: Both probabilities and the error of what is above the last cell.
    """
    step = step_of(level)
    index = lo + np.arange(len(mass_p), dtype=np.float64)
    width = -math.expm1(-step)
    gap = np.exp(-index * step) * width
    lower = (mass_q - mass_p * np.exp(-(index + 1) * step)) / gap
    lower = np.clip(lower - 2.5 * error / width, 0.0, mass_p)
    p = np.zeros(len(mass_p) + 1)
    p[:-1] += lower
    p[1:] += mass_p + 2 * error - lower
    tail_p, tail_q, tail_error = beyond
    kept = tail_q * math.exp((lo + len(mass_p)) * step) - 2.5 * tail_error
    kept = min(max(0.0, kept), tail_p)
    p[-1] += kept
    return Measure(level, lo, p, tail_p - kept + 2 * tail_error + 1e-24, 8 * UNIT)
