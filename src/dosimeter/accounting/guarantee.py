# SPDX-License-Identifier: Apache-2.0
"""Guarantee: what holds, in words that can be quoted."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class FilterGuarantee:
    """(epsilon, delta)-DP of everything that a filter ever admits."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return (
            f"({self.epsilon!r}, {self.delta!r})-DP, add/remove one record, fully adaptive, filter"
        )


@dataclass(frozen=True)
class OdometerGuarantee:
    """What holds for everything admitted so far if one stops now (ex-post DP)."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "no guarantee: a computation without a finite cost was run, odometer"
        return (
            f"ex-post ({self.epsilon!r}, {self.delta!r})-DP at the moment of stopping: "
            f"P(S) <= e^{self.epsilon!r} Q(S) + {self.delta!r} for every set S of outcomes "
            "with no larger reading, add/remove one record, fully adaptive, odometer"
        )
