# SPDX-License-Identifier: Apache-2.0
"""Costs from dp-accounting's DpEvents, so that libraries which speak them plug in.

Compositions are taken apart and their leaves priced by this package where it has the
mechanism; every other leaf is priced by dp-accounting's RdpAccountant, whose answer
passes the same guard as every curve. Numbers inside an event are checked first, because
dp-accounting lets NaN through.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import attrs  # what dp-accounting's events are made with
import dp_accounting
import numpy as np
from dp_accounting import rdp as dp_accounting_rdp

from dosimeter import arguments
from dosimeter.rdp.cost import UP, Cost
from dosimeter.rdp.mechanisms import Gaussian, Laplace, Zcdp
from dosimeter.rdp.orders import FloatArray, Orders
from dosimeter.rdp.sampled_gaussian import SampledGaussian


@dataclass(frozen=True)
class Event(Cost):
    """The cost of any `dp_accounting.DpEvent` under add/remove-one neighbours.

    An event that dp-accounting prices only under another neighbouring relation, or not
    in Rényi terms, is refused when the cost is made.
    """

    event: dp_accounting.DpEvent
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        if not isinstance(self.event, dp_accounting.DpEvent):
            raise TypeError(f"event must be a dp_accounting.DpEvent, got {self.event!r}")
        _check_numbers(self.event)
        # A composed event holds a list; a later change to it must not change this cost.
        object.__setattr__(self, "event", copy.deepcopy(self.event))
        object.__setattr__(self, "_hash", hash(repr(self.event)))
        for leaf, _ in _leaves(self.event, 1):
            if not isinstance(leaf, Cost) and not _accountant([2.0]).supports(leaf):
                raise ValueError(
                    "event must have a Rényi curve in dp-accounting under add/remove-one "
                    f"neighbours, got {leaf!r}. Bound it yourself with Curve, PureDp, "
                    "ApproxDp or Zcdp."
                )

    def __hash__(self) -> int:
        return self._hash

    @property
    def pure_epsilon(self) -> float:
        """Sum over the leaves, where every one is pure."""
        return sum(
            (
                (leaf.pure_epsilon if isinstance(leaf, Cost) else math.inf) * count * UP**2
                for leaf, count in _leaves(self.event, 1)
            ),
            start=0.0,
        )

    def _curve(self, orders: Orders) -> FloatArray:
        total = np.zeros(len(orders))
        for leaf, count in _leaves(self.event, 1):
            if isinstance(leaf, Cost):
                curve = leaf.rdp(orders)
            else:
                accountant = _accountant(list(orders)).compose(leaf)
                # Its sums in log space are good to about 1e-13; the margin is ten times that.
                curve = accountant.rdp * (1.0 + 1e-12) + 1e-12 / orders.beta
            total = (total + curve * count * UP) * UP
        return total


def _accountant(orders: list[float]) -> dp_accounting_rdp.RdpAccountant:
    return dp_accounting_rdp.RdpAccountant(
        orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )


def _leaves(
    event: dp_accounting.DpEvent, count: int
) -> Iterator[tuple[Cost | dp_accounting.DpEvent, int]]:
    """The parts of a composition with their counts; a mechanism of ours where there is one."""
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.SelfComposedDpEvent():
            if event.count != 0:
                times = arguments.count("SelfComposedDpEvent.count", event.count)
                yield from _leaves(event.event, count * times)
        case dp_accounting.ComposedDpEvent():
            for part in event.events:
                yield from _leaves(part, count)
        case dp_accounting.GaussianDpEvent() if event.noise_multiplier > 0:
            yield Gaussian(event.noise_multiplier), count
        case dp_accounting.LaplaceDpEvent() if event.noise_multiplier > 0:
            yield Laplace(event.noise_multiplier), count
        case dp_accounting.ZCDpEvent():
            yield Zcdp(event.rho, event.xi), count
        case dp_accounting.PoissonSampledDpEvent(
            event=dp_accounting.GaussianDpEvent(noise_multiplier=noise)
        ) if event.sampling_probability > 0 and noise > 0:
            yield SampledGaussian(event.sampling_probability, noise), count
        case _:
            yield event, count


def _check_numbers(event: dp_accounting.DpEvent) -> None:
    """Refuses NaN and negative numbers anywhere inside an event."""
    kind = type(event).__name__
    for name in (part.name for part in attrs.fields(type(event))):
        value = getattr(event, name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, dp_accounting.DpEvent):
                _check_numbers(item)
            else:
                number = arguments.real(f"{kind}.{name}", item)
                if not number >= 0:
                    raise ValueError(f"{kind}.{name} must be >= 0, got {item!r}")
