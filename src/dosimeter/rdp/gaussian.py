# SPDX-License-Identifier: Apache-2.0
"""The Gaussian mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import SLACK, SMALLEST, Cost, Option
from dosimeter.rdp.loss import (
    CLOSED_ERROR,
    Cells,
    Direction,
    Loss,
    normal_between,
    normal_reach,
    normal_tail,
    require_noise,
)
from dosimeter.rdp.orders import FloatArray, Orders
from dosimeter.rdp.sampled_cut import normal

if TYPE_CHECKING:
    import dp_accounting

_HALVINGS = 60


@dataclass(frozen=True, repr=False)
class Gaussian(Cost):
    """The Gaussian mechanism; `noise_multiplier` is standard deviation over sensitivity.

    Also right for the discrete Gaussian, whose Rényi cost is no larger (Canonne, Kamath and
    Steinke 2020, Theorem 4), but not on a menu, which prices the loss distribution
    (docs/sharp-edges.md). D_a = a / (2 noise_multiplier^2) (Mironov 2017, Prop. 7).
    """

    noise_multiplier: float

    kind: ClassVar[str] = "gaussian"
    option: ClassVar[Option] = Option("gaussian", "NOISE", "Gaussian noise over sensitivity.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "noise_multiplier", arguments.positive("noise_multiplier", self.noise_multiplier)
        )

    def _curve(self, orders: Orders) -> FloatArray:
        # Two divisions: the square of a huge or tiny noise leaves the range of a float.
        curve = orders.array / self.noise_multiplier / self.noise_multiplier / 2.0
        return np.asarray(curve * SLACK + SMALLEST)

    def loss(self, direction: Direction) -> GaussianLoss:
        """The same in both directions."""
        far, shift = normal_reach(), 1.0 / self.noise_multiplier
        return GaussianLoss(shift * (-far - shift / 2), shift * (far + shift / 2), shift)

    def dp_event(self) -> dp_accounting.DpEvent:
        """A GaussianDpEvent."""
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier)


class GaussianLoss(Loss):
    """P = N(shift, 1), Q = N(0, 1): the output x has the loss shift (x - shift / 2)."""

    def cells(self, cuts: FloatArray) -> Cells:
        """Differences of normal distribution functions."""
        shift = self.scale
        require_noise(1.0 / shift)
        outputs = cuts / shift + shift / 2
        outputs[0] = -math.inf
        q, lost_q = normal_between(outputs)
        p, lost_p = normal_between(outputs - shift)
        # A difference lost in the second world weighs e^loss there, as its probability does.
        error = CLOSED_ERROR * p + lost_p + lost_q * np.exp(cuts[1:])
        top = -float(outputs[-1])
        tail = normal_tail(top + shift)
        return Cells(p, q, error, (tail, normal_tail(top), CLOSED_ERROR * tail))


def widest_gaussian(epsilon: float, delta: float) -> float:
    """The squared parameter, about, of the widest Gaussian within (epsilon, delta)."""
    low, high = 0.0, 2.0 * math.sqrt(epsilon) + 40.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        upper, lower = (normal(side * middle / 2 - epsilon / middle) for side in (1, -1))
        excess = upper - (math.exp(epsilon + math.log(lower)) if lower > 0 else 0.0)
        low, high = (middle, high) if excess <= delta else (low, middle)
    return max(low * low, 1e-300)
