# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget`: durable budgets from the command line."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import asdict
from typing import Annotated, Any

import typer

from dosimeter.cli.budget_output import (
    print_budgets,
    print_receipts,
    print_statement,
    warn_of_nobody,
)
from dosimeter.cli.commands import Command, Group
from dosimeter.cli.costs import CostCommand, given_cost, menu_from
from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.errors import EXIT_CODES, ExitCode
from dosimeter.cli.options import (
    RECORD,
    Actor,
    Block,
    Count,
    Json,
    Key,
    Name,
    Neighbouring,
    Purpose,
)
from dosimeter.cli.output import print_json

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""Durable privacy budgets, shared by many.

\b
Example:
  dosimeter budget create patients --epsilon 3 --delta 1e-6
  dosimeter budget spend patients --gaussian 20
  dosimeter budget show patients

{EXIT_CODES}""",
)


@app.command(cls=Command)
def create(
    name: Name,
    delta: Annotated[float, typer.Option(metavar="NUMBER", help="Delta of the guarantee.")],
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Epsilon never to be passed; none for an odometer."),
    ] = None,
    odometer: Annotated[bool, typer.Option("--odometer", help="Only read, no limit.")] = False,
    approx_delta: Annotated[
        float, typer.Option(metavar="NUMBER", help="Cap on the deltas of costs.")
    ] = 0.0,
    menu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COST",
            help="Declare a mechanism, as 'gaussian 20'; repeat, the most used first.",
        ),
    ] = None,
    neighbours: Neighbouring = RECORD,
    block: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BLOCK", help="Make NAME/BLOCK for a part of the data; repeat for each part."
        ),
    ] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Content if it is there, on the same terms.")
    ] = False,
    purpose: Purpose = "",
    actor: Actor = "",
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Make a budget, or one for each block.

    \b
    Example:
      dosimeter budget create patients --epsilon 3 --delta 1e-6
      dosimeter budget create clicks --odometer --delta 1e-6
      dosimeter budget create scans --epsilon 2 --delta 1e-6 --menu "gaussian 50"
    """
    from dosimeter.neighbours import Neighbours

    if odometer == (epsilon is not None):
        got = "both" if odometer else "neither"
        raise ValueError(f"budget must have either --epsilon or --odometer, got {got}")
    if odometer and block:
        raise ValueError(f"--block must come with --epsilon, got --odometer and block {block[0]!r}")
    with opened(db, make=True) as ledger:
        note: dict[str, Any] = dict(approx_delta=approx_delta, purpose=purpose, actor=actor)
        note["exist_ok"] = exist_ok
        note["neighbours"] = Neighbours.named(neighbours)
        if menu:
            note["menu"] = menu_from(menu, neighbours)
            typer.echo("pricing the menu; this takes seconds, once", err=True)
        if epsilon is None:
            made = [ledger.create_odometer(name, delta, **note)]
        elif block:
            made = ledger.create_blocks(name, block, epsilon, delta, **note)
        else:
            made = [ledger.create(name, epsilon, delta, **note)]
        print_budgets([budget.statement() for budget in made], as_json=as_json)


@app.command("list", cls=Command)
def list_budgets(
    after: Annotated[
        str | None, typer.Option(metavar="NAME", help="Go on after this budget of the list.")
    ] = None,
    most: Annotated[int, typer.Option(metavar="COUNT", min=1, help="How many at most.")] = 1000,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """List the budgets, the oldest first.

    \b
    Example:
      dosimeter budget list --json
    """
    with opened(db) as ledger:
        statements = ledger.statements(after=after, most=most)
        print_budgets(statements, as_json=as_json)
        if not statements and after is None:
            typer.echo("no budgets yet; dosimeter budget create makes one", err=True)
        if len(statements) == most:
            last = shlex.quote(statements[-1].name)
            typer.echo(f"there may be more: dosimeter budget list --after {last}", err=True)
        if any(statement.problem for statement in statements):
            raise typer.Exit(ExitCode.DOES_NOT_VERIFY)


@app.command(cls=Command)
def show(name: Name, block: Block = None, db: Db = DEFAULT_DB, as_json: Json = False) -> None:
    """Show a budget and what it affords, or blocks of a group.

    \b
    Example:
      dosimeter budget show patients
      dosimeter budget show visits --block 2026-01..2026-06
    """
    with opened(db) as ledger:
        blocks = members(ledger, name, block)
        if blocks != [name]:
            print_budgets([ledger[one].statement() for one in blocks], as_json=as_json)
            return
        budget = ledger[name]
        statement = budget.statement()
        spent = [entry for entry in budget.history() if entry.cost and entry.kind != "refuse"]
        last = spent[-1] if spent else None
        affordable = None if last is None else budget.affordable(last.priced())
        if as_json:
            print_json(
                {
                    **asdict(statement),
                    "spent_share": budget.spent_share,
                    "guarantee": str(budget.guarantee()),
                    "last_cost": last and json.loads(last.cost or "null"),
                    "affordable": affordable,
                }
            )
        else:
            print_statement(statement, str(budget.guarantee()), budget.spent_share)
            if last is not None and statement.limit < math.inf:
                typer.echo(f"affordable  {affordable:,} more of {last.priced()}")


@app.command(cls=CostCommand)
def spend(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(help="Names; all are spent from, or none.", autocompletion=complete_budgets),
    ],
    count: Count = 1,
    key: Key = None,
    block: Block = None,
    purpose: Purpose = "",
    actor: Actor = "",
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Spend before the data are touched.

    Without --key the same command spends again. Blocks of a group are named by --block, so that
    nobody spends in all of them by a slip.

    \b
    Example:
      dosimeter budget spend patients --gaussian 20 --purpose "mean age"
      dosimeter budget spend visits --block 2026-01..2026-06 --gaussian 20
      dosimeter budget spend patients --laplace 10 --count 3 --key job-12
    """
    asked = given_cost(context)
    with opened(db) as ledger:
        if block is not None:
            names = [one for name in names for one in members(ledger, name, block)]
        costs = dict.fromkeys(names, asked)
        receipts = ledger.spend_all(costs, count, key=key, purpose=purpose, actor=actor)
        warn_of_nobody(actor, db)
        print_receipts(receipts.values(), as_json=as_json)


@app.command(cls=Command)
def close(
    name: Name,
    block: Block = None,
    purpose: Purpose = "",
    actor: Actor = "",
    db: Db = DEFAULT_DB,
) -> None:
    """Stop a budget, or blocks, for good; they stay readable.

    \b
    Example:
      dosimeter budget close clicks --purpose "study ended"
    """
    from dosimeter.ledger.receipts import shown

    with opened(db) as ledger:
        for one in [name] if block is None else members(ledger, name, block):
            ledger[one].close(purpose=purpose, actor=actor)
            typer.echo(f"{shown(one)}: closed")
