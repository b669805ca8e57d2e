# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget usage`, and blocks of a budget named together."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.budget import Block, Json
from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.outcome import print_json
from dosimeter.cli.pages import Out

if TYPE_CHECKING:
    from dosimeter.ledger.usage import Use

_NOTE = (
    "Epsilon and what is used up are what these spends would come to without all others, in the "
    "budget where that is most. Shares nearly add up, epsilons do not."
)
_COLUMNS = ("budgets", "spends", "runs", "refused", "first", "last", "epsilon", "used up")


def usage(
    names: Annotated[
        list[str],
        typer.Argument(help="Budgets, or groups of blocks.", autocompletion=complete_budgets),
    ],
    by: Annotated[str, typer.Option(metavar="WORD", help="person, purpose or budget.")] = "person",
    block: Block = None,
    out: Out = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Show who used how much of budgets, and what for.

    A training run is one line by purpose. Epsilon and what is used up are what these spends would
    come to without all others: shares nearly add up, epsilons do not.

    \b
    Example:
      dosimeter budget usage patients --by purpose
      dosimeter budget usage patients clicks --out usage.html
    """
    from dosimeter.cli import pages, tables
    from dosimeter.ledger.usage import usage as used

    pages.require_known(out)
    with opened(db) as ledger:
        chosen = [one for name in names for one in members(ledger, name, block)]
        found = used([ledger[name] for name in chosen], by)
    if as_json:
        print_json([{**asdict(use), "budgets": sorted(use.budgets)} for use in found])
        return
    head, rows = (by, *_COLUMNS), [_row(use) for use in found]
    title = f"{', '.join(names)}: use by {by}, each as if alone"
    if out is None:
        # A terminal is narrow, and names must not draw on it.
        right = {*_COLUMNS} - {"last"}
        short = [(tables.plain(row[0]), *row[1:5], row[6][:10], *row[7:]) for row in rows]
        tables.print_table(title, (*head[:5], *head[6:]), short, right=right)
    else:
        pages.write(out, title, _NOTE, head, rows)
        typer.echo(f"{len(rows)} rows are in {out}")


def _row(use: Use) -> tuple[str, ...]:
    from dosimeter.accounting.burned import share_words
    from dosimeter.rounding import at_most

    times = (time[:16].replace("T", " ") for time in (use.first, use.last))
    counts = (f"{n:,}" for n in (len(use.budgets), use.spends, use.runs, use.refused))
    return (use.who or "-", *counts, *times, at_most(use.epsilon), share_words(use.share))
