# SPDX-License-Identifier: Apache-2.0
"""Search spaces: names of settings, each with a range or a list of choices.

Settings are drawn from the operating system's randomness and never look at the data.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dosimeter import arguments

_COINS = random.SystemRandom()


@dataclass(frozen=True)
class Uniform:
    """A range of real numbers from which each trial draws one.

    Args:
        low: The smallest number.
        high: The largest number.
        log: Draw evenly on a logarithmic scale, as for learning rates.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        _require_range(self.low, self.high, log=self.log)

    def draw(self) -> float:
        """Return one number of the range."""
        return _between(self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Integer:
    """A range of whole numbers from which each trial draws one, both ends included.

    Args:
        low: The smallest number.
        high: The largest number.
        log: Draw evenly on a logarithmic scale, as for layer sizes.
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be a whole number of type int, got {value!r}")
        _require_range(self.low, self.high, log=self.log)

    def draw(self) -> int:
        """Return one number of the range."""
        if not self.log:
            return _COINS.randint(self.low, self.high)
        return min(self.high, int(_between(self.low, self.high + 1, log=True)))


Space = Mapping[str, Sequence[Any] | Uniform | Integer]


def require_space(space: Space) -> None:
    """Raise unless a space has a name and a range or a list of choices for each setting."""
    if not isinstance(space, Mapping) or not space:
        raise TypeError(
            f'space must map names to ranges or lists, as {{"rate": Uniform(0.01, 1)}}, '
            f"got {space!r}"
        )
    for name, axis in space.items():
        if not isinstance(name, str):
            raise TypeError(f"space must have names of type str, got {name!r}")
        if isinstance(axis, Uniform | Integer):
            continue
        if isinstance(axis, str | bytes) or not isinstance(axis, Sequence) or not len(axis):
            raise TypeError(
                f"space[{name!r}] must be a Uniform, an Integer or a list of choices, got {axis!r}"
            )


def draw(space: Space) -> dict[str, Any]:
    """Return one setting for each name."""
    return {
        name: axis.draw() if isinstance(axis, Uniform | Integer) else _COINS.choice(axis)
        for name, axis in space.items()
    }


def _require_range(low: float, high: float, *, log: bool) -> None:
    if not 0 < arguments.real("high", high) - arguments.real("low", low) < math.inf:
        raise ValueError(f"high must be finite and above low, got {low!r} to {high!r}")
    if log and not low > 0:
        raise ValueError(f"low must be above 0 on a logarithmic scale, got {low!r}")


def _between(low: float, high: float, *, log: bool) -> float:
    """Return a number between two others; rounding must not carry it past either."""
    found = _COINS.uniform(math.log(low), math.log(high)) if log else _COINS.uniform(low, high)
    return min(float(high), max(float(low), math.exp(found) if log else found))
