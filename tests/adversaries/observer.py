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
        p = _convolved(one.p, two.p, delta)
        # Probabilities sum to 1 at most, however many products rounded them.
        p = p / max(1.0, float(p.sum()))
        return View(one.step, one.low + two.low, p)._trimmed(_DROPPED * delta)._handy()

    def on(self, step, anchor=None):
        """On another lattice."""
        q = self.p * np.exp(-self.losses)
        return deal(q, q * np.expm1(self.losses), step, anchor)

    def _trimmed(self, dropped):
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


def _convolved(one, two, delta):
    if delta < _LARGE_DELTA or len(one) * len(two) < 10**6:
        return np.convolve(one, two)
    error = 1e-15 * math.sqrt(float(one @ one) * float(two @ two))
    return np.maximum(fftconvolve(one, two) - error, 0.0)


def deal(q, d, step, anchor=None):
    """Outputs in rising order of 1 + d / q, put together so that each lot has a lattice loss.

    The lattice passes through `anchor`, by default at the likelier of the two ends.
    """
    seen = (q > 0) & (q + d > 0)
    q, d = q[seen], d[seen]
    loss = np.log1p(d / q)
    low, high = ((loss <= loss[0] + step), (loss >= loss[-1] - step))
    upward = float((q + d)[low].sum()) >= float((q + d)[high].sum())
    if anchor is None:
        end = low if upward else high
        anchor = math.log1p(float(d[end].sum()) / float(q[end].sum()))
    lots = []
    if not upward:
        # From the upper end, with the data sets exchanged; what falls short there is dropped.
        lots = _lots((q + d)[::-1].tolist(), (-d[::-1]).tolist(), step, -anchor)
        lots = [lot for lot in lots if lot[2]][::-1]
        points = [-point for point, _, _ in lots]
        masses = [mass * math.exp(anchor - point * step) for point, mass, _ in lots]
    if not lots:
        lots = _lots(q.tolist(), d.tolist(), step, anchor)
        # The last lot may fall short of its point: it counts as the one below.
        points = [point if whole else point - 1 for point, _, whole in lots]
        masses = [mass for _, mass, _ in lots]
    p = np.zeros(points[-1] - points[0] + 1)
    np.add.at(p, np.array(points) - points[0], masses)
    return View(step, anchor + points[0] * step, p)


def _lots(q, d, step, anchor):
    """[(lattice point, probability under the first, whether it is exactly there), ...]."""
    lots, point, target, sum_q, sum_d = [], None, 0.0, 0.0, 0.0
    for more_q, more_d in zip(q, d, strict=True):
        if point is not None:
            if sum_d + more_d <= target * (sum_q + more_q):
                sum_q, sum_d = sum_q + more_q, sum_d + more_d
                continue
            # This part of the output brings the lot to its lattice point.
            beyond = more_d - target * more_q
            part = min(max((target * sum_q - sum_d) / beyond, 0.0), 1.0) if beyond > 0 else 0.0
            lots.append((point, sum_q + sum_d + part * (more_q + more_d), True))
            more_q, more_d, point = more_q * (1 - part), more_d * (1 - part), None
        if more_q > 0:
            place = (math.log1p(more_d / more_q) - anchor) / step
            point = round(place) if abs(place - round(place)) < 1e-9 else math.ceil(place)
            target = math.expm1(anchor + point * step)
            sum_q, sum_d = more_q, more_d
    if point is not None:
        place = (math.log1p(sum_d / sum_q) - anchor) / step
        lots.append((point, sum_q + sum_d, abs(place - point) < 1e-9))
    return lots


@lru_cache(maxsize=512)
def one_run(cost, added, reach):
    """The view of one run; losses beyond `reach` count as `reach`."""
    seen = outputs(cost)
    q, d = seen.swapped() if added else seen
    p = q + d
    q, d, p = q[p > 0], d[p > 0], p[p > 0]
    loss = np.log1p(d / q)
    high = loss > reach
    q[high], d[high] = p[high] * math.exp(-reach), p[high] * -math.expm1(-reach)
    loss = np.minimum(loss, reach)
    deviation = math.sqrt(float(p @ loss**2))
    step = max(deviation / 24, (float(loss[-1]) - max(float(loss[0]), -reach)) / _MOST)
    anchor = None
    if isinstance(cost, dm.Laplace | dm.PureDp):
        # Both ends have a probability of their own, and must lie on the lattice.
        anchor, step = float(loss[0]), -float(loss[0]) / math.ceil(-float(loss[0]) / step)
    return deal(q, d, step, anchor)


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
