# SPDX-License-Identifier: Apache-2.0
"""`dosimeter allowance`: parts of budgets for people, for whoever owns a service's database."""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli.commands import Command
from dosimeter.cli.database import DEFAULT_DB, Db, office
from dosimeter.cli.options import Json, Name
from dosimeter.cli.output import Table, print_json
from dosimeter.rounding import at_most, exact

_BY = "dosimeter allowance"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Parts of a budget for people.

\b
Example:
  dosimeter allowance give patients cardio --to ada --to bob --epsilon 0.5
  dosimeter allowance list patients

For whoever has the database that a service serves. What a holder spends from the
budget through the service is spent in both, or in neither.""",
)
Label = Annotated[str, typer.Argument(help="What the allowance is called.")]


@app.command(cls=Command)
def give(
    name: Name,
    label: Label,
    to: Annotated[list[str], typer.Option(metavar="NAME", help="Who holds it; repeat.")],
    epsilon: Annotated[float, typer.Option(metavar="NUMBER", help="Epsilon never to be passed.")],
    db: Db = DEFAULT_DB,
) -> None:
    """Give a part of a budget to those with these names on tokens.

    \b
    Example:
      dosimeter allowance give patients cardio --to ada --to bob --epsilon 0.5
    """
    with office(db) as service:
        service.allowances.give(name, label, to, epsilon, by=_BY)
        typer.echo(f"{name}@{label}: epsilon {epsilon:g} for {', '.join(to)}")


@app.command("list", cls=Command)
def list_allowances(
    name: Name,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """List the allowances in a budget.

    \b
    Example:
      dosimeter allowance list patients
    """
    with office(db) as service:
        found = service.allowances.listed(name)
    if as_json:
        print_json(
            [
                {
                    "label": one.label,
                    "holders": list(one.holders),
                    "epsilon": one.statement.epsilon,
                    "limit": one.statement.limit,
                }
                for one in found
            ]
        )
        return
    Table(
        ("label", "spent", "limit", "holders"),
        [
            (
                one.label,
                at_most(one.statement.epsilon, padded=True),
                exact(one.statement.limit),
                ", ".join(one.holders),
            )
            for one in found
        ],
        right=("spent", "limit"),
    ).print()


@app.command(cls=Command)
def end(name: Name, label: Label, db: Db = DEFAULT_DB) -> None:
    """End an allowance; its holders then spend without it.

    \b
    Example:
      dosimeter allowance end patients cardio
    """
    with office(db) as service:
        service.allowances.end(name, label, by=_BY)
        typer.echo(f"{name}@{label}: ended")
