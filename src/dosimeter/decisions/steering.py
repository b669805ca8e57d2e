# SPDX-License-Identifier: Apache-2.0
"""Steering: the policies of one run, what they read and said, and the history that they leave.

Any trainer, on any library, asks it after each epoch. It touches no data: a reading is made by
whoever calls, through a gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dosimeter.decisions.controls import Controls
from dosimeter.decisions.history import History
from dosimeter.decisions.policy import Policy
from dosimeter.decisions.readings import Reading
from dosimeter.errors import BudgetExceeded, StateError


class Steering:
    """Lets policies begin, tells them the readings that are due, and remembers what they ruled.

    Args:
        controls: What the policies may change.
        policies: One, some or none of them.
    """

    def __init__(self, controls: Controls, policies: Policy | Sequence[Policy] = ()) -> None:
        self.policies = listed(policies)
        self.history = History(records=controls.records)
        self._controls = controls
        self._ruled: str | None = None
        for policy in self.policies:
            policy.begin(controls)

    def due(self, epoch: int) -> bool:
        """Whether a reading is wanted after this epoch, counted from 1."""
        return any(policy.due(epoch) for policy in self.policies)

    def read(self, epoch: int, reading: Callable[[], Reading]) -> Reading | None:
        """Makes a reading and lets the policies see it; a gate that refuses it ends the run.

        Args:
            epoch: After which epoch it is.
            reading: Pays for it and makes it.
        """
        try:
            made = reading()
        except BudgetExceeded:
            self._rule("the gate refused the next reading")
            return None
        wished = self._controls.stopped
        for policy in self.policies:
            if policy.due(epoch):
                policy.update(self._controls, made)
        if self._controls.stopped not in (None, wished):
            self._ruled = self._controls.stopped
        return made

    def state(self) -> dict[str, Any]:
        """What it remembers, as plain values."""
        return {
            "policies": [policy.state() for policy in self.policies],
            "history": self.history.state(),
            "ruled": self._ruled,
        }

    def require_restorable(self, state: Mapping[str, Any]) -> None:
        """Raises StateError unless a state is of as many policies."""
        if len(state["policies"]) != len(self.policies):
            raise StateError(
                f"state must be of a run with {len(self.policies)} policies, got one with "
                f"{len(state['policies'])}"
            )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave; a run that a policy ended stays ended."""
        for policy, remembered in zip(self.policies, state["policies"], strict=True):
            policy.restore(remembered)
        self.history.epochs[:] = History.from_state(state["history"]).epochs
        if state["ruled"] is not None:
            self._rule(state["ruled"])

    def _rule(self, reason: str) -> None:
        # Unlike someone's wish to stop, it is kept.
        self._ruled = reason
        self._controls.stop(reason)


def listed(policies: Policy | Sequence[Policy]) -> list[Policy]:
    """One policy or several, as a list."""
    return [policies] if isinstance(policies, Policy) else list(policies)
