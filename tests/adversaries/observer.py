"""An observer of many runs, who rounds what she sees to a lattice without gaining anything.

`View` is the privacy loss of what she sees, under the first data set. Neighbouring outputs are put
together until their ratio is exactly a lattice point: forgetting which of them it was is
post-processing. What is dropped is lost to her. So the hockey stick of a view is at most the true
one, but for rounding of some 1e-10 of itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.signal import fftconvolve

import dosimeter as dm
from adversaries.pairs import outputs

_MANY = 2000
_MOST = 5000
_PER_DEVIATION = 40
_DROPPED = 1e-7
"""Share of delta that a product may drop at either end."""

_LARGE_DELTA = 1e-8
"""Above it the absolute errors of a Fourier transform do not matter."""


@dataclass(frozen=True, eq=False)
class View:
    """Probability p[i] of the loss low + i step under the first data set."""

    step: float
    low: float
    p: np.ndarray

    @property
    def losses(self):
        return self.low + np.arange(len(self.p)) * self.step

    @property
    def deviation(self):
        if not self.p.any():
            return 0.0
        mean = self.p @ self.losses / self.p.sum()
        return math.sqrt(max(0.0, self.p @ (self.losses - mean) ** 2 / self.p.sum()))

    def hockey_stick(self, epsilon):
        """P(S) - e^epsilon Q(S) for the best set S of what is seen."""
        gain = -np.expm1(-np.maximum(self.losses - epsilon, 0.0))
        return float(gain @ self.p)

    def plus(self, other, delta):
        """What is seen of two independent computations."""
        one, two = (self, other) if self.step >= other.step else (other, self)
        if two.step != one.step:
            two = two.on(one.step)
        p = convolved(one.p, two.p, delta)
        # Probabilities sum to 1 at most, however many products rounded them.
        p = p / max(1.0, float(p.sum()))
        return View(one.step, one.low + two.low, p).trimmed(_DROPPED * delta)._handy()

    def on(self, step, anchor=None):
        """On another lattice."""
        q = self.p * np.exp(-self.losses)
        return deal(self.p, q, -self.p * np.expm1(-self.losses), step, anchor)

    def trimmed(self, dropped):
        """Without rare losses at both ends: who never sees them loses at most their chance."""
        first = int(np.searchsorted(np.cumsum(self.p), dropped))
        last = len(self.p) - int(np.searchsorted(np.cumsum(self.p[::-1]), dropped))
        if first >= last:
            return self
        return View(self.step, self.low + first * self.step, self.p[first:last])

    def _handy(self):
        """On a coarser lattice if there are many points and they are finer than needed."""
        view = self
        while len(view.p) > _MOST or (
            len(view.p) > _MANY and 2 * view.step * _PER_DEVIATION < view.deviation
        ):
            view = view.on(2 * view.step)
        return view


def convolved(one, two, delta):
    """The chances of sums, never too large by more than rounding."""
    if delta < _LARGE_DELTA or len(one) * len(two) < 10**6:
        return np.convolve(one, two)
    error = 1e-15 * math.sqrt(float(one @ one) * float(two @ two))
    return np.maximum(fftconvolve(one, two) - error, 0.0)


def deal(p, q, d, step, anchor=None):
    """Outputs in rising order of p / q, put together so that each lot has a lattice loss.

    The lattice passes through `anchor`, by default at the likelier of the two ends.
    """
    seen = (q > 0) & (p > 0)
    p, q, d = p[seen], q[seen], d[seen]
    if not len(p):
        # Nothing is left to see where a likelihood ratio leaves the range of a float.
        return View(step, 0.0, np.zeros(1))
    loss = log_ratio(p, q, d)
    low, high = ((loss <= loss[0] + step), (loss >= loss[-1] - step))
    upward = float(p[low].sum()) >= float(p[high].sum())
    if anchor is None:
        end = low if upward else high
        anchor = _loss(*(float(x[end].sum()) for x in (p, q, d)))
    lots = []
    if not upward:
        # From the upper end, with the data sets exchanged; what falls short there is dropped.
        lots = _lots(*(x[::-1].tolist() for x in (q, p, -d)), step, -anchor)
        lots = [lot for lot in lots if lot[2]][::-1]
        points = [-point for point, _, _ in lots]
        masses = [mass * math.exp(anchor - point * step) for point, mass, _ in lots]
    if not lots:
        lots = _lots(p.tolist(), q.tolist(), d.tolist(), step, anchor)
        # The last lot may fall short of its point: it counts as the one below.
        points = [point if whole else point - 1 for point, _, whole in lots]
        masses = [mass for _, mass, _ in lots]
    view = np.zeros(points[-1] - points[0] + 1)
    np.add.at(view, np.array(points) - points[0], masses)
    return View(step, anchor + points[0] * step, view)


def _lots(p, q, d, step, anchor):
    """[(lattice point, probability under the first, whether it is exactly there), ...].

    The ratio p / q of a lot is e^loss. Where the loss is small the difference d = p - q tells how
    far it is from there, elsewhere p does.
    """
    lots, point, target, sum_p, sum_q, sum_d = [], None, 0.0, 0.0, 0.0, 0.0
    small = True
    for more_p, more_q, more_d in zip(p, q, d, strict=True):
        if point is not None:
            # How far the lot, and this output, are below (above) the lattice point.
            if small:
                short, beyond = target * sum_q - sum_d, more_d - target * more_q
            else:
                short, beyond = target * sum_q - sum_p, more_p - target * more_q
            if beyond <= short:
                sum_p, sum_q, sum_d = sum_p + more_p, sum_q + more_q, sum_d + more_d
                continue
            # This part of the output brings the lot to its lattice point.
            part = min(max(short / beyond, 0.0), 1.0) if beyond > 0 else 0.0
            lots.append((point, sum_p + part * more_p, True))
            rest, point = 1 - part, None
            more_p, more_q, more_d = rest * more_p, rest * more_q, rest * more_d
        if more_q > 0 and more_p > 0:
            place = (_loss(more_p, more_q, more_d) - anchor) / step
            point = round(place) if abs(place - round(place)) < 1e-9 else math.ceil(place)
            loss = anchor + point * step
            small = -0.5 < loss < 0.5
            target = math.expm1(loss) if small else math.exp(loss)
            sum_p, sum_q, sum_d = more_p, more_q, more_d
    if point is not None:
        place = (_loss(sum_p, sum_q, sum_d) - anchor) / step
        lots.append((point, sum_p, abs(place - point) < 1e-9))
    return lots


def log_ratio(p, q, d):
    """log(p / q) of arrays, by the difference d = p - q where that is small."""
    near = np.abs(d) < 0.5 * q
    return np.where(near, np.log1p(np.where(near, d / q, 0.0)), np.log(p / q))


def _loss(p, q, d):
    return math.log1p(d / q) if abs(d) < 0.5 * q else math.log(p / q)


@lru_cache(maxsize=512)
def one_run(cost, added, reach):
    """The view of one run; losses beyond `reach` count as `reach`."""
    seen = outputs(cost)
    p, q, d = (seen.q[::-1], seen.p[::-1], -seen.d[::-1]) if added else (seen.p, seen.q, seen.d)
    p, q, d = (x[(p > 0) & (q > 0)] for x in (p, q, d))
    loss = log_ratio(p, q, d)
    high = loss > reach
    q[high], d[high] = p[high] * math.exp(-reach), p[high] * -math.expm1(-reach)
    loss = np.minimum(loss, reach)
    deviation = math.sqrt(float(p @ loss**2))
    step = max(deviation / 24, (float(loss[-1]) - max(float(loss[0]), -reach)) / _MOST)
    anchor = None
    if isinstance(cost, dm.Laplace | dm.PureDp):
        # Both ends have a probability of their own, and must lie on the lattice.
        anchor, step = float(loss[0]), -float(loss[0]) / math.ceil(-float(loss[0]) / step)
    return deal(p, q, d, step, anchor)


class Runs:
    """The view of any number of runs of one mechanism."""

    def __init__(self, cost, added, *, epsilon, delta):
        self._delta = delta
        self._powers = [one_run(cost, added, epsilon + 4.0)]

    def of(self, count):
        """The view of `count` runs."""
        total = None
        for place in range(count.bit_length()):
            if place == len(self._powers):
                last = self._powers[-1]
                self._powers.append(last.plus(last, self._delta))
            if count >> place & 1:
                power = self._powers[place]
                total = power if total is None else total.plus(power, self._delta)
        return total


def seen_of(spent, epsilon, delta, directions=("REMOVE", "ADD")):
    """What an observer of a fixed sequence [(cost, count), ...] reaches."""
    best = 0.0
    for direction in directions:
        total = None
        for cost, count in spent:
            view = Runs(cost, direction == "ADD", epsilon=epsilon, delta=delta).of(count)
            total = view if total is None else total.plus(view, delta)
        best = max(best, total.hockey_stick(epsilon))
    return best
