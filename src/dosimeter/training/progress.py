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
        self._bar: Any = _bar(len(f"{epochs}/{epochs}")) if show else None
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
        """Says that the run is over, if epochs are left."""
        if self._bar is not None and not self._bar.finished:
            said = self._bar.tasks[0].fields["said"]
            self._bar.update(self._task, said=f"stopped, {said}")


def words(record: Epoch, limit: float) -> str:
    """One line about an epoch."""
    parts = []
    if record.loss is not None and record.accuracy is not None:
        parts.append(f"loss {record.loss:.2f} acc {100 * record.accuracy:.1f}%")
    of = f"/{exact(limit)}" if math.isfinite(limit) else ""
    parts.append(f"ε {at_most(record.epsilon, padded=True)}{of}")
    parts.append(f"noise {record.noise_multiplier:.3g} batch {record.batch_size}")
    return " ".join(parts)


def _bar(width: int) -> Any:
    """The bar; where there is little room, the words are cut and not the count of epochs."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column
    except ImportError:
        return None
    console = Console()
    if not (console.is_terminal or console.is_jupyter):
        console = Console(width=120)  # a file has no width, and rich would take 80
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        MofNCompleteColumn(table_column=Column(min_width=width, no_wrap=True)),
        TextColumn("{task.fields[said]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
    )
