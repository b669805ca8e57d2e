# SPDX-License-Identifier: Apache-2.0
"""Losses of bundles for the checker: closed forms of mechanisms, added up by a Fourier transform.

Nothing of the builder's lattice and losses is used. One run's loss is cut into cells by how likely
each world is to pass them; a cell's mass goes to its two ends so that the mean of u = e^-loss
stays, which dominates. Sums are powers of one transform; what may lie outside of its window, by
Chernoff's bound, goes to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dosimeter.accounting.priced.items import Direction, Finite
from dosimeter.rdp import Cost, Gaussian, Laplace, Neighbours, PureDp, SampledGaussian
from dosimeter.rdp.orders import FloatArray

_POINTS_PER_SCALE = 16
_MOST_POINTS = 2**20

Tails = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Pair:
    """The probabilities of a loss above x in both worlds, where losses lie, and their scale."""

    tails: Tails
    low: float
    high: float
    scale: float


@dataclass(frozen=True)
class Sum:
    """Masses `p` at (first + i) * step, and `inf` at infinity."""

    step: float
    first: int
    p: FloatArray
    inf: float

    def profile(self, epsilons: FloatArray) -> FloatArray:
        """E (1 - e^{epsilon - X})+ at every epsilon."""
        x = (self.first + np.arange(len(self.p))) * self.step
        above = np.append(np.cumsum(self.p[::-1])[::-1], 0.0)
        shrunk = np.append(np.cumsum((self.p * np.exp(-x))[::-1])[::-1], 0.0)
        start = np.searchsorted(x, epsilons, side="right")
        gain = above[start] - np.exp(epsilons) * shrunk[start]
        return np.asarray(np.maximum(gain, 0.0) + self.inf)


def pair_of(cost: Cost, way: Direction) -> Pair:
    match cost:
        case SampledGaussian(sample_rate=rate, noise_multiplier=noise):
            scale = rate * math.sqrt(math.expm1(min(1.0, noise**-2)))
            return _gaussian(rate, 1 / noise, way, scale)
        case Gaussian(noise_multiplier=noise):
            return _gaussian(1.0, 1 / noise, way, 1 / noise)
        case Laplace():
            return _laplace(cost.pure_epsilon)
    worlds = outcomes(cost)
    if worlds is None:
        raise ValueError(f"menu must hold costs with a known loss distribution, got {cost}")
    return _atoms(worlds if way is Direction.REMOVE else [(q, p) for p, q in worlds])


def same_both_ways(cost: Cost) -> bool:
    """Whether the closed form is the same in both directions; in doubt not."""
    return isinstance(cost, Gaussian | Laplace)


def outcomes(cost: Cost) -> list[tuple[float, float]] | None:
    """Both probabilities of every outcome, where there are finitely many."""
    if isinstance(cost, PureDp) and cost.delta == 0:
        p = 1 / (1 + math.exp(-cost.epsilon))
        return [(p, p * math.exp(-cost.epsilon)), (p * math.exp(-cost.epsilon), p)]
    if isinstance(cost, Finite):
        worlds = [(float(p), float(q)) for p, q in cost.worlds()]
        swaps = cost.neighbours is Neighbours.REPLACE_ONE_RECORD
        if swaps and sorted(worlds) != sorted((q, p) for p, q in worlds):
            raise ValueError(f"menu must hold no asymmetric cost where records swap, got {cost}")
        return worlds
    return None


def _gaussian(rate: float, shift: float, way: Direction, scale: float) -> Pair:
    """(1-q) N(0,1) + q N(shift,1) against N(0,1), or the reverse, by the output's threshold."""
    from scipy.special import ndtr

    def output(loss: FloatArray) -> FloatArray:
        if rate == 1.0:
            return loss / shift + shift / 2
        with np.errstate(divide="ignore"):
            grown = np.log1p(np.maximum(np.expm1(loss) / rate, -1.0))
            # A rate near 1 leaves little of that sum; e^loss beside 1 - rate does not cancel there.
            low = np.log(np.maximum(np.exp(np.minimum(loss, 0.0)) - (1 - rate), 0.0) / rate)
        return np.where(loss < -0.5, low, grown) / shift + shift / 2

    def removed(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        cut = output(x)
        return (1 - rate) * ndtr(-cut) + rate * ndtr(shift - cut), ndtr(-cut)

    def added(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        cut = output(-x)
        return ndtr(cut), (1 - rate) * ndtr(cut) + rate * ndtr(cut - shift)

    # Outputs beyond 11 deviations have a probability below 1e-27.
    far = 11 + shift
    low, high = (
        (shift * (x - shift / 2) if rate == 1.0 else _log_mixed(rate, shift * (x - shift / 2)))
        for x in (-far, far)
    )
    if way is Direction.REMOVE:
        return Pair(removed, low, high, scale)
    return Pair(added, -high, -low, scale)


def _log_mixed(rate: float, exponent: float) -> float:
    """log(1 - rate + rate e^exponent)."""
    if exponent > 30:
        return math.log(rate) + exponent + math.log1p((1 - rate) / rate * math.exp(-exponent))
    if exponent < 0 and rate > 0.5:
        return math.log((1 - rate) + rate * math.exp(exponent))
    return math.log1p(rate * math.expm1(exponent))


def _laplace(epsilon: float) -> Pair:
    """A loss above x is an output below (1 - x / epsilon) / 2, in units of the sensitivity."""

    def tails(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        inside = np.clip(x, -epsilon, epsilon)
        p = 1 - 0.5 * np.exp((inside - epsilon) / 2)
        q = 0.5 * np.exp(-(inside + epsilon) / 2)
        below, beyond = x < -epsilon, x >= epsilon
        return np.where(below, 1.0, np.where(beyond, 0.0, p)), np.where(
            below, 1.0, np.where(beyond, 0.0, q)
        )

    return Pair(tails, -epsilon, epsilon, epsilon)


def _atoms(worlds: Iterable[tuple[float, float]]) -> Pair:
    """Finitely many outcomes; those that only the first world has are an infinite loss."""
    pairs = [(p, q, math.log(p / q) if q > 0 else math.inf) for p, q in worlds if p > 0]
    finite = [loss for *_, loss in pairs if loss < math.inf]

    def tails(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, q = np.zeros_like(x), np.zeros_like(x)
        for mass, other, loss in pairs:
            p += np.where(loss > x, mass, 0.0)
            q += np.where(loss > x, other, 0.0)
        return p, q

    return Pair(tails, min(finite), max(finite), max(map(abs, finite)))


def total_of(pair: Pair, runs: int, coarse: float, reach: float, outside: float) -> Sum:
    """The loss of `runs` independent runs, on a step that divides `coarse`."""
    finer = max(0, math.ceil(math.log2(coarse * _POINTS_PER_SCALE / pair.scale)))
    # A long thin tail beside a narrow body.
    while finer > 0 and (min(pair.high, reach) - max(pair.low, -reach)) * 2**finer > (
        _MOST_POINTS * coarse
    ):
        finer -= 1
    total = _single(pair, coarse / 2**finer, reach)
    # More runs than can be held at once are added up in stages, the later ones more coarsely.
    while runs > 1:
        part = runs
        while part > 2 and _window(total, part, outside)[1] > _MOST_POINTS:
            part = math.isqrt(part)
        runs = -(-runs // part)
        # What one stage leaves outside is taken as often as the next one adds it up.
        total = _capped(_power(total, part, outside / runs), reach)
        while runs > 1 and total.step < coarse and _deviation(total) > 32 * total.step:
            total = _halved(total)
    while total.step < coarse * (1 - 1e-9):
        total = _halved(total)
    return total


def _single(pair: Pair, step: float, reach: float) -> Sum:
    """One run: each cell's mass goes to its two ends so that mass and the mean of u are kept."""
    first = math.floor(max(pair.low, -reach) / step)
    last = math.ceil(min(pair.high, reach) / step) + 1
    x: FloatArray = np.arange(first, last + 1, dtype=np.float64) * step
    u = np.exp(-x)
    above_p, above_q = pair.tails(x)
    # What lies lower is raised to the first point. The rest of Q there would drag P's mass down.
    below = max(0.0, 1.0 - float(above_p[0]) - 2.0**-50)
    above_p[0], above_q[0] = 1.0, above_q[0] + below * u[0]
    p, q = -np.diff(above_p), -np.diff(above_q)
    lower = np.clip((q - p * u[1:]) / (u[:-1] - u[1:]), 0.0, p)
    masses = np.append(lower, 0.0)
    masses[1:] += p - lower
    tail = float(above_p[-1])
    kept = min(tail, float(above_q[-1]) * math.exp(float(x[-1])))
    masses[-1] += kept
    return Sum(step, first, masses, tail - kept)


def _capped(one: Sum, reach: float) -> Sum:
    """Losses above `reach` spread between it and infinity, those below minus it raised to that."""
    last = math.ceil(reach / one.step)
    index = one.first + np.arange(len(one.p))
    kept = one.p * np.exp(-np.maximum(index - last, 0) * one.step)
    place = np.clip(index, -last, last)
    masses: FloatArray = np.bincount(place - place[0], weights=kept).astype(np.float64)
    return Sum(one.step, int(place[0]), masses, one.inf + float((one.p - kept).sum()))


def _deviation(one: Sum) -> float:
    x = np.arange(len(one.p)) * one.step
    mass = float(one.p.sum())
    mean = float(one.p @ x) / mass
    return math.sqrt(max(float(one.p @ (x - mean) ** 2) / mass, one.step**2 / 100))


def _window(one: Sum, runs: int, outside: float) -> tuple[int, int]:
    """First point and number of points, beyond which the sum lies with little probability.

    By Chernoff's bound, over some exponents on either side.
    """
    x = (one.first + np.arange(len(one.p))) * one.step
    spread = _deviation(one) * math.sqrt(runs)
    far = max(spread, float(np.abs(x[[0, -1]]).max()))
    exponents = np.geomspace(0.3 / far, 60 / spread, 24)
    live = one.p > 0
    x, log_p = x[live], np.log(one.p[live])
    ends = [
        min((runs * _log_mean(log_p + s * t * x) - math.log(outside)) / t for t in exponents)
        for s in (-1.0, 1.0)
    ]
    low = max(math.floor(-ends[0] / one.step), runs * one.first)
    high = min(math.ceil(ends[1] / one.step), runs * (one.first + len(one.p) - 1))
    return low, max(1, high - low + 1)


def _log_mean(exponents: FloatArray) -> float:
    """log of the sum of e^exponent."""
    most = float(exponents.max())
    return most + math.log(float(np.exp(exponents - most).sum()))


def _power(one: Sum, runs: int, outside: float) -> Sum:
    """The sum of `runs` independent losses; what may lie above the window goes to infinity."""
    if runs == 1:
        return one
    from scipy.fft import irfft, next_fast_len, rfft

    first, points = _window(one, runs, outside)
    size = next_fast_len(max(points, len(one.p)), real=True)
    # Around its mean a loss has small phases, whose powers lose nothing.
    centre = round(float(one.p @ np.arange(len(one.p))) / float(one.p.sum()))
    # A power multiplies the rounding of its base, hence the longest floats that there are.
    ring = np.zeros(size, dtype=np.longdouble)
    ring[: len(one.p)] = one.p
    powered = irfft(rfft(np.roll(ring, -centre)) ** runs, size)
    start = first - runs * (one.first + centre)
    p = np.maximum(np.roll(powered, -(start % size))[:points], 0.0).astype(np.float64)
    inf = -math.expm1(runs * math.log1p(-one.inf)) if one.inf < 1 else 1.0
    return Sum(one.step, first, p, inf + outside)


def _halved(one: Sum) -> Sum:
    """On twice the step: odd points go to their neighbours, keeping the mean of u."""
    odd_start = one.first % 2
    p = np.concatenate([np.zeros(odd_start), one.p, np.zeros(2)])
    p = p[: len(p) // 2 * 2 + 1] if len(p) % 2 else p[:-1]
    even, odd = p[0::2].copy(), p[1::2]
    down = 1 / (1 + math.exp(one.step))
    even[: len(odd)] += odd * down
    even[1 : 1 + len(odd)] += odd * (1 - down)
    return Sum(2 * one.step, (one.first - odd_start) // 2, even, one.inf)
