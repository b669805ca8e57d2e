# SPDX-License-Identifier: Apache-2.0
"""Costs from dp-accounting's DpEvents, so that libraries which speak them plug in.

An event is taken apart once, when the cost is made, into mechanisms of this package with
their counts. dp-accounting's own accountant is not asked: it lets NaN through, takes a
Poisson-sampled composition of Gaussians with whole-number noise for its first part, and
loses the digits of small costs at large orders.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import attrs  # what dp-accounting's events are made with
import dp_accounting
import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from dosimeter import arguments
from dosimeter.rdp.cost import UP, Cost
from dosimeter.rdp.mechanisms import Gaussian, Laplace, Zcdp
from dosimeter.rdp.orders import FloatArray, Orders
from dosimeter.rdp.sampled_gaussian import SampledGaussian


@dataclass(frozen=True)
class Event(Cost):
    """The cost of any `dp_accounting.DpEvent` under add/remove-one neighbours.

    An event without a Rényi curve under these neighbours (sampling without replacement,
    tree aggregation, randomised response, …) is refused when the cost is made.
    """

    event: dp_accounting.DpEvent = field(compare=False)
    _parts: tuple[tuple[Cost, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.event, dp_accounting.DpEvent):
            raise TypeError(f"event must be a dp_accounting.DpEvent, got {self.event!r}")
        # A composed event holds a list; later changes to the caller's must not show here.
        object.__setattr__(self, "event", copy.deepcopy(self.event))
        object.__setattr__(self, "_parts", tuple(_parts(self.event, 1)))

    @property
    def pure_epsilon(self) -> float:
        """Sum over the parts, where every one is pure."""
        return math.fsum(cost.pure_epsilon * count * UP for cost, count in self._parts) * UP

    def _curve(self, orders: Orders) -> FloatArray:
        return _total(self._parts, orders)


def _total(parts: tuple[tuple[Cost, int], ...], orders: Orders) -> FloatArray:
    """The summed curve of some mechanisms with their counts, rounded up."""
    total = np.zeros(len(orders))
    for cost, count in parts:
        total = (total + cost.rdp(orders) * count * UP) * UP
    return total


@dataclass(frozen=True)
class _NonPrivate(Cost):
    """A computation without any noise."""

    def _curve(self, orders: Orders) -> FloatArray:
        return np.full(len(orders), math.inf)


@dataclass(frozen=True)
class _RepeatAndSelect(Cost):
    """The best of a random number of runs (Papernot and Steinke 2021, Theorems 2 and 6)."""

    run: tuple[tuple[Cost, int], ...]
    mean: float
    shape: float

    def _curve(self, orders: Orders) -> FloatArray:
        one = _total(self.run, orders)
        # dp-accounting's formula fails on costs that vanish beside 1; larger ones are safe.
        price = rdp_privacy_accountant._compute_rdp_repeat_and_select
        curve = price(orders.array, np.maximum(one, 1e-15), self.mean, self.shape)
        return np.asarray(curve * (1.0 + 1e-9))


def _parts(event: dp_accounting.DpEvent, count: int) -> Iterator[tuple[Cost, int]]:
    """The mechanisms of an event with their counts."""
    _check_numbers(event)
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.NonPrivateDpEvent():
            yield _NonPrivate(), count
        case dp_accounting.SelfComposedDpEvent():
            if event.count != 0:
                times = count * arguments.count("SelfComposedDpEvent.count", event.count)
                yield from _parts(event.event, arguments.count("the product of counts", times))
        case dp_accounting.ComposedDpEvent():
            for part in event.events:
                yield from _parts(part, count)
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            yield (Gaussian(noise) if noise > 0 else _NonPrivate()), count
        case dp_accounting.LaplaceDpEvent(noise_multiplier=noise):
            yield (Laplace(noise) if noise > 0 else _NonPrivate()), count
        case dp_accounting.ZCDpEvent():
            yield Zcdp(event.rho, event.xi), count
        case dp_accounting.PoissonSampledDpEvent(sampling_probability=rate):
            yield from ((cost, count) for cost in _sampled(event.event, rate))
        case dp_event.RepeatAndSelectDpEvent():
            if not (event.mean >= 1 and event.mean < math.inf):
                raise ValueError(f"mean must be finite and at least 1, got {event.mean!r}")
            run = tuple(_parts(event.event, 1))
            yield _RepeatAndSelect(run, float(event.mean), float(event.shape)), count
        case _:
            raise ValueError(
                "event must have a Rényi curve under add/remove-one neighbours, got "
                f"{event!r}. Bound it yourself with Curve, PureDp, ApproxDp or Zcdp."
            )


def _sampled(event: dp_accounting.DpEvent, rate: float) -> Iterator[Cost]:
    """A composition of Gaussians on one Poisson sample: one Gaussian with less noise."""
    parts = list(_parts(event, 1))
    if any(isinstance(cost, _NonPrivate) for cost, _ in parts):
        yield _NonPrivate()
    elif not all(isinstance(cost, Gaussian) for cost, _ in parts):
        raise ValueError(
            f"event must sample nothing but Gaussians, got {event!r}. "
            "Bound it yourself with Curve, PureDp, ApproxDp or Zcdp."
        )
    elif parts and rate > 0:
        noises = [(cost.noise_multiplier, n) for cost, n in parts if isinstance(cost, Gaussian)]
        least = min(noise for noise, _ in noises)
        # Relative to the least noise, so that no square leaves the range of a float.
        precision = math.fsum(n * (least / noise) ** 2 for noise, n in noises)
        exact = noises == [(least, 1)]
        yield SampledGaussian(rate, least if exact else least / math.sqrt(precision) / UP**8)


def _check_numbers(event: dp_accounting.DpEvent) -> None:
    """Refuses NaN and negative numbers among the fields of an event."""
    kind = type(event).__name__
    for name in (part.name for part in attrs.fields(type(event))):
        value = getattr(event, name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(item, dp_accounting.DpEvent):
                number = arguments.real(f"{kind}.{name}", item)
                if not number >= 0:
                    raise ValueError(f"{kind}.{name} must be >= 0, got {item!r}")
