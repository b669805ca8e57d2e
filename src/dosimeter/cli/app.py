# SPDX-License-Identifier: Apache-2.0
"""The root command; each command, or group of commands, is a file beside this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typer.models import CommandInfo

from dosimeter.cli import (
    allowance,
    attack,
    audit,
    budget,
    budget_history,
    budget_plan,
    budget_transfer,
    budget_verify,
    commands,
    compare,
    costs,
    demo,
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
    cls=commands.Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo.demo,
    compare.compare,
    plan.plan,
    attack.attack,
    audit.audit,
    train.train,
    predict.predict,
    report.report,
    serve.serve,
):
    app.command(cls=commands.Command)(command)
for of_journal in (
    budget_history.history,
    budget_history.usage,
    budget_verify.verify,
    budget_transfer.export,
    budget_verify.anchor,
    budget_transfer.identity,
):
    budget.app.command(cls=commands.Command)(of_journal)
budget.app.command(cls=costs.CostCommand)(budget_plan.plan)
budget.app.command("import", cls=commands.Command)(budget_transfer.import_budget)
app.add_typer(allowance.app, name="allowance")
app.add_typer(budget.app, name="budget")
app.add_typer(stream.app, name="stream")
app.add_typer(token.app, name="token")


def narrow(words: Sequence[str]) -> None:
    """Leaves only the command that the words name, for a process that runs no other.

    Making them all takes longer than most of them run. Where a word names none, as in help, all
    stay that are there.
    """
    here: typer.Typer | None = app
    for word in words:
        groups = [one for one in here.registered_groups if one.name == word] if here else []
        commands = [one for one in here.registered_commands if _called(one) == word] if here else []
        if here is None or not (groups or commands):
            return
        here.registered_groups, here.registered_commands = groups, commands
        here = groups[0].typer_instance if groups else None


def _called(command: CommandInfo) -> str:
    return command.name or getattr(command.callback, "__name__", "").replace("_", "-")


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
