# SPDX-License-Identifier: Apache-2.0
"""Loop: what is left to decide when a framework takes the steps of a private run.

Whether the step just taken was the last, what policies make of an epoch, what a page is told of it
and what a checkpoint holds. The framework hands out batches and steps the optimizer, which pay by
themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from dosimeter.accounting.burned import share_of
from dosimeter.decisions import Epoch, Policy, Reading, Steering
from dosimeter.errors import StateError
from dosimeter.training import PrivateEngine
from dosimeter.watching import watched


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
        self._over = False
        self._tell: Callable[[Epoch], None] = lambda _: None
        self._closed: Epoch | None = None
        self._began, self._first = time.perf_counter(), engine.steps
        engine.after_step(self._note_step)

    @contextmanager
    def watched(self, url: str | None, *, name: str, epochs: int) -> Iterator[None]:
        """Tells a page how the run goes while the block lasts, and stops it if the page says so.

        Args:
            url: The URL of a budget service, or None.
            name: What the run is called.
            epochs: How many there will be at most.
        """
        engine = self.engine
        leads = engine.group.rank == 0
        page = watched(
            url if leads else None, engine, name=name, epochs=epochs, gate=engine.gate,
            ended=self._ended)  # fmt: skip
        with page as self._tell:
            yield
            self._show()

    def begin_epoch(self) -> None:
        """Notes what was paid and not used before; what the last one did is kept by now."""
        self._left = self.engine.spends - self.engine.steps
        self._began, self._first = time.perf_counter(), self.engine.steps
        self._show()

    def is_over(self) -> bool:
        """Whether the gate would refuse the next step, and all that is paid ahead was used."""
        engine, stepped = self.engine, self._stepped
        self._stepped = False
        used = engine.spends - engine.steps == self._left
        self._over = stepped and used and not engine.admits(engine.step_cost())
        return self._over

    def close_epoch(self) -> bool:
        """Lets policies decide; whether the run ends here."""
        engine = self.engine
        self._epochs += 1
        noise, batch_size = engine.noise_multiplier, engine.batch_size
        if self._read is not None and self._steering.due(self._epochs):
            self._steering.read(self._epochs, self._read)
        self._closed = Epoch(
            self._epochs, engine.steps - self._first, engine.epsilon, noise, batch_size,
            accuracy=None, loss=None, signal=None, seconds=time.perf_counter() - self._began,
            spent_share=share_of(engine.gate))  # fmt: skip
        return engine.exhausted or engine.stopped is not None

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

    def _show(self) -> None:
        """Tells of the epoch that was closed, which a checkpoint may hold by now."""
        if self._closed is not None:
            self._tell(self._closed)
        self._closed = None

    def _ended(self) -> str | None:
        over = self._over or self.engine.exhausted
        return self.engine.stopped or ("the gate refused the next step" if over else None)

    def _note_step(self) -> None:
        self._stepped = True
