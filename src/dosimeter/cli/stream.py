# SPDX-License-Identifier: Apache-2.0
"""`dosimeter stream`: blocks that a rule makes as data arrive."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

import typer

from dosimeter.cli.budget_output import print_budgets, print_receipts, warn_of_nobody
from dosimeter.cli.commands import Command
from dosimeter.cli.costs import CostCommand, given_cost, menu_from
from dosimeter.cli.database import DEFAULT_DB, Db, opened
from dosimeter.cli.errors import EXIT_CODES
from dosimeter.cli.options import RECORD, Actor, Count, Json, Key, Neighbouring, Purpose
from dosimeter.cli.output import print_json

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""Budgets that new records bring with them.

\b
Example:
  dosimeter stream create visits --every day --epsilon 1 --delta 1e-6
  dosimeter stream spend visits --last 30 --gaussian 40
  dosimeter stream show visits --last 30

{EXIT_CODES}""",
)

Name = Annotated[str, typer.Argument(help="Name of the data set.")]
Last = Annotated[
    int | None,
    typer.Option(metavar="COUNT", min=1, help="Only the last so many blocks; all by default."),
]


@app.command(cls=Command)
def create(
    name: Name,
    every: Annotated[str, typer.Option(metavar="WORD", help="day, week, month or shard.")],
    epsilon: Annotated[float, typer.Option(metavar="NUMBER", help="Epsilon of each block.")],
    delta: Annotated[float, typer.Option(metavar="NUMBER", help="Delta of each block.")],
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="First day with a block; today by default.")
    ] = None,
    menu: Annotated[
        list[str] | None,
        typer.Option(metavar="COST", help="Declare a mechanism, as 'gaussian 20'; repeat."),
    ] = None,
    neighbours: Neighbouring = RECORD,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Content if it is there, by the same rule and terms.")
    ] = False,
    purpose: Purpose = "",
    actor: Actor = "",
    db: Db = DEFAULT_DB,
) -> None:
    """Write down the rule by which blocks are made.

    \b
    Example:
      dosimeter stream create visits --every day --epsilon 1 --delta 1e-6
      dosimeter stream create uploads --every shard --epsilon 1 --delta 1e-6
    """
    from dosimeter.neighbours import Neighbours

    options: dict[str, Any] = {"purpose": purpose, "actor": actor, "exist_ok": exist_ok}
    options["neighbours"] = Neighbours.named(neighbours)
    if menu:
        options["menu"] = menu_from(menu, neighbours)
    try:
        first = None if since is None else date.fromisoformat(since)
    except ValueError:
        raise ValueError(f"--since must be a day such as 2026-01-31, got {since!r}") from None
    with opened(db, make=True) as ledger:
        made = ledger.create_stream(name, every, epsilon, delta, since=first, **options)
        typer.echo(f"{made.name}: {made.rule.words()}, {len(made.blocks())} blocks so far")


@app.command(cls=Command)
def add(
    name: Name,
    labels: Annotated[list[str], typer.Argument(help="Shards that arrived.")],
    db: Db = DEFAULT_DB,
) -> None:
    """Give shards that arrived their blocks; those that have one keep it.

    \b
    Example:
      dosimeter stream add uploads 0001 0002
    """
    with opened(db) as ledger:
        stream = ledger.stream(name)
        made = [stream.add(label).statement() for label in labels]
        print_budgets(made, as_json=False)


@app.command(cls=Command)
def show(name: Name, last: Last = None, db: Db = DEFAULT_DB, as_json: Json = False) -> None:
    """Show where the blocks stand, made up to now.

    \b
    Example:
      dosimeter stream show visits --last 30
    """
    with opened(db) as ledger:
        print_budgets(ledger.stream(name).statements(last), as_json=as_json)


@app.command(cls=CostCommand)
def offer(
    context: typer.Context,
    name: Name,
    count: Count = 1,
    last: Last = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Print the blocks that would accept a spend; used-up ones drop out.

    \b
    Example:
      dosimeter stream offer visits --gaussian 40 --last 30
    """
    cost = given_cost(context)
    with opened(db) as ledger:
        found = ledger.stream(name).offered(cost, count, last=last)
    if as_json:
        print_json(found)
        return
    for one in found:
        typer.echo(one)


@app.command(cls=CostCommand)
def spend(
    context: typer.Context,
    name: Name,
    last: Annotated[int, typer.Option(metavar="COUNT", min=1, help="In the last so many blocks.")],
    count: Count = 1,
    key: Key = None,
    purpose: Purpose = "",
    actor: Actor = "",
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Spend in the last blocks, in all of them or in none.

    \b
    Example:
      dosimeter stream spend visits --last 30 --gaussian 40 --purpose "mean stay"
    """
    cost = given_cost(context)
    with opened(db) as ledger:
        note = {"purpose": purpose, "actor": actor}
        receipts = ledger.stream(name).spend(cost, count, last=last, key=key, **note)
    warn_of_nobody(actor, db)
    print_receipts(receipts.values(), as_json=as_json)
