# SPDX-License-Identifier: Apache-2.0
"""Guarantee: what holds, in words that can be quoted."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class FilterGuarantee:
    """(epsilon, delta)-DP of everything that a filter ever admits.

    Attributes:
        epsilon: The limit.
        delta: The delta, failures included.
        conditions: What must hold besides public costs and spending before computing.
    """

    epsilon: float
    delta: float
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"({self.epsilon!r}, {self.delta!r})-DP, add/remove one record, fully adaptive, filter"
        )
        return f"{text}, provided that {' and '.join(self.conditions)}" if self.conditions else text


@dataclass(frozen=True)
class Standing:
    """Which parts of a gate with a menu still hold; one of them is enough.

    Attributes:
        menu: The counter of quanta: until something off the menu is admitted.
        mixture: The Rényi mixture on its share of delta: while its epsilon is within the limit.
    """

    menu: bool
    mixture: bool


MENU_CONDITIONS = (
    "the menu was declared before the first spend",
    "the extra record is on the same side in every round",
)
"""What a priced menu asks for beyond Rényi costs."""


@dataclass(frozen=True)
class OdometerGuarantee:
    """What holds for everything admitted so far if one stops now (ex-post DP)."""

    epsilon: float
    delta: float
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "no guarantee: a computation without a finite cost was run, odometer"
        text = (
            f"ex-post ({self.epsilon!r}, {self.delta!r})-DP at the moment of stopping: "
            f"P(S) <= e^{self.epsilon!r} Q(S) + {self.delta!r} for every set S of outcomes "
            "with no larger reading, add/remove one record, fully adaptive, odometer"
        )
        return f"{text}, provided that {' and '.join(self.conditions)}" if self.conditions else text
