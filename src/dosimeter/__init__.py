# SPDX-License-Identifier: Apache-2.0
"""Dosimeter: spend a differential-privacy budget adaptively, and stop when you like.

A name is loaded when it is first used, so that importing the package costs next to nothing:
the command line answers `--help` without numpy.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dosimeter.accounting import Filter, Gate, Odometer, epsilon_for, noise_for
    from dosimeter.errors import BudgetExceeded, DosimeterError, StateError, UnsoundRuleWarning
    from dosimeter.rdp import (
        ApproxDp,
        ApproxZcdp,
        BestOf,
        Cost,
        Curve,
        Event,
        Gaussian,
        Laplace,
        Neighbours,
        PureDp,
        SampledGaussian,
        Together,
        Zcdp,
        refine,
    )
    from dosimeter.runs.trained import load_run

__version__ = "0.1.0.dev0"

__all__ = [
    "ApproxDp",
    "ApproxZcdp",
    "BestOf",
    "BudgetExceeded",
    "Cost",
    "Curve",
    "DosimeterError",
    "Event",
    "Filter",
    "Gate",
    "Gaussian",
    "Laplace",
    "Neighbours",
    "Odometer",
    "PureDp",
    "SampledGaussian",
    "StateError",
    "Together",
    "UnsoundRuleWarning",
    "Zcdp",
    "epsilon_for",
    "load_run",
    "noise_for",
    "refine",
]

_HOMES = {
    **dict.fromkeys(("Filter", "Gate", "Odometer", "epsilon_for", "noise_for"), "accounting"),
    **dict.fromkeys(
        ("BudgetExceeded", "DosimeterError", "StateError", "UnsoundRuleWarning"), "errors"
    ),
    "load_run": "runs.trained",
}
"""Where a public name lives, if not among the costs in rdp."""


def __getattr__(name: str) -> object:
    if name in __all__:
        home = importlib.import_module(f"dosimeter.{_HOMES.get(name, 'rdp')}")
        # Kept, so that the next use is an ordinary look-up.
        return globals().setdefault(name, getattr(home, name))
    if name in ("accounting", "rdp", "errors"):
        return importlib.import_module(f"dosimeter.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
