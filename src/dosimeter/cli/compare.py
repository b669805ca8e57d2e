# SPDX-License-Identifier: Apache-2.0
"""`dosimeter compare`: epsilon over time under every rule."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.options import Json
from dosimeter.cli.output import print_json
from dosimeter.cli.plan import print_rules
from dosimeter.nearest import nearest
from dosimeter.rounding import at_most, exact

if TYPE_CHECKING:
    from dosimeter.compare import Comparison
    from dosimeter.compare.schedule import Schedule

_SCHEDULES = (".csv", ".json")


def compare(
    delta: Annotated[float, typer.Option(metavar="NUMBER", help="The delta of every epsilon.")],
    sample_rate: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Probability that a record joins a step; 1 for all."),
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Noise over sensitivity of a step.")
    ] = None,
    steps: Annotated[int | None, typer.Option(metavar="COUNT", help="How many steps.")] = None,
    schedule: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV or JSON: steps, sample_rate, noise_multiplier per row."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a picture: .png, .svg or .pdf."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every reading as CSV.")
    ] = None,
    points: Annotated[int, typer.Option(metavar="COUNT", help="At how many moments to read.")] = 40,
    menu: Annotated[bool, typer.Option(help="Price menus as well (takes seconds).")] = True,
    as_json: Json = False,
) -> None:
    """Compare epsilon under published rules, ours and the limit.

    PLD, the privacy loss distribution, is exact for what was fixed beforehand. Stacked filters open
    one small filter after another and count them. "no bound": the rule knows pure epsilons only.

    \b
    Example:
      dosimeter compare --delta 1e-6 --noise-multiplier 30 --steps 100 --no-menu
      dosimeter compare --delta 1e-6 --sample-rate 0.01 --noise-multiplier 1 \\
          --steps 500 --no-menu --plot rules.svg
    """
    from dosimeter.cli.progress import waiting
    from dosimeter.compare import compare as compared

    rows = _schedule(schedule, sample_rate, noise_multiplier, steps)
    _require_writable(plot, csv)
    with waiting("comparing") as tell:
        result = compared(rows, delta, points=points, menu=menu, progress=tell)
    if as_json:
        print_json(_plain(result))
    else:
        _print(result)
    if csv is not None:
        result.write_csv(csv)
        typer.echo(f"readings written to {csv}", err=as_json)
    if plot is not None:
        from dosimeter.compare.plot import save_plot

        save_plot(result, plot)
        typer.echo(f"picture written to {plot}", err=as_json)


def _require_writable(plot: Path | None, csv: Path | None) -> None:
    """Raises what would go wrong with the files, before the work instead of after it."""
    if plot is not None:
        import matplotlib  # noqa: F401

        from dosimeter.compare.plot import SUFFIXES

        if plot.suffix.lower() not in SUFFIXES:
            raise ValueError(f"plot must end in {', '.join(SUFFIXES)}, got {plot.name!r}")
    for file in (plot, csv):
        if file is not None and not file.parent.is_dir():
            raise ValueError(f"{file} must be in a folder that exists, got {str(file.parent)!r}")


def _schedule(
    file: Path | None, rate: float | None, noise: float | None, steps: int | None
) -> Schedule:
    from dosimeter.accounting.calibrate import mechanism
    from dosimeter.compare import read_schedule

    if file is not None:
        if not rate is noise is steps is None:
            raise ValueError(
                "schedule must not be given together with a mechanism, got --schedule and some of "
                "--sample-rate, --noise-multiplier and --steps"
            )
        try:
            return read_schedule(file)
        except FileNotFoundError as error:
            there = sorted(path.name for path in file.parent.glob("*") if path.suffix in _SCHEDULES)
            close = nearest(file.name, there)
            if close:
                error.add_note(f"did you mean {str(file.with_name(close))!r}?")
            raise
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} must be text of its kind, got {error}") from error
    if noise is None or steps is None:
        raise ValueError("schedule must be given, or both --noise-multiplier and --steps")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    return ((mechanism(1.0 if rate is None else rate, noise), steps),)


def _plain(result: Comparison) -> dict[str, object]:
    return {
        "delta": result.delta,
        "steps": result.steps,
        "rules": [
            {
                "rule": line.name,
                "validity": line.validity.name.lower(),
                "ours": line.ours,
                "epsilon": line.last,
                "epsilons": line.epsilons,
            }
            for line in result.lines
        ],
    }


def _print(result: Comparison) -> None:
    rows = []
    for line in result.lines:
        finite = math.isfinite(line.last)
        ratio = f"{line.last / result.limit.last:.3f}" if finite and result.limit.last else ""
        epsilon = at_most(line.last, padded=True) if finite else "no bound"
        rows.append((line.name, epsilon, ratio, line.validity))
    title = f"epsilon of {result.steps[-1]:,} steps at delta {exact(result.delta)}"
    bold = {line.name for line in result.lines if line.ours}
    print_rules(title, ("epsilon", "ratio"), rows, bold=bold)
