# SPDX-License-Identifier: Apache-2.0
"""Policy: decides from released readings alone, so its choices cost nothing more.

A policy is deterministic: the same readings under the same gate give the same choices, so a
run can be replayed from its history. It remembers plain numbers, which can be saved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from dosimeter import arguments
from dosimeter.decisions.controls import Controls
from dosimeter.decisions.readings import Reading
from dosimeter.rdp import Cost


class Policy(ABC):
    """Reads a signal every so many epochs and changes the engine.

    Args:
        every: How many epochs lie between two readings.
        significance: How many standard deviations of the noise make a rise.
    """

    def __init__(self, *, every: int, significance: float = 3.0) -> None:
        self.every = arguments.count("every", every)
        self.significance = arguments.non_negative("significance", significance)
        self._best: float | None = None

    def begin(self, engine: Controls) -> None:  # noqa: B027
        """Called before the first step; by default nothing happens."""

    @abstractmethod
    def update(self, engine: Controls, reading: Reading) -> None:
        """Takes a reading into account; what changes holds from the next step on."""

    def due(self, epoch: int) -> bool:
        """Whether a reading is wanted after this epoch, counted from 1."""
        return epoch % self.every == 0

    def costs(self, engine: Controls) -> tuple[Cost, ...] | None:
        """Every step that the policy may ever ask for, so that a menu can be priced for it.

        None, as here, if that is not known beforehand: the run is then kept without a menu.
        """
        return None

    def state(self) -> dict[str, Any]:
        """What it remembers, as plain values."""
        return {name: value for name, value in vars(self).items() if name.startswith("_")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what another of the same kind remembered."""
        if set(state) != set(self.state()):
            raise ValueError(f"state must be of a {type(self).__name__}, got {sorted(state)}")
        vars(self).update(state)

    def _rose(self, reading: Reading) -> bool:
        """Whether a reading is significantly above the last one that was, which it then replaces.

        A rise that is too small to tell from noise leaves the mark where it is, so that several
        of them add up. Before the first reading it is a count of 0, or an infinite loss.
        """
        best = self._best
        if best is None:
            best = 0.0 if reading.rising else -float("inf")
        rise = reading.score - best
        rose = rise > 0 and rise >= self.significance * reading.deviation
        if rose:
            self._best = reading.score
        return rose
