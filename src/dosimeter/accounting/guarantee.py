# SPDX-License-Identifier: Apache-2.0
"""Guarantee: what holds, as data, and in words that can be quoted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dosimeter.neighbours import Neighbours

SEEDED = (
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
        neighbours: Which two data sets it speaks about.
        menu: Whether a menu vouches for it, which asks for more than Rényi costs do.
        seeded: Whether the noise came from a seed, which takes everything away again.
    """

    kind: str
    epsilon: float
    delta: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD
    menu: bool = False
    seeded: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """What must hold besides public costs and spending before computing.

        That a menu is declared before the first spend needs no word here: a gate is made with it.
        """
        if not self.menu or self.neighbours is Neighbours.REPLACE_ONE_RECORD:
            return ()  # a menu for replaced records has no sides
        extra = "user" if self.neighbours is Neighbours.ADD_REMOVE_USER else "record"
        return (
            f"the extra {extra} is on the same side in every round, that is, always in the same "
            "one of the two data sets",
        )

    def plain(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        plain = {**asdict(self), "neighbours": str(self.neighbours)}
        return {**plain, "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Guarantee:
        """The guarantee that `plain` wrote."""
        epsilon = math.inf if plain["epsilon"] == "inf" else plain["epsilon"]
        relation = Neighbours.named(plain["neighbours"])
        return cls(**{**plain, "epsilon": epsilon, "neighbours": relation})

    def __str__(self) -> str:
        if self.kind == "odometer" and math.isinf(self.epsilon):
            return "no guarantee: a computation without a finite cost was run, odometer"
        text = self._filter() if self.kind == "filter" else self._odometer()
        if self.menu:
            text = f"{text} with a menu of costs that was fixed before the first spend"
        if self.conditions:
            text = f"{text}, provided that {' and '.join(self.conditions)}"
        return text + (SEEDED if self.seeded else "")

    def _filter(self) -> str:
        return f"({self.epsilon!r}, {self.delta!r})-DP, {self.neighbours}, fully adaptive, filter"

    def _odometer(self) -> str:
        return (
            f"ex-post ({self.epsilon!r}, {self.delta!r})-DP at the moment of stopping: "
            f"P(S) <= e^{self.epsilon!r} Q(S) + {self.delta!r} for every set S of outcomes "
            f"with no larger reading, {self.neighbours}, fully adaptive, odometer"
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
