# SPDX-License-Identifier: Apache-2.0
"""`dosimeter train`: private training from a config file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli.database import require_there
from dosimeter.cli.options import Json
from dosimeter.cli.output import print_json
from dosimeter.rounding import at_most, exact, shortened

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def train(
    config: Annotated[Path, typer.Argument(help="What to train, on what, how privately.")] = Path(
        "config.toml"
    ),
    init: Annotated[
        bool, typer.Option("--init", help="Write a config that runs as it is, and stop.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="With --init: a table to write a config for."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With --data: its column of labels.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the output folder.")
    ] = False,
    watch: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Budget service that shows the run and can stop it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train privately, as a config file says, without writing Python.

    Ctrl-C stops after the step at hand and keeps a checkpoint; --resume goes on from it. The
    results are weights, history, guarantee and a report, in the folder that the config names.

    \b
    Example:
      dosimeter train --init
      dosimeter train config.toml
      dosimeter train --init mine.toml --data patients.csv --label diagnosis

    Exit codes: 0 done; 2 wrong config, file or value; 130 interrupted, can be resumed;
    others as in dosimeter budget --help.
    """
    if data is not None and not (init and label):
        raise ValueError("--data must come with --init and --label, the column of labels")
    if label is not None and data is None:
        raise ValueError(f"--label must come with --init and --data, got {label!r} alone")
    if init:
        _init(config, data, label or "")
        return
    from dosimeter.report import write

    result = _run(config, resume=resume, quiet=as_json, watch=watch)
    folder = Path(result["folder"])
    write([folder], folder / "report.html")
    if as_json:
        print_json(result)
    else:
        _print(result, config)
    if not result["finished"]:
        raise typer.Exit(INTERRUPTED)


def _init(config: Path, data: Path | None, label: str) -> None:
    from dosimeter.runs import STARTER, starter_for

    if data is None:
        _write_starter(config, STARTER)
        return
    from dosimeter.data import read_columns

    if not data.is_file():
        raise FileNotFoundError(f"--data must be a CSV file, got no file at {str(data)!r}")
    try:
        columns = read_columns(data, label)
    except ValueError as error:
        raise ValueError(f"--data {str(data)!r}: {error}") from error
    text = starter_for(columns, path=data, label=label, config=config)
    _write_starter(config, text, todo="fill in classes and bounds, then ")


def _write_starter(path: Path, text: str, *, todo: str = "") -> None:
    """Writes a config to begin with, where there is none."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            typer.echo(f"{path} is there; {todo}start it with: dosimeter train {path}")
            return
        raise ValueError(
            f"config must be a new file, got {str(path)!r}, which is there; name another"
        ) from error
    typer.echo(f"wrote {path}; {todo}start it with: dosimeter train {path}")


def _run(path: Path, *, resume: bool, quiet: bool, watch: str | None) -> dict[str, Any]:
    from dosimeter.runs import read_config

    config, text = read_config(path)
    url = config.budget.ledger or os.environ.get("DOSIMETER_DB")
    if config.budget.kind == "ledger" and url:
        require_there(url, "budget.ledger")
    # Only now, for torch takes seconds to load: a typo is told at once.
    from dosimeter.runs.run import train

    return train(
        config,
        text,
        resume=resume,
        progress=not quiet,
        watch=watch,
        note=lambda words: typer.echo(words, err=True),
    )


def _print(result: dict[str, Any], config: Path) -> None:
    of = "" if result["limit"] is None else f" of {exact(result['limit'])}"
    right = result["accuracy"]
    accuracy = "" if right is None else f", {right:.1%} of the public records right"
    typer.echo(
        f"{result['epochs']} epochs, {result['steps']} steps, "
        f"epsilon {at_most(result['epsilon'])}{of}{accuracy}; ended because {result['ended']}"
    )
    typer.echo(f"guarantee: {shortened(result['guarantee'])}")
    typer.echo(f"results are in {result['folder']}; guarantee.txt says what is promised")
    typer.echo(f"report: {(Path(result['folder']) / 'report.html').resolve().as_uri()}")
    if not result["finished"]:
        typer.echo(f"go on with: dosimeter train {config} --resume")
