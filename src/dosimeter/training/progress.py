# SPDX-License-Identifier: Apache-2.0
"""A live line per run: epoch, loss, accuracy, epsilon spent of epsilon, noise, batch size."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, Self

from dosimeter.decisions import Epoch
from dosimeter.rounding import at_most, exact


class Bar:
    """A progress bar of rich, or nothing where it is not wanted or not installed."""

    def __init__(self, name: str, epochs: int, limit: float, *, show: bool) -> None:
        self._limit = limit
        self._bar: Any = _bar() if show else None
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=epochs, said="starting")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, record: Epoch) -> None:
        """Shows how an epoch went."""
        if self._bar is not None:
            said = words(record, self._limit)
            self._bar.update(self._task, completed=record.epoch, said=said)

    def end(self) -> None:
        """Fills the bar: the run is over, though epochs may be left."""
        if self._bar is not None:
            self._bar.update(self._task, total=self._bar.tasks[0].completed)


def words(record: Epoch, limit: float) -> str:
    """One line about an epoch."""
    parts = []
    if record.loss is not None and record.accuracy is not None:
        parts.append(f"loss {record.loss:.2f} acc {100 * record.accuracy:.1f}%")
    of = f"/{exact(limit)}" if math.isfinite(limit) else ""
    parts.append(f"ε {at_most(record.epsilon, padded=True)}{of}")
    parts.append(f"noise {record.noise_multiplier:.3g} batch {record.batch_size}")
    return " ".join(parts)


def _bar() -> Any:
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
    )
