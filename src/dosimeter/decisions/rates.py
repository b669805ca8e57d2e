# SPDX-License-Identifier: Apache-2.0
"""AutoRate: a learning rate from the horizon and the noise, corrected by released gradients.

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

    def evidence(self, target: float) -> float:
        """By how many deviations gradients agree more than a share `target` of their energy."""
        spread = math.hypot(
            self.deviation * self.length, target * math.sqrt(2 * self.values) * self.deviation**2
        )
        found = (self.product - target * self.energy) / spread if spread > 0 else 0.0
        # Digits beyond these decide nothing, and a history holds one of these numbers a step.
        return round(max(-999.0, min(999.0, found)), 3) if math.isfinite(found) else 0.0


class AutoRate:
    """The learning rate of SGD with momentum, for gradients of known bound and noise.

    It begins where averaged SGD does best if the parameters have `reach` to go: at reach / √steps
    over a bound on the norm of a released gradient, noise included, which is known before any
    data is seen. From there each released gradient is compared with the running mean of earlier
    ones. A rate that is too small leaves them pointing the same way, one that is too large makes
    them swing: the rate rises while they share more than `target` of their energy, as far as that
    can be told from noise, and falls while they share less.

    Args:
        reach: How far parameters are expected to travel, with gradients of length one.
        target: The share of agreement at which the rate stays as it is.
        gain: By how much its logarithm moves in a step, at most.
        memory: Weight of the past in the running mean.
        momentum: Of the optimizer whose rate it is.

    Example:
        >>> rule = AutoRate()
        >>> rule.begin(steps=400, noise=0.0, bound=1.0)
        >>> round(rule.rate, 3)
        0.15
        >>> rule.update(-30.0)  # gradients that clearly swing
        >>> round(rule.rate, 3)
        0.146
    """

    def __init__(
        self,
        *,
        reach: float = 30.0,
        target: float = 0.4,
        gain: float = 0.03,
        memory: float = 0.9,
        momentum: float = 0.9,
    ) -> None:
        self.reach = arguments.positive("reach", reach)
        self.target = arguments.open_unit("target", target)
        self.gain = arguments.non_negative("gain", gain)
        self.memory = arguments.open_unit("memory", memory)
        if not 0 <= arguments.real("momentum", momentum) < 1:
            raise ValueError(f"momentum must be from 0 to below 1, got {momentum!r}")
        self.momentum = momentum
        self._rate = math.nan

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self._rate

    def begin(self, *, steps: int, noise: float, bound: float) -> None:
        """Sets the first rate.

        Args:
            steps: How many steps are planned.
            noise: The norm that noise gives to a released gradient, over `bound`.
            bound: The most that the gradient of a record can be.
        """
        length = bound * math.sqrt(steps) * math.hypot(1.0, noise)
        self._rate = self.reach * (1 - self.momentum) / length

    def update(self, evidence: float) -> None:
        """Takes what one step has shown into account."""
        self._rate *= math.exp(self.gain * math.tanh(evidence / 3))

    def state(self) -> dict[str, float]:
        """What it remembers."""
        return {"rate": self._rate}

    def restore(self, state: dict[str, float]) -> None:
        """Goes on from what `state` gave."""
        self._rate = float(state["rate"])
