# SPDX-License-Identifier: Apache-2.0
"""Cost: what one run of a mechanism costs, and all else that is to be known of it.

A cost is a frozen, hashable value. Its curve bounds the Rényi divergence in both directions of
its neighbouring relation, at sensitivity 1. Every curve passes one guard on its way out: right
shape, no NaN, nothing negative, non-decreasing in the order. Infinity is allowed and means "no
bound at this order". A mechanism states the rest in its own class, too, so that no other part
needs to know it by name: its exact loss, its event, its written form and its option.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dosimeter.neighbours import Neighbours
from dosimeter.rdp.loss import Direction, Loss
from dosimeter.rdp.orders import FloatArray, Orders, locked
from dosimeter.rounding import in_six_digits

if TYPE_CHECKING:
    import dp_accounting

UP = 1.0 + 2.0**-52
"""Multiplying a float result by this undoes one rounding to nearest, upward."""
UP_EACH = locked(np.array([UP]))
"""The same for an array, which is multiplied by an array in half the time."""

SLACK = 1.0 + 2.0**-44
"""Covers the rounding of a short closed form (checked against mpmath)."""

SMALLEST = 1e-300
"""Added to every closed form: below it the roundings of denormal numbers are not relative."""


class Cut(NamedTuple):
    """What a run costs without its rarest outputs.

    Attributes:
        rdp: Bounds, at each order, the Rényi cost in both directions of the outputs that are kept.
        chance: Bounds the probability of the others, whichever neighbour is the true one.
    """

    rdp: FloatArray
    chance: float


class Option(NamedTuple):
    """How the command line takes a cost: `--name` with its numbers, comma-separated."""

    name: str
    metavar: str
    help: str


@dataclass(frozen=True, eq=False, repr=False)
class Cost(ABC):
    """The privacy cost of one run of a mechanism.

    Curves are cached by equality: two costs that compare equal must have the same curve.

    Attributes:
        neighbours: The relation in which the sensitivity is 1; costs of different relations differ.
        delta: Probability that the curve fails to hold; zero for most mechanisms.
        kind: The name under which it is written down; without one it is not.
        option: How the command line takes it, or None.

    Guarantee:
        `rdp(orders)` is at least max(D_a(P||Q), D_a(Q||P)) at every order a, for all
        `neighbours`, with sensitivity 1, up to a failure of probability `delta`. Rounded upward.
    """

    # Left out of the hash, which every spend takes; equality has it.
    neighbours: Neighbours = field(
        default=Neighbours.ADD_REMOVE_RECORD, kw_only=True, hash=False, repr=False
    )

    delta = 0.0
    kind: ClassVar[str] = ""
    option: ClassVar[Option | None] = None

    def __post_init__(self) -> None:
        if not isinstance(self.neighbours, Neighbours):
            raise TypeError(f"neighbours must be a dosimeter.Neighbours, got {self.neighbours!r}")

    def __repr__(self) -> str:
        return self._written({name: repr(value) for name, value in self.arguments().items()})

    def __str__(self) -> str:
        """As `repr`, for people: numbers in six digits at most, so that it costs no less."""
        return self._written({name: figure(name, one) for name, one in self.arguments().items()})

    def _written(self, arguments: dict[str, str]) -> str:
        given = [f"{name}={words}" for name, words in arguments.items()]
        if self.neighbours is not Neighbours.ADD_REMOVE_RECORD:
            given.append(f"neighbours={self.neighbours!r}")
        return f"{type(self).__name__}({', '.join(given)})"

    @property
    def pure_epsilon(self) -> float:
        """Bound that the privacy loss never passes (order infinity), or infinity."""
        return math.inf

    @property
    def parts(self) -> tuple[Cost, ...]:
        """What is spent one by one, all or nothing: of every cost but a bundle, itself."""
        return (self,)

    def rdp(self, orders: Iterable[float]) -> FloatArray:
        """The Rényi cost of one run at each order, read-only and never too small."""
        return _guarded_curve(self, Orders(orders))

    def loss(self, direction: Direction) -> Loss | None:
        """The exact privacy loss of one run in one direction, or None if it is not known."""
        return None

    def cut(self, orders: Orders, chance: float) -> Cut | None:
        """The cost without outputs of at most this probability; None if it takes them all.

        Guarantee:
            For both neighbours and at each order, the moments of the outputs that are kept, and
            the probability of the others, of one pair of which the mechanism is a function.
        """
        return None

    def dp_event(self) -> dp_accounting.DpEvent | None:
        """The same mechanism as an event of dp-accounting, or None if it has none."""
        return None

    def arguments(self) -> dict[str, Any]:
        """What the cost was made with, but for the relation."""
        known = vars(self)
        return {name: known[name] for name in parameters(type(self)) if name in known}

    @abstractmethod
    def _curve(self, orders: Orders) -> FloatArray:
        """The curve before the guard; rounded upward by the mechanism that knows how."""


_CHEAPER = ("noise_multiplier", "scale")
"""What a mechanism costs less with more of; it costs more with more of all other numbers."""


def figure(name: str, value: object) -> str:
    """A parameter of a cost for people, a number in six digits that cost no less."""
    if isinstance(value, float):
        return repr(float(in_six_digits(value, up=name not in _CHEAPER)))
    if isinstance(value, tuple) and any(isinstance(one, Cost) for one in value):
        return f"({', '.join(map(str, value))}{',' * (len(value) == 1)})"
    return str(value) if isinstance(value, Cost) else repr(value)


@cache
def parameters(made: type[Cost]) -> dict[str, bool]:
    """What a class of costs takes, but for the relation, and whether each is a must."""
    taken = inspect.signature(made).parameters.values()
    return {one.name: one.default is one.empty for one in taken if one.name != "neighbours"}


@lru_cache(maxsize=4096)
def _guarded_curve(cost: Cost, orders: Orders) -> FloatArray:
    with np.errstate(over="ignore"):
        curve = np.asarray(cost._curve(orders), dtype=np.float64)
    if curve.shape != (len(orders),):
        raise ValueError(f"{cost} must give one cost per order, got shape {curve.shape}")
    if not np.all(curve >= 0):
        bad = int(np.argmin(curve >= 0))
        raise ValueError(f"{cost} must cost at least 0 at order {orders[bad]:g}, got {curve[bad]}")
    # D_a does not fall as a grows; numerical noise that says otherwise is raised, not trusted.
    curve = np.maximum.accumulate(curve)
    # Beyond this sums would leave the range of a float; no bound is as good.
    curve[curve > 1e300] = math.inf
    return locked(curve)


def summed(parts: Iterable[tuple[Cost, int]], orders: Orders) -> FloatArray:
    """The summed curve of some mechanisms with their counts, rounded up."""
    total = np.zeros(len(orders))
    for cost, count in parts:
        total = (total + cost.rdp(orders) * count * UP) * UP
    return total


def interpolate(known_orders: FloatArray, known_rdp: FloatArray, at: FloatArray) -> FloatArray:
    """Upper bound on a Rényi curve at other orders, from bounds at some.

    (a - 1) D_a is convex in a and zero at a = 1 (van Erven and Harremoës 2014, Cor. 2),
    so its chord bounds it between two known orders; below the first known order D_a is
    at most the first value (Theorem 3 there: D_a does not fall); beyond the last there
    is no bound. `known_rdp` must be non-decreasing.
    """
    # The bracket of an order that is itself known degenerates to that order.
    high = np.searchsorted(known_orders, at, side="left")
    low = np.searchsorted(known_orders, at, side="right") - 1
    beyond = high == len(known_orders)
    high = np.minimum(high, len(known_orders) - 1)
    low = np.maximum(low, 0)
    width = known_orders[high] - known_orders[low]
    inside = width > 0
    share = np.where(inside, (at - known_orders[low]) / np.where(inside, width, 1.0), 1.0)
    # The chord of (a-1)D_a is an average of the two values with weights proportional to
    # (1-share)(low-1) and share(high-1).
    weight_high = share * (known_orders[high] - 1.0)
    weight_low = (1.0 - share) * (known_orders[low] - 1.0)
    rise = known_rdp[high] - np.where(known_rdp[high] < math.inf, known_rdp[low], 0.0)
    value = np.where(
        inside,
        (known_rdp[low] + rise * (weight_high / (weight_low + weight_high))) * UP**8,
        known_rdp[high],
    )
    value = np.where(inside & np.isinf(known_rdp[high]), math.inf, value)
    return np.where(beyond, math.inf, value)
