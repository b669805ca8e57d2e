# SPDX-License-Identifier: Apache-2.0
"""AutoRate: a learning rate from the horizon and the lengths of released gradients.

It sees what was released and nothing else, so it costs nothing; and it is deterministic, so a
run's rates can be replayed from its history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dosimeter import arguments


@dataclass(frozen=True)
class Released:
    """What the gradient of one step shows beside the running mean of those before it.

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


class AutoRate:
    """The learning rate of SGD with momentum, for gradients of known bound and noise.

    If the parameters have `reach` to go, averaged SGD does best at the rate reach / √steps over
    the length of a released gradient, noise included (root mean square; Nemirovski et al. 2009).
    That length has a bound which is known before any data is seen, and there it begins. The bound
    is far off where gradients of records cancel and noise is small, so from then on it takes the
    root mean square of the gradients released so far, the bound counted as one more of them.
    This is AdaGrad's step for all parameters together (Streeter and McMahan 2010), with the
    number of steps known: the rate does not fall with time, and the average over the last iterates
    does what a falling rate would. It never passes `reach` times (1 - `momentum`) over the bound.

    Args:
        reach: How far parameters are expected to travel, with gradients of length one.
        momentum: Of the optimizer whose rate it is.

    Example:
        >>> rule = AutoRate()
        >>> rule.begin(steps=400, noise=0.0, bound=1.0)
        >>> round(rule.rate, 3)
        0.15
        >>> rule.update(0.2)  # a gradient a fifth as long as it could be
        >>> round(rule.rate, 3)
        0.208
    """

    def __init__(self, *, reach: float = 30.0, momentum: float = 0.9) -> None:
        self.reach = arguments.positive("reach", reach)
        if not 0 <= arguments.real("momentum", momentum) < 1:
            raise ValueError(f"momentum must be from 0 to below 1, got {momentum!r}")
        self.momentum = momentum
        self._scale, self._energy, self._seen = math.nan, math.nan, 0

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self._scale / math.sqrt(self._energy / self._seen) if self._seen else math.nan

    def begin(self, *, steps: int, noise: float, bound: float) -> None:
        """Sets the first rate.

        Args:
            steps: How many steps are planned.
            noise: The norm that noise gives to a released gradient, over `bound`.
            bound: The most that the gradient of a record can be.
        """
        self._scale = self.reach * (1 - self.momentum) / math.sqrt(steps)
        self._energy, self._seen = bound**2 * (1 + noise**2), 1

    def update(self, length: float) -> None:
        """Takes the norm of one released gradient into account."""
        self._energy += length**2
        self._seen += 1

    def state(self) -> dict[str, float]:
        """What it remembers."""
        return {"energy": self._energy, "seen": self._seen}

    def restore(self, state: dict[str, float]) -> None:
        """Goes on from what `state` gave, in a run that has begun alike."""
        self._energy, self._seen = float(state["energy"]), int(state["seen"])
