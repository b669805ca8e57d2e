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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.priced.items import Direction, Item, Ladder, Menu
from dosimeter.accounting.priced.profiles import Sum, outcomes, pair_of, same_both_ways, total_of
from dosimeter.rdp.orders import FloatArray

LEAST_DELTA = 1e-12 if np.finfo(np.longdouble).eps < 2e-19 else 1e-7
"""Below it the rounding of a transform is no longer small beside delta; doubles have more of it."""

_ROUNDING = 1 + 1e-3
"""Covers the rounding of the transform: 3e-4 at the smallest delta and millions of runs."""

_POINTS = 1200
_LADDER_POINTS = 2400
"""Points of the grid from 0 to the largest reading. Each quantum adds a little of a cell to the
spread of losses, and ladders have many."""

_REACH = 3.0
"""Losses beyond this many times the largest reading are spread between there and infinity."""

_ALONE_PARTS = 4096
"""What is lost of many quanta, at most, by not counting them one by one."""

_MOST_OUTCOMES = 4
_MOST_STATES = 20_000
_OUTSIDE = 1e-5
"""Share of delta that may lie outside the windows of all transforms together."""


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
    low = high = menu.quanta
    step = 1 + menu.quanta // _ALONE_PARTS
    while low > 0 and not within(low):
        low, high, step = max(0, low - step), low, 2 * step
    while high - low > 1 + low // _ALONE_PARTS:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def reached(ladder: Ladder) -> float:
    """What an adversary reaches who buys what she likes and stops when she likes."""

    def value(way: Direction, points: int) -> float:
        *_, last = _values(ladder.menu, reversed(ladder.readings), way, points)
        return last

    worst = value(Direction.REMOVE, _LADDER_POINTS)
    if all(same_both_ways(item.cost) for item in ladder.menu.items):
        return worst
    # A coarser grid only overstates, which is mostly enough to say that this way is the cheaper.
    if not value(Direction.ADD, _POINTS) <= worst:
        worst = float(np.maximum(worst, value(Direction.ADD, _LADDER_POINTS)))  # NaN stays NaN
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


@lru_cache(maxsize=256)
def sells(menu: Menu, item: Item) -> bool:
    """Whether the credit of a menu pays for a bundle that is not on it, at its price.

    F(s, L) = (1 + a s) V(s, L) + b s must not rise: at every point, which is enough, because V is
    linear in u between them and the mean of a convex function is convex.
    """
    shop = _shop(menu)
    if shop is None or item.price % shop.size:
        return False
    price, u = item.price // shop.size, np.exp(-_losses(menu))
    for way, levels in zip(Direction, shop.ways, strict=True):
        gain = _Gain.of(item, way, menu)
        for left in range(len(levels) - price):
            after = gain.raised(*levels[left], u) * (1 + shop.more * left)
            before = levels[left + price][0] * (1 + shop.more * (left + price))
            if not (after <= (before + shop.each * price) * (1 - 1e-9)).all():
                return False
    return price < len(shop.ways[0])


def require_stranger(menu: Menu, item: Item) -> None:
    """Raises ValueError unless a menu may sell a bundle that is not on it."""
    arguments.count("steps", item.steps)
    arguments.count("price", item.price)
    if item.cost.delta != 0 or menu.item(item.cost) is not None or not sells(menu, item):
        raise ValueError(
            f"strangers must be sold at prices that a second computation confirms, got "
            f"{item.steps} of {item.cost} at {item.price} quanta"
        )


_Level = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class _Shop:
    """V and its kinks in blocks of `size` quanta, each way; and the credit of each block."""

    ways: list[list[_Level]]
    size: int
    more: float
    each: float


@lru_cache(maxsize=2)
def _shop(menu: Menu) -> _Shop | None:
    blocks = menu.in_blocks()
    if blocks is None or not menu.credit > 0:
        return None
    few, size = blocks
    for richer in few.with_references():
        ways = []
        for way in Direction:
            gains = [_Gain.of(item, way, few) for item in richer.items]
            readings = repeat(menu.epsilon, few.quanta + 1)
            ways.append(list(_levels(gains, readings, _losses(menu))))
        values = [levels[-1][0][_start()] for levels in ways]
        value = float(np.max(values)) * _ROUNDING  # NaN stays NaN
        spare = (menu.delta + menu.credit - value) / 2
        if spare > menu.credit / 20:
            more = spare / max(value, menu.credit)  # V may be nothing at all
            return _Shop(ways, size, more / few.quanta, spare / few.quanta)
    return None


def _require_numbers(menu: Menu) -> None:
    """Raises unless the menu is made of such numbers as a menu has."""
    arguments.positive("menu epsilon", menu.epsilon)
    arguments.open_unit("menu delta", menu.delta)
    arguments.non_negative("menu credit", menu.credit)
    arguments.count("quanta", menu.quanta)
    for item in menu.items:
        arguments.count("steps", item.steps)
        arguments.count("price", item.price)
    costs = [item.cost for item in menu.items]
    if not costs or len(set(costs)) != len(costs):
        raise ValueError(f"menu must hold every cost once, got {costs}")
    if any(cost.delta != 0 for cost in costs):
        raise ValueError(f"menu must hold costs that never fail, got {costs}")
    if len({cost.neighbours for cost in costs}) > 1:
        raise ValueError(f"menu must be for one neighbouring relation, got {costs}")


def require_delta(menu: Menu) -> None:
    """Raises ValueError if delta is too small for anything to be confirmed."""
    if not menu.delta >= LEAST_DELTA:
        raise ValueError(
            f"delta must leave a menu at least {LEAST_DELTA:g}, got {menu.delta!r}: smaller ones "
            "cannot be confirmed. Use a gate without a menu."
        )


def _sum(menu: Menu, item: Item, bundles: int, way: Direction, points: int = _POINTS) -> Sum:
    """The loss of some bundles, on the grid of a menu."""
    outside = _OUTSIDE * menu.delta * min(1.0, bundles * item.price / max(1, menu.quanta))
    step, reach = menu.epsilon / points, _REACH * menu.epsilon
    return total_of(pair_of(item.cost, way), bundles * item.steps, step, reach, outside)


@dataclass(frozen=True)
class _Gain:
    """By how much a bundle raises a kink at a distance of k points, k from -back on."""

    price: int
    near: FloatArray
    back: int
    above: float
    below: float

    @classmethod
    def of(cls, item: Item, way: Direction, menu: Menu, points: int = _POINTS) -> _Gain:
        total, step = _sum(menu, item, 1, way, points), menu.epsilon / points
        back = min(max(1, -total.first), 2 * points)
        ahead = min(max(1, total.first + len(total.p)), 2 * points)
        epsilons: FloatArray = np.arange(-back, ahead + 1, dtype=np.float64) * step
        gain = total.profile(epsilons) - np.maximum(-np.expm1(epsilons), 0.0)
        near = np.maximum(gain, 0.0) * _ROUNDING
        return cls(item.price, near, back, float(near[-1]), float(near[0] * math.exp(back * step)))

    def raised(self, value: FloatArray, kinks: FloatArray, u: FloatArray) -> FloatArray:
        """E V(L + X) at every point: kinks nearby by the profile, others by what bounds it."""
        back, ahead = self.back, len(self.near) - 1 - self.back
        weights = kinks * u
        padded = np.concatenate([np.zeros(back), weights, np.zeros(ahead)])
        gain = np.correlate(padded, self.near, "valid")
        later = np.append(np.cumsum(weights[::-1])[::-1], np.zeros(ahead + 1))[ahead + 1 :]
        earlier = np.concatenate([np.zeros(back + 1), np.cumsum(kinks)])[: len(u)]
        return np.asarray(value + gain + self.above * later[: len(u)] + self.below * earlier * u)


def _values(
    menu: Menu, readings: Iterable[float], way: Direction, points: int = _POINTS
) -> Iterator[float]:
    """What an adversary at loss 0 reaches with 0, 1, ... quanta left, in one direction.

    Args:
        menu: What she can buy; its epsilon is the largest reading.
        readings: What the gate reads when so many quanta are left.
        way: Which neighbour has the extra record.
        points: How many points the grid has from 0 to the largest reading.
    """
    small = _small(menu, way)
    if small is not None:
        yield from _enumerated(menu, small, list(readings))
        return
    gains = [_Gain.of(item, way, menu, points) for item in menu.items]
    for value, _ in _levels(gains, readings, _losses(menu, points)):
        yield float(value[_start(points)]) * _ROUNDING


def _start(points: int = _POINTS) -> int:
    """Where a grid has the loss 0."""
    return round(0.35 * points)


def _losses(menu: Menu, points: int = _POINTS) -> FloatArray:
    """The points of a grid around 0 and the largest reading."""
    grid: FloatArray = np.arange(-_start(points), round(1.35 * points) + 1, dtype=np.float64)
    return grid * (menu.epsilon / points)


def _levels(
    gains: Sequence[_Gain], readings: Iterable[float], losses: FloatArray
) -> Iterator[_Level]:
    """V at every point, and its kinks, with 0, 1, ... quanta left."""
    u = np.exp(-losses)
    fewer: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=max(g.price for g in gains))
    for reading in readings:
        value = -np.expm1(np.minimum(reading - losses, 0.0))
        for gain in gains:
            if gain.price <= len(fewer):
                value = np.maximum(value, gain.raised(*fewer[-gain.price], u))
        fewer.append((value, _kinks(value, u)))
        yield fewer[-1]


def _kinks(value: FloatArray, u: FloatArray) -> FloatArray:
    """How much steeper V becomes at each point on its way to 1 at u = 0; flat before the first."""
    slopes = np.append(np.diff(value) / -np.diff(u), (1.0 - value[-1]) / u[-1])
    return np.asarray(np.maximum(np.diff(slopes, prepend=0.0), 0.0))


def _small(menu: Menu, way: Direction) -> list[list[tuple[float, float]]] | None:
    """The outcomes of every item, if there are so few that everything can be tried."""
    offers = []
    for item in menu.items:
        worlds = outcomes(item.cost)
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
