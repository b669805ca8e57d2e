# SPDX-License-Identifier: Apache-2.0
"""A learning rate from the horizon, the noise and the lengths of released gradients.

`RateRule` is what any such rule is, `AutoRate` the one that is used if no other is given. It sees
what was released and nothing else, so it costs nothing; and it is deterministic, so a run's rates
can be replayed from its history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dosimeter import arguments
from dosimeter.errors import StateError


@dataclass(frozen=True)
class Released:
    """What the gradient of one step shows beside the mean of those before it.

    Attributes:
        product: Its inner product with that mean; noise makes it no larger on average.
        energy: Its squared norm less what the noise adds to that on average.
        deviation: Standard deviation of the noise in one coordinate.
        length: The norm of the mean.
        values: How many coordinates there are.
    """

    product: float
    energy: float
    deviation: float
    length: float
    values: int

    def signal(self) -> float:
        """Product and energy in units of their noise; of nothing else the variance is one."""
        unit, spread = self.deviation * self.length, math.sqrt(2 * self.values) * self.deviation**2
        if not (unit > 0 and spread > 0):
            return 0.0
        found = (self.product / unit + self.energy / spread) / math.sqrt(2)
        return found if math.isfinite(found) else 0.0


@runtime_checkable
class RateRule(Protocol):
    """Sets the learning rate of every step from what the steps before it have released.

    `begin` is called once, before the first step, `update` after each. The same calls must give the
    same rates, so that those of a run can be replayed; `state` and `restore` are for checkpoints.
    """

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""

    @property
    def momentum(self) -> float:
        """Of the SGD whose rate it is."""

    def begin(self, *, steps: int, noise: float, bound: float) -> None:
        """Sets the first rate; `AutoRate.begin` says from what."""

    def update(self, length: float) -> None:
        """Takes the norm of one released gradient into account."""

    def state(self) -> dict[str, float]:
        """What it remembers."""

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from what `state` gave."""


_KNOWN = 0.75
"""The share of the noise that was added, beside what was released, in the length of a gradient."""


class AutoRate:
    """The learning rate of SGD with momentum, for gradients of known bound and noise.

    If the parameters have `reach` to go, averaged SGD does best at the rate reach / √steps over
    the root mean square of released gradients (Nemirovski et al. 2009); where the loss is smooth
    it is their noise alone that counts, as long as the rate stays below what curvature allows
    (Lan 2012). That limit is not known, so both have a part: the energy that the rate is divided
    by is three quarters that of the noise, which is known, and one quarter the mean of the
    gradients released so far. Before the first there is a bound that holds for all data, which
    then counts as one more of them. Where noise is most of a gradient the rate hardly moves; where
    it is little the rate rises as gradients get shorter, and falls if they get longer. It never
    passes 2 `reach` times (1 - `momentum`) over the bound.

    Args:
        reach: How far parameters are expected to travel, with gradients of length one.
        momentum: Of the optimizer whose rate it is.

    Example:
        >>> rule = AutoRate()
        >>> rule.begin(steps=400, noise=0.1, bound=1.0)
        >>> round(rule.rate, 3)
        0.294
        >>> rule.update(0.2)  # a gradient a fifth as long as it could be
        >>> round(rule.rate, 3)
        0.403
    """

    def __init__(self, *, reach: float = 30.0, momentum: float = 0.9) -> None:
        self.reach = arguments.positive("reach", reach)
        if not 0 <= arguments.real("momentum", momentum) < 1:
            raise ValueError(f"momentum must be from 0 to below 1, got {momentum!r}")
        self.momentum = momentum
        self._scale, self._noise, self._squares, self._seen = math.nan, math.nan, math.nan, 0

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        if not self._seen:
            return math.nan
        energy = _KNOWN * self._noise + (1 - _KNOWN) * self._squares / self._seen
        return self._scale / math.sqrt(energy)

    def begin(self, *, steps: int, noise: float, bound: float) -> None:
        """Sets the first rate.

        Args:
            steps: How many steps are planned.
            noise: The norm that noise gives to a released gradient, over `bound`.
            bound: The most that the gradient of a record can be.
        """
        self._scale = self.reach * (1 - self.momentum) / math.sqrt(steps)
        self._noise, self._seen = (bound * noise) ** 2, 1
        self._squares = bound**2 + self._noise

    def update(self, length: float) -> None:
        """Takes the norm of one released gradient into account."""
        self._squares += length**2
        self._seen += 1

    def state(self) -> dict[str, float]:
        """What it remembers."""
        return {"squares": self._squares, "seen": self._seen}

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from what `state` gave, in a run that has begun alike.

        Raises:
            StateError: It is that of another rule.
        """
        if set(state) != set(self.state()):
            raise StateError(
                "state must be that of this rule for the learning rate, got one with "
                f"{', '.join(sorted(state)) or 'nothing'}. It is of a run that another version of "
                "dosimeter began: go on with that version, or begin again elsewhere; what the run "
                "has spent stays spent"
            )
        self._squares, self._seen = float(state["squares"]), int(state["seen"])
