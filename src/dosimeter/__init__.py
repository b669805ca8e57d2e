# SPDX-License-Identifier: Apache-2.0
"""Dosimeter: spend a differential-privacy budget adaptively, and stop when you like."""

from typing import TYPE_CHECKING

from dosimeter.accounting import Filter, Gate, Odometer
from dosimeter.errors import BudgetExceeded, DosimeterError, StateError, UnsoundRuleWarning
from dosimeter.rdp import (
    ApproxDp,
    Cost,
    Curve,
    Gaussian,
    Laplace,
    PureDp,
    SampledGaussian,
    Zcdp,
)

if TYPE_CHECKING:
    from dosimeter.rdp import Event

__version__ = "0.1.0.dev0"

__all__ = [
    "ApproxDp",
    "BudgetExceeded",
    "Cost",
    "Curve",
    "DosimeterError",
    "Event",
    "Filter",
    "Gate",
    "Gaussian",
    "Laplace",
    "Odometer",
    "PureDp",
    "SampledGaussian",
    "StateError",
    "UnsoundRuleWarning",
    "Zcdp",
]


def __getattr__(name: str) -> object:
    if name == "Event":
        from dosimeter.rdp import Event

        return Event
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
