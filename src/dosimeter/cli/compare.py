# SPDX-License-Identifier: Apache-2.0
"""`dosimeter compare`: epsilon over time under every rule.

Registered with one line in the root command: `app.command("compare")(compare.compare)`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dosimeter.accounting.classic import Validity
from dosimeter.compare import Comparison, read_schedule
from dosimeter.compare import compare as compared
from dosimeter.compare.comparison import Progress
from dosimeter.compare.schedule import Schedule, mechanism

_PATIENCE = 2.0
_WORTH = {
    Validity.ANYTIME: "sound at any stop",
    Validity.FILTER: "sound as a filter",
    Validity.FIXED: "if fixed beforehand",
    Validity.UNSOUND: "UNSOUND",
}


def compare(
    delta: Annotated[float, typer.Option(help="The delta of every epsilon.")],
    sample_rate: Annotated[
        float | None, typer.Option(help="Probability that a record joins a step; 1 for all.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise over sensitivity of a step.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="How many steps.")] = None,
    schedule: Annotated[
        Path | None,
        typer.Option(help="CSV or JSON: steps, sample_rate, noise_multiplier per row."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture: .png, .svg, .pdf or .html.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every reading as CSV.")] = None,
    points: Annotated[int, typer.Option(help="At how many moments to read.")] = 40,
    menu: Annotated[bool, typer.Option(help="Price menus as well (takes seconds).")] = True,
) -> None:
    """Compare epsilon over time under published rules, ours and the exact limit."""
    try:
        rows = _schedule(schedule, sample_rate, noise_multiplier, steps)
        if plot is not None:
            from dosimeter.compare.plot import SUFFIXES

            if plot.suffix.lower() not in SUFFIXES:
                raise ValueError(f"plot must end in {', '.join(SUFFIXES)}, got {plot.name!r}")
        with _progress() as tell:
            result = compared(rows, delta, points=points, menu=menu, progress=tell)
        _print(result)
        if csv is not None:
            result.write_csv(csv)
            typer.echo(f"readings written to {csv}")
        if plot is not None:
            from dosimeter.compare.plot import save_plot

            save_plot(result, plot)
            typer.echo(f"picture written to {plot}")
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        typer.echo(
            f"error: the picture needs {error.name}; pip install 'dosimeter[plot]'", err=True
        )
        raise typer.Exit(2) from None


def _schedule(
    file: Path | None, rate: float | None, noise: float | None, steps: int | None
) -> Schedule:
    if file is not None:
        if not rate is noise is steps is None:
            raise ValueError("schedule must not be given together with a mechanism")
        return read_schedule(file)
    if rate is None or noise is None or steps is None:
        raise ValueError(
            "schedule must be given, or all of --sample-rate, --noise-multiplier and --steps"
        )
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    return ((mechanism(rate, noise), steps),)


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on the error stream, once the work has taken two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description:32}"), BarColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("comparing", total=1.0)
    began = time.monotonic()

    def tell(what: str, share: float) -> None:
        bar.update(task, description=what, completed=share)
        if not bar.live.is_started and share < 1 and time.monotonic() - began > _PATIENCE:
            bar.start()

    try:
        yield tell
    finally:
        bar.stop()


def _print(result: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"epsilon of {result.steps[-1]} steps at delta {result.delta:g}")
    for name in ("rule", "epsilon", "ratio", "holds"):
        table.add_column(name, justify="right" if name in ("epsilon", "ratio") else "left")
    for line in result.lines:
        finite = math.isfinite(line.last)
        ratio = f"{line.last / result.limit.last:.3f}" if finite and result.limit.last else ""
        table.add_row(
            f"[bold]{line.name}[/bold]" if line.ours else line.name,
            f"{line.last:.4g}" if finite else "no bound",
            ratio,
            _WORTH[line.validity],
        )
    Console().print(table)
