# SPDX-License-Identifier: Apache-2.0
"""Potential: one proof that everything spent so far is within its own share of delta.

Potentials whose deltas add up to at most delta may stand side by side in an `Account`. A
potential vouches for a spend (`take`), follows what another one vouched for (`charged`), or is
dropped; it is never asked about runs that it was not charged for. Potentials are frozen values.
"""

from __future__ import annotations

from typing import Protocol, Self

from dosimeter.rdp import Cost


class Potential(Protocol):
    """What an account asks of a proof."""

    def take(self, cost: Cost, count: int) -> tuple[Self, int] | None:
        """The potential after a spend that it vouches for, and how many runs that charges.

        At least `count` runs: more where they are sold in bundles. None if it does not vouch.
        """
        ...

    def charged(self, cost: Cost, runs: int) -> Self | None:
        """The potential after runs that another one vouched for; None if it ends there."""
        ...

    def released(self, cost: Cost, runs: int) -> Self | None:
        """The potential without runs that it was charged for and that were never run.

        None if it takes nothing back.
        """
        ...

    def most(self, cost: Cost) -> int:
        """The largest count that it vouches for."""
        ...

    @property
    def reading(self) -> float:
        """An epsilon that holds for everything charged so far."""
        ...

    def remaining(self, limit: float) -> float:
        """How much of a limit is left by its own measure, rounded down."""
        ...

    def shortage(self, cost: Cost, count: int) -> str:
        """Why it does not vouch for a spend, in words."""
        ...
