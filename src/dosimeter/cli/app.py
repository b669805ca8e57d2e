# SPDX-License-Identifier: Apache-2.0
"""The root command; each group of commands is a file beside this one."""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli import budget, compare, outcome, train

app = typer.Typer(
    name="dosimeter",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Spend a differential-privacy budget adaptively, and stop when you like.",
)
app.add_typer(budget.app, name="budget")
app.command("compare")(compare.compare)
app.command("train")(train.train)


def _print_version(wanted: bool) -> None:
    if wanted:
        from dosimeter import __version__

        typer.echo(f"dosimeter {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Spend a differential-privacy budget adaptively, and stop when you like."""
    outcome.debug = debug
