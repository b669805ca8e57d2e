# SPDX-License-Identifier: Apache-2.0
"""Guarantee: what holds, as data, and in words that can be quoted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

_MENU = (
    "the menu was declared before the first spend",
    "the extra record is on the same side in every round",
)
"""What a priced menu asks for beyond Rényi costs."""

_SEEDED = (
    "; but a seed was given, so the noise is predictable: against anyone who knows or guesses "
    "the seed there is no privacy"
)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What holds for everything that a gate admitted.

    Attributes:
        kind: "filter": for everything it ever admits. "odometer": for everything admitted so
            far if one stops now (ex-post DP).
        epsilon: The limit of a filter, the reading of an odometer.
        delta: The delta, failures included.
        menu: Whether a menu vouches for it, which asks for more than Rényi costs do.
        seeded: Whether the noise came from a seed, which takes everything away again.
    """

    kind: str
    epsilon: float
    delta: float
    menu: bool = False
    seeded: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """What must hold besides public costs and spending before computing."""
        return _MENU if self.menu else ()

    def plain(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        epsilon = "inf" if math.isinf(self.epsilon) else self.epsilon
        return {**asdict(self), "epsilon": epsilon, "conditions": list(self.conditions)}

    def __str__(self) -> str:
        if self.kind == "odometer" and math.isinf(self.epsilon):
            return "no guarantee: a computation without a finite cost was run, odometer"
        text = self._filter() if self.kind == "filter" else self._odometer()
        if self.conditions:
            text = f"{text}, provided that {' and '.join(self.conditions)}"
        return text + (_SEEDED if self.seeded else "")

    def _filter(self) -> str:
        return (
            f"({self.epsilon!r}, {self.delta!r})-DP, add/remove one record, fully adaptive, filter"
        )

    def _odometer(self) -> str:
        return (
            f"ex-post ({self.epsilon!r}, {self.delta!r})-DP at the moment of stopping: "
            f"P(S) <= e^{self.epsilon!r} Q(S) + {self.delta!r} for every set S of outcomes "
            "with no larger reading, add/remove one record, fully adaptive, odometer"
        )


@dataclass(frozen=True)
class Standing:
    """Which potentials of an account still hold; one of them is enough.

    Attributes:
        menu: The quanta: until something off the menu is admitted.
        mixture: The Rényi mixture on its share of delta: while its epsilon is within the limit.
    """

    menu: bool
    mixture: bool
