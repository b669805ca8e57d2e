# SPDX-License-Identifier: Apache-2.0
"""Loop: what is left to decide when a framework takes the steps of a private run.

Whether the step just taken was the last, what policies make of an epoch, and what a checkpoint
holds. The framework hands out batches and steps the optimizer, which pay by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from dosimeter.decisions import Policy, Reading, Steering
from dosimeter.errors import StateError
from dosimeter.training import PrivateEngine


class Loop:
    """A private run in the hands of a framework.

    Args:
        engine: On which `make_private` was called.
        policies: What may change noise and batch size after an epoch, or end the run.
        read: Pays for the reading that policies want and makes it.
    """

    def __init__(
        self,
        engine: PrivateEngine,
        policies: Policy | Sequence[Policy] = (),
        read: Callable[[], Reading] | None = None,
    ) -> None:
        self.engine, self._read = engine, read
        self._steering = Steering(engine, policies)
        self._epochs, self._stepped, self._left = 0, False, 0
        engine.after_step(self._note_step)

    def begin_epoch(self) -> None:
        """Notes what was paid and not used before."""
        self._left = self.engine.spends - self.engine.steps

    def is_over(self) -> bool:
        """Whether the gate would refuse the next step, and all that is paid ahead was used."""
        engine, stepped = self.engine, self._stepped
        self._stepped = False
        used = engine.spends - engine.steps == self._left
        return stepped and used and not engine.admits(engine.step_cost())

    def close_epoch(self) -> bool:
        """Lets policies decide; whether the run ends here."""
        self._epochs += 1
        if self._read is not None and self._steering.due(self._epochs):
            self._steering.read(self._epochs, self._read)
        return self.engine.exhausted or self.engine.stopped is not None

    def state(self) -> dict[str, Any]:
        """Settings, spends and policies; model and optimizer are in the framework's checkpoint."""
        state = self.engine.state_dict()
        kept = {name: state[name] for name in state if name not in ("model", "optimizer")}
        return {"engine": kept, "epochs": self._epochs, "steering": self._steering.state()}

    def restore(self, state: Mapping[str, Any], network: nn.Module, *, spends_kept: bool) -> None:
        """Charges the gate with what a checkpoint says was spent, and goes on from there."""
        now = {"model": network.state_dict(), "optimizer": self.engine.made[1].state_dict()}
        if set(state) != {"engine", "epochs", "steering"}:
            raise StateError(f"checkpoint must be one of this library, got {sorted(state)}")
        self.engine.load_state_dict({**state["engine"], **now}, spends_kept=spends_kept)
        self._epochs = int(state["epochs"])
        self._steering.restore(state["steering"])

    def _note_step(self) -> None:
        self._stepped = True
