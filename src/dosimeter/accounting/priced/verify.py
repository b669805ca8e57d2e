# SPDX-License-Identifier: Apache-2.0
"""A second pair of eyes: what a finished menu or ladder is worth, found by another road.

The builder adds losses up by convolution on a lattice and tabulates values against masses. Nothing
of that is used here. A mechanism is read off its closed form again; a bundle's losses are added up
by one Fourier transform; and the value of the worst adversary is carried by the *kinks* of a
convex function of u = e^-loss, each of which a bundle raises by its own hockey-stick profile:

    V(n, L) = max((1 - e^{reading_n - L})+, max over items of V(n - price, L) + its kinks' gain)

with n quanta left. Between its points V is linear in u, which lies above a convex function, so
every value is an upper bound, but for the rounding of the transform, which `_ROUNDING` covers. A
filter is a ladder whose readings are all its limit. What few outcomes allow is enumerated instead.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.priced.items import Direction, Finite, Item, Ladder, Menu
from dosimeter.rdp import Cost, Gaussian, Laplace, PureDp, SampledGaussian
from dosimeter.rdp.orders import FloatArray

LEAST_DELTA = 1e-12 if np.finfo(np.longdouble).eps < 2e-19 else 1e-7
"""Below it the rounding of a transform is no longer small beside delta; doubles have more of it."""

_ROUNDING = 1 + 1e-3
"""Covers the rounding of the transform: 3e-4 at the smallest delta and millions of runs."""

_POINTS = 1200
_REACH = 3.0
"""Losses beyond this many times the largest reading are spread between there and infinity."""

_POINTS_PER_SCALE = 16
_MOST_POINTS = 2**20
_MOST_OUTCOMES = 4
_MOST_STATES = 20_000
_OUTSIDE = 1e-5
"""Share of delta that may lie outside the windows of all transforms together."""

Tails = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class _Pair:
    """The probabilities of a loss above x in both worlds, where losses lie, and their scale."""

    tails: Tails
    low: float
    high: float
    scale: float


@dataclass(frozen=True)
class _Sum:
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


def most_quanta(menu: Menu) -> int:
    """The largest number of quanta up to the menu's that is confirmed for its (epsilon, delta)."""
    if all(_small(menu, way) is None for way in Direction):
        for item in menu.items:
            menu = replace(menu, quanta=_most_alone(menu, item))
        if len(menu.items) == 1 or menu.quanta == 0:
            # Who can buy one thing only does best to buy it all (Lemma 1).
            return menu.quanta
    # With one reading for all, the value depends only on the quanta that are left.
    readings = [repeat(menu.epsilon, menu.quanta + 1) for _ in Direction]
    ways = [_values(menu, reading, way) for reading, way in zip(readings, Direction, strict=True)]
    quanta = -1
    for values in zip(*ways, strict=True):
        if not all(value <= menu.delta for value in values):
            break
        quanta += 1
    return max(0, quanta)


def _most_alone(menu: Menu, item: Item) -> int:
    """The largest number of quanta that may all be spent on one item."""

    def within(quanta: int) -> bool:
        bundles = quanta // item.price
        return not bundles or all(
            _sum(menu, item, bundles, way).profile(limit)[0] * _ROUNDING <= menu.delta
            for way in Direction
        )

    limit = np.array([menu.epsilon])
    low, high = 0, menu.quanta + 1
    if within(menu.quanta):
        return menu.quanta
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def reached(ladder: Ladder) -> float:
    """What an adversary reaches who buys what she likes and stops when she likes."""
    worst = 0.0
    for way in Direction:
        *_, value = _values(ladder.menu, reversed(ladder.readings), way)
        worst = value if not value <= worst else worst
    return worst


@lru_cache(maxsize=64)
def require_menu(menu: Menu) -> None:
    """Raises ValueError unless every adaptive use of the menu is confirmed to be within delta."""
    _require_numbers(menu)
    require_delta(menu)
    most = most_quanta(menu)
    if most < menu.quanta:
        raise ValueError(
            f"menu must sell no more than a second computation confirms ({most} quanta for "
            f"epsilon {menu.epsilon!r}, delta {menu.delta!r}), got {menu.quanta}. "
            "Make it again from its costs."
        )


@lru_cache(maxsize=64)
def require_ladder(ladder: Ladder) -> None:
    """Raises ValueError unless the readings are confirmed for whoever stops at the worst moment."""
    _require_numbers(ladder.menu)
    readings = [arguments.non_negative("readings", reading) for reading in ladder.readings]
    if not (len(readings) == ladder.menu.quanta + 1 and readings == sorted(readings)):
        raise ValueError(
            f"readings must rise over 0 to {ladder.menu.quanta} quanta, got {len(readings)} that "
            f"begin with {readings[:3]}"
        )
    require_delta(ladder.menu)
    value = reached(ladder)
    if not value <= ladder.menu.delta:
        raise ValueError(
            f"readings must hold by a second computation with delta {ladder.menu.delta!r}, got "
            f"ones that need {value!r}. Make the ladder again from its costs."
        )


def _require_numbers(menu: Menu) -> None:
    """Raises unless the menu is made of such numbers as a menu has."""
    arguments.positive("menu epsilon", menu.epsilon)
    arguments.open_unit("menu delta", menu.delta)
    arguments.count("quanta", menu.quanta)
    for item in menu.items:
        arguments.count("steps", item.steps)
        arguments.count("price", item.price)
    costs = [item.cost for item in menu.items]
    if not costs or len(set(costs)) != len(costs):
        raise ValueError(f"menu must hold every cost once, got {costs}")


def require_delta(menu: Menu) -> None:
    """Raises ValueError if delta is too small for anything to be confirmed."""
    if not menu.delta >= LEAST_DELTA:
        raise ValueError(
            f"delta must leave a menu at least {LEAST_DELTA:g}, got {menu.delta!r}: smaller ones "
            "cannot be confirmed. Use a gate without a menu."
        )


# -- mechanisms, by their closed forms -----------------------------------------------------


def _pair(cost: Cost, way: Direction) -> _Pair:
    match cost:
        case SampledGaussian(sample_rate=rate, noise_multiplier=noise):
            scale = rate * math.sqrt(math.expm1(min(1.0, noise**-2)))
            return _gaussian(rate, 1 / noise, way, scale)
        case Gaussian(noise_multiplier=noise):
            return _gaussian(1.0, 1 / noise, way, 1 / noise)
        case Laplace():
            return _laplace(cost.pure_epsilon)
    worlds = _outcomes(cost)
    if worlds is None:
        raise ValueError(f"menu must hold costs with a known loss distribution, got {cost}")
    return _atoms(worlds if way is Direction.REMOVE else [(q, p) for p, q in worlds])


def _outcomes(cost: Cost) -> list[tuple[float, float]] | None:
    """Both probabilities of every outcome, where there are finitely many."""
    if isinstance(cost, PureDp) and cost.delta == 0:
        p = 1 / (1 + math.exp(-cost.epsilon))
        return [(p, p * math.exp(-cost.epsilon)), (p * math.exp(-cost.epsilon), p)]
    if isinstance(cost, Finite):
        return [(float(p), float(q)) for p, q in cost.worlds()]
    return None


def _gaussian(rate: float, shift: float, way: Direction, scale: float) -> _Pair:
    """(1-q) N(0,1) + q N(shift,1) against N(0,1), or the reverse, by the output's threshold."""
    from scipy.special import ndtr

    def output(loss: FloatArray) -> FloatArray:
        if rate == 1.0:
            return loss / shift + shift / 2
        with np.errstate(divide="ignore"):
            return np.log1p(np.maximum(np.expm1(loss) / rate, -1.0)) / shift + shift / 2

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
        return _Pair(removed, low, high, scale)
    return _Pair(added, -high, -low, scale)


def _log_mixed(rate: float, exponent: float) -> float:
    """log(1 - rate + rate e^exponent)."""
    if exponent > 30:
        return math.log(rate) + exponent + math.log1p((1 - rate) / rate * math.exp(-exponent))
    return math.log1p(rate * math.expm1(exponent))


def _laplace(epsilon: float) -> _Pair:
    """A loss above x is an output below (1 - x / epsilon) / 2, in units of the sensitivity."""

    def tails(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        inside = np.clip(x, -epsilon, epsilon)
        p = 1 - 0.5 * np.exp((inside - epsilon) / 2)
        q = 0.5 * np.exp(-(inside + epsilon) / 2)
        below, beyond = x < -epsilon, x >= epsilon
        return np.where(below, 1.0, np.where(beyond, 0.0, p)), np.where(
            below, 1.0, np.where(beyond, 0.0, q)
        )

    return _Pair(tails, -epsilon, epsilon, epsilon)


def _atoms(worlds: Iterable[tuple[float, float]]) -> _Pair:
    """Finitely many outcomes; those that only the first world has are an infinite loss."""
    pairs = [(p, q, math.log(p / q) if q > 0 else math.inf) for p, q in worlds if p > 0]
    finite = [loss for *_, loss in pairs if loss < math.inf]

    def tails(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, q = np.zeros_like(x), np.zeros_like(x)
        for mass, other, loss in pairs:
            p += np.where(loss > x, mass, 0.0)
            q += np.where(loss > x, other, 0.0)
        return p, q

    return _Pair(tails, min(finite), max(finite), max(map(abs, finite)))


# -- sums of losses, by a Fourier transform ------------------------------------------------


def _sum(menu: Menu, item: Item, bundles: int, way: Direction) -> _Sum:
    """The loss of some bundles, on the grid of a menu."""
    outside = _OUTSIDE * menu.delta * min(1.0, bundles * item.price / max(1, menu.quanta))
    step, reach = menu.epsilon / _POINTS, _REACH * menu.epsilon
    return _total(_pair(item.cost, way), bundles * item.steps, step, reach, outside)


def _total(pair: _Pair, runs: int, coarse: float, reach: float, outside: float) -> _Sum:
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
        total = _capped(_power(total, part, outside), reach)
        while runs > 1 and total.step < coarse and _deviation(total) > 32 * total.step:
            total = _halved(total)
    while total.step < coarse * (1 - 1e-9):
        total = _halved(total)
    return total


def _single(pair: _Pair, step: float, reach: float) -> _Sum:
    """One run: each cell's mass goes to its two ends so that mass and the mean of u are kept."""
    first = math.floor(max(pair.low, -reach) / step)
    last = math.ceil(min(pair.high, reach) / step) + 1
    x: FloatArray = np.arange(first, last + 1, dtype=np.float64) * step
    above_p, above_q = pair.tails(x)
    above_p[0] = above_q[0] = 1.0
    p, q = -np.diff(above_p), -np.diff(above_q)
    u = np.exp(-x)
    lower = np.clip((q - p * u[1:]) / (u[:-1] - u[1:]), 0.0, p)
    masses = np.append(lower, 0.0)
    masses[1:] += p - lower
    tail = float(above_p[-1])
    kept = min(tail, float(above_q[-1]) * math.exp(float(x[-1])))
    masses[-1] += kept
    return _Sum(step, first, masses, tail - kept)


def _capped(one: _Sum, reach: float) -> _Sum:
    """Losses above `reach` spread between it and infinity, those below minus it raised to that."""
    last = math.ceil(reach / one.step)
    index = one.first + np.arange(len(one.p))
    kept = one.p * np.exp(-np.maximum(index - last, 0) * one.step)
    place = np.clip(index, -last, last)
    masses: FloatArray = np.bincount(place - place[0], weights=kept).astype(np.float64)
    return _Sum(one.step, int(place[0]), masses, one.inf + float((one.p - kept).sum()))


def _deviation(one: _Sum) -> float:
    x = np.arange(len(one.p)) * one.step
    mass = float(one.p.sum())
    mean = float(one.p @ x) / mass
    return math.sqrt(max(float(one.p @ (x - mean) ** 2) / mass, one.step**2 / 100))


def _window(one: _Sum, runs: int, outside: float) -> tuple[int, int]:
    """First point and number of points, beyond which the sum lies with little probability.

    By Chernoff's bound, over some exponents on either side.
    """
    from scipy.special import logsumexp

    x = (one.first + np.arange(len(one.p))) * one.step
    spread = _deviation(one) * math.sqrt(runs)
    far = max(spread, float(np.abs(x[[0, -1]]).max()))
    exponents = np.geomspace(0.3 / far, 60 / spread, 24)
    live = one.p > 0
    x, log_p = x[live], np.log(one.p[live])
    ends = [
        min((runs * float(logsumexp(log_p + s * t * x)) - math.log(outside)) / t for t in exponents)
        for s in (-1.0, 1.0)
    ]
    low = max(math.floor(-ends[0] / one.step), runs * one.first)
    high = min(math.ceil(ends[1] / one.step), runs * (one.first + len(one.p) - 1))
    return low, max(1, high - low + 1)


def _power(one: _Sum, runs: int, outside: float) -> _Sum:
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
    return _Sum(one.step, first, p, inf + outside)


def _halved(one: _Sum) -> _Sum:
    """On twice the step: odd points go to their neighbours, keeping the mean of u."""
    odd_start = one.first % 2
    p = np.concatenate([np.zeros(odd_start), one.p, np.zeros(2)])
    p = p[: len(p) // 2 * 2 + 1] if len(p) % 2 else p[:-1]
    even, odd = p[0::2].copy(), p[1::2]
    down = 1 / (1 + math.exp(one.step))
    even[: len(odd)] += odd * down
    even[1 : 1 + len(odd)] += odd * (1 - down)
    return _Sum(2 * one.step, (one.first - odd_start) // 2, even, one.inf)


# -- the worst adversary, by kinks ---------------------------------------------------------


@dataclass(frozen=True)
class _Gain:
    """By how much a bundle raises a kink at a distance of k points, k from -band to band."""

    price: int
    near: FloatArray
    above: float
    below: float

    @classmethod
    def of(cls, item: Item, way: Direction, step: float, menu: Menu) -> _Gain:
        total = _sum(menu, item, 1, way)
        ends = total.first, total.first + len(total.p)
        band = min(max(1, *map(abs, ends)), 2 * _POINTS)
        epsilons: FloatArray = np.arange(-band, band + 1, dtype=np.float64) * step
        gain = total.profile(epsilons) - np.maximum(-np.expm1(epsilons), 0.0)
        near = np.maximum(gain, 0.0) * _ROUNDING
        return cls(item.price, near, float(near[-1]), float(near[0] * math.exp(band * step)))

    def raised(self, value: FloatArray, kinks: FloatArray, u: FloatArray) -> FloatArray:
        """E V(L + X) at every point: kinks nearby by the profile, others by what bounds it."""
        band = len(self.near) // 2
        weights = kinks * u
        padded = np.concatenate([np.zeros(band), weights, np.zeros(band)])
        gain = np.correlate(padded, self.near, "valid")
        later = np.append(np.cumsum(weights[::-1])[::-1], np.zeros(band + 1))[band + 1 :]
        earlier = np.concatenate([np.zeros(band + 1), np.cumsum(kinks)])[: len(u)]
        return np.asarray(value + gain + self.above * later[: len(u)] + self.below * earlier * u)


def _values(menu: Menu, readings: Iterable[float], way: Direction) -> Iterator[float]:
    """What an adversary at loss 0 reaches with 0, 1, ... quanta left, in one direction.

    Args:
        menu: What she can buy; its epsilon is the largest reading.
        readings: What the gate reads when so many quanta are left.
        way: Which neighbour has the extra record.
    """
    small = _small(menu, way)
    if small is not None:
        yield from _enumerated(menu, small, list(readings))
        return
    step = menu.epsilon / _POINTS
    start = round(0.35 * _POINTS)
    losses = np.arange(-start, round(1.35 * _POINTS) + 1) * step
    u = np.exp(-losses)
    gains = [_Gain.of(item, way, step, menu) for item in menu.items]
    fewer: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=max(g.price for g in gains))
    for reading in readings:
        value = -np.expm1(np.minimum(reading - losses, 0.0))
        for gain in gains:
            if gain.price <= len(fewer):
                value = np.maximum(value, gain.raised(*fewer[-gain.price], u))
        fewer.append((value, _kinks(value, u)))
        yield float(value[start]) * _ROUNDING


def _kinks(value: FloatArray, u: FloatArray) -> FloatArray:
    """How much steeper V becomes at each point on its way to 1 at u = 0; flat before the first."""
    slopes = np.append(np.diff(value) / -np.diff(u), (1.0 - value[-1]) / u[-1])
    return np.asarray(np.maximum(np.diff(slopes, prepend=0.0), 0.0))


def _small(menu: Menu, way: Direction) -> list[list[tuple[float, float]]] | None:
    """The outcomes of every item, if there are so few that everything can be tried."""
    offers = []
    for item in menu.items:
        worlds = _outcomes(item.cost)
        if worlds is None or len(worlds) > _MOST_OUTCOMES or item.steps > 1:
            return None
        offers.append([(q, p) if way is Direction.ADD else (p, q) for p, q in worlds])
    kinds = sum(map(len, offers))
    few = menu.quanta <= _MOST_STATES and math.comb(menu.quanta + kinds, kinds) <= _MOST_STATES
    return offers if few else None


def _enumerated(
    menu: Menu, offers: list[list[tuple[float, float]]], readings: Sequence[float]
) -> list[float]:
    """The exact values with 0, 1, ... quanta left, by trying everything."""
    flat = [pair for offer in offers for pair in offer]
    known: dict[tuple[int, ...], float] = {}

    def value(left: int, seen: tuple[int, ...]) -> float:
        key = (left, *seen)
        if key not in known:
            loss = math.fsum(n * math.log(p / q) for n, (p, q) in zip(seen, flat, strict=True) if n)
            best, place = -math.expm1(min(readings[left] - loss, 0.0)), 0
            for item, offer in zip(menu.items, offers, strict=True):
                if item.price <= left:
                    chances = [
                        p * (value(left - item.price, _one_more(seen, place + i)) if q else 1.0)
                        for i, (p, q) in enumerate(offer)
                        if p
                    ]
                    best = max(best, math.fsum(chances))
                place += len(offer)
            known[key] = best
        return known[key]

    return [value(left, (0,) * len(flat)) * (1 + 1e-12) for left in range(len(readings))]


def _one_more(seen: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*seen[:place], seen[place] + 1, *seen[place + 1 :])
