# SPDX-License-Identifier: Apache-2.0
"""Checks of what callers pass in, written in the accepting form.

Every check states what is allowed, so NaN (for which every comparison is false)
falls out. A wrong type is a TypeError, a wrong value a ValueError, and both name
the argument, the condition and the value.
"""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex, cast

import numpy as np

MAX_COUNT = 2**53
"""The largest count of one spend: every integer up to it is an exact float."""


def real(name: str, value: object) -> float:
    """A float from a Python or numpy number that is not a bool and not NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must fit in a float, got an integer beyond it") from None
    if math.isnan(number):
        raise ValueError(f"{name} must not be NaN, got {value!r}")
    return number


def positive(name: str, value: object) -> float:
    """A finite float above zero."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    return number


def non_negative(name: str, value: object) -> float:
    """A finite float at or above zero; -0.0 becomes 0.0."""
    number = real(name, value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and >= 0, got {value!r}")
    return number + 0.0


def open_unit(name: str, value: object) -> float:
    """A float strictly between 0 and 1."""
    number = real(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number


def half_open_unit(name: str, value: object) -> float:
    """A float from 0, included, to 1, excluded; -0.0 becomes 0.0."""
    number = real(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")
    return number + 0.0


def count(name: str, value: object) -> int:
    """An integer from 1 to MAX_COUNT."""
    if type(value) is int and 1 <= value <= MAX_COUNT:  # what every spend passes
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number of type int, got {value!r}")
    number = operator.index(cast(SupportsIndex, value))
    if not 1 <= number <= MAX_COUNT:
        raise ValueError(f"{name} must be between 1 and 2**53, got {value!r}")
    return number
