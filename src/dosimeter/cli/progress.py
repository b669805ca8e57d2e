# SPDX-License-Identifier: Apache-2.0
"""What the error stream shows while something takes its time; nothing where nobody watches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

_PATIENCE = 2.0


def spinning(what: str) -> contextlib.AbstractContextManager[object]:
    """A spinner, for work that cannot tell how far it is."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(f"{what} ...") if console.is_terminal else contextlib.nullcontext()


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[[str, float], None]]:
    """Yields what is told how far the work is; nothing is shown before two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description:32}"), BarColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=1.0)
    began = time.monotonic()

    def tell(what: str, share: float) -> None:
        bar.update(task, description=what, completed=share)
        if not bar.live.is_started and share < 1 and time.monotonic() - began > _PATIENCE:
            bar.start()

    try:
        yield tell
    finally:
        bar.stop()
