# SPDX-License-Identifier: Apache-2.0
"""Costs from dp-accounting's DpEvents, so that libraries which speak them plug in.

An event is taken apart once, when the cost is made, into mechanisms of this package with
their counts. dp-accounting's own accountant is not asked: it lets NaN through, takes a
Poisson-sampled composition of Gaussians with whole-number noise for its first part, and
loses the digits of small costs at large orders. It takes most of a second to import, so only
the making of an event does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.neighbours import Neighbours
from dosimeter.rdp.cost import UP, Cost, summed
from dosimeter.rdp.gaussian import Gaussian
from dosimeter.rdp.laplace import Laplace
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray, Orders
from dosimeter.rdp.sampled_gaussian import SampledGaussian
from dosimeter.rdp.zcdp import Zcdp

if TYPE_CHECKING:
    import dp_accounting

_OURS = {
    "ADD_OR_REMOVE_ONE": Neighbours.ADD_REMOVE_RECORD,
    "REPLACE_ONE": Neighbours.REPLACE_ONE_RECORD,
}
"""What dp-accounting calls the relations."""


@dataclass(frozen=True, repr=False)
class Event(Cost):
    """The cost of any `dp_accounting.DpEvent`; `neighbours` may be dp-accounting's relation, too.

    An event without a Rényi curve under these neighbours (Poisson sampling where a record is
    replaced, sampling without replacement, tree aggregation, randomised response, …) is refused
    when the cost is made.
    """

    event: dp_accounting.DpEvent = field(compare=False)
    _parts: tuple[tuple[Cost, int], ...] = field(init=False)

    kind: ClassVar[str] = "event"
    option: ClassVar[None] = None

    def __post_init__(self) -> None:
        import dp_accounting

        if isinstance(self.neighbours, dp_accounting.NeighboringRelation):
            if self.neighbours.name not in _OURS:
                raise ValueError(
                    f"neighbours must be one of {', '.join(_OURS)}, got {self.neighbours.name}. "
                    "Bound it yourself with Curve, PureDp, ApproxDp or Zcdp."
                )
            object.__setattr__(self, "neighbours", _OURS[self.neighbours.name])
        super().__post_init__()
        if not isinstance(self.event, dp_accounting.DpEvent):
            raise TypeError(f"event must be a dp_accounting.DpEvent, got {self.event!r}")
        # A composed event holds a list; later changes to the caller's must not show here.
        object.__setattr__(self, "event", copy.deepcopy(self.event))
        object.__setattr__(self, "_parts", tuple(_parts(self.event, 1, self.neighbours)))

    @property
    def pure_epsilon(self) -> float:
        """Sum over the parts, where every one is pure."""
        try:
            return math.fsum(cost.pure_epsilon * count * UP for cost, count in self._parts) * UP
        except OverflowError:
            return math.inf

    def _curve(self, orders: Orders) -> FloatArray:
        return summed(self._parts, orders)

    def loss(self, direction: Direction) -> None:
        """None: put the mechanisms that the event is made of on the menu."""

    def dp_event(self) -> dp_accounting.DpEvent:
        """The event itself."""
        return self.event


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
        from dp_accounting.rdp import rdp_privacy_accountant

        one = summed(self.run, orders)
        # dp-accounting's formula loses the digits of costs far below 1; larger ones are safe.
        price = rdp_privacy_accountant._compute_rdp_repeat_and_select
        curve = price(orders.array, np.maximum(one, 1e-8), self.mean, self.shape)
        return np.asarray(curve * (1.0 + 1e-9))


def _parts(
    event: dp_accounting.DpEvent, count: int, neighbours: Neighbours
) -> Iterator[tuple[Cost, int]]:
    """The mechanisms of an event with their counts."""
    import dp_accounting
    from dp_accounting import dp_event

    _check_numbers(event)
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.NonPrivateDpEvent():
            yield _NonPrivate(), count
        case dp_accounting.SelfComposedDpEvent():
            if event.count != 0:
                times = count * arguments.count("SelfComposedDpEvent.count", event.count)
                yield from _parts(
                    event.event, arguments.count("the product of counts", times), neighbours
                )
        case dp_accounting.ComposedDpEvent():
            for part in event.events:
                yield from _parts(part, count, neighbours)
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            yield (Gaussian(noise) if noise > 0 else _NonPrivate()), count
        case dp_accounting.LaplaceDpEvent(noise_multiplier=noise):
            yield (Laplace(noise) if noise > 0 else _NonPrivate()), count
        case dp_accounting.ZCDpEvent():
            yield Zcdp(event.rho, event.xi), count
        case dp_accounting.PoissonSampledDpEvent(sampling_probability=rate) if (
            neighbours is not Neighbours.REPLACE_ONE_RECORD
        ):
            yield from ((cost, count) for cost in _sampled(event.event, rate, neighbours))
        case dp_event.RepeatAndSelectDpEvent():
            if not (event.mean >= 1 and event.mean < math.inf):
                raise ValueError(f"mean must be finite and at least 1, got {event.mean!r}")
            run = tuple(_parts(event.event, 1, neighbours))
            yield _RepeatAndSelect(run, float(event.mean), float(event.shape)), count
        case _:
            raise ValueError(
                f"event must have a Rényi curve under neighbours that {neighbours}, got "
                f"{event!r}. Bound it yourself with Curve, PureDp, ApproxDp or Zcdp."
            )


def _sampled(event: dp_accounting.DpEvent, rate: float, neighbours: Neighbours) -> Iterator[Cost]:
    """A composition of Gaussians on one Poisson sample: one Gaussian with less noise."""
    parts = list(_parts(event, 1, neighbours))
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
    import attrs  # what dp-accounting's events are made with
    import dp_accounting

    kind = type(event).__name__
    for name in (part.name for part in attrs.fields(type(event))):
        value = getattr(event, name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(item, dp_accounting.DpEvent):
                number = arguments.real(f"{kind}.{name}", item)
                if not number >= 0:
                    raise ValueError(f"{kind}.{name} must be >= 0, got {item!r}")
