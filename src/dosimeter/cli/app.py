# SPDX-License-Identifier: Apache-2.0
"""The root command; each command, or group of commands, is a file beside this one."""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli import (
    attack,
    audit,
    budget,
    compare,
    demo,
    groups,
    journal,
    outcome,
    plan,
    predict,
    report,
    serve,
    stream,
    token,
    train,
)

app = typer.Typer(
    name="dosimeter",
    cls=outcome.Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo.demo,
    compare.compare,
    plan.plan,
    audit.audit,
    train.train,
    predict.predict,
    report.report,
    serve.serve,
):
    app.command(cls=outcome.Command)(command)
for of_journal in (
    journal.history,
    groups.usage,
    journal.verify,
    journal.export,
    journal.anchor,
    journal.identity,
):
    budget.app.command(cls=outcome.Command)(of_journal)
budget.app.command("import", cls=outcome.Command)(journal.import_budget)
app.add_typer(attack.app, name="attack")
app.add_typer(budget.app, name="budget")
app.add_typer(stream.app, name="stream")
app.add_typer(token.app, name="token")


def _print_version(wanted: bool) -> None:
    if wanted:
        from dosimeter import __version__

        typer.echo(f"dosimeter {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of errors; may stand anywhere.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Spend a differential-privacy budget adaptively, and stop when you like.

    \b
    Example:
      dosimeter demo --repeats 1
    """
