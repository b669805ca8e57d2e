# SPDX-License-Identifier: Apache-2.0
"""Gradual answers: a noisy answer made better for exactly the difference.

An answer with little noise is worth as much as a mean of independent noisier ones, weighted by
their precisions. So a coarse answer need not be thrown away: a fresh one with the right noise,
averaged in, makes it the answer that one would have had at once, at the same price in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from dosimeter.rdp.cost import Cost
from dosimeter.rdp.gaussian import Gaussian

Answer = TypeVar("Answer")  # a number or an array


@dataclass(frozen=True)
class Refinement:
    """What to pay, and how to put the fresh answer to the old one.

    Attributes:
        cost: What the fresh answer costs; its noise is the noise of the fresh answer.
        weight: The weight of the fresh answer in the mean; that of the old one is the rest.
    """

    cost: Gaussian
    weight: float

    def combine(self, old: Answer, fresh: Answer) -> Answer:
        """The refined answer, from the one before and a fresh one with independent noise."""
        return old + self.weight * (fresh - old)  # type: ignore[operator,no-any-return]


def refine(old: Gaussian, new: Gaussian) -> Refinement:
    """From an answer with Gaussian noise to one with less, for the difference.

    Args:
        old: What the answer so far costs: that of the first, or `new` of the last refinement.
        new: What the refined answer would have cost at once.

    Guarantee:
        Precisions add up: 1/noise^2 of all fresh answers, the first included, is 1/noise^2 of the
        last (docs/gradual.md), so the Rényi costs sum to that of the last answer alone, up to
        rounding, which never matters to privacy: what is charged is the noise that is used. When
        to stop may be decided by all that was released.

    Raises:
        TypeError: Not Gaussian. A sampled answer cannot be refined: the sample of the first one
            is not secret from the second, and fresh samples of each do not add up.
        ValueError: The new answer has not less noise, or is of other neighbours.
    """
    for name, cost in (("old", old), ("new", new)):
        if type(cost) is not Gaussian:
            kind = type(cost).__name__ if isinstance(cost, Cost) else repr(cost)
            raise TypeError(
                f"{name} must be the Gaussian cost of an answer on all records, got {kind}; "
                "ask anew and pay in full"
            )
    if old.neighbours is not new.neighbours:
        raise ValueError(f"new must be for neighbours that {old.neighbours}, got {new}")
    if not new.noise_multiplier < old.noise_multiplier:
        raise ValueError(f"new must have less noise than {old}, got {new}")
    ratio = new.noise_multiplier / old.noise_multiplier
    weight = (1.0 - ratio) * (1.0 + ratio)
    noise = new.noise_multiplier / math.sqrt(weight)
    return Refinement(Gaussian(noise, neighbours=new.neighbours), weight)
