# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget usage`, and blocks of a budget named together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.options import Block, Json, Out
from dosimeter.cli.output import Table, print_json, require_csv

if TYPE_CHECKING:
    from dosimeter.ledger import Statement
    from dosimeter.ledger.usage import Use


def usage(
    names: Annotated[
        list[str],
        typer.Argument(help="Budgets, or groups of blocks.", autocompletion=complete_budgets),
    ],
    by: Annotated[
        str, typer.Option(metavar="WORDS", help="person, purpose or budget; or person,purpose.")
    ] = "person",
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
      dosimeter budget usage visits --by person,purpose --out usage.csv
    """
    from dosimeter.ledger.usage import used, words

    require_csv(out)
    asked = words(by)
    with opened(db) as ledger:
        chosen = [one for name in names for one in members(ledger, name, block)]
        standing = [ledger[name].statement() for name in chosen]
        journals = [ledger[one.name].history(one.entries) for one in standing]
    found = used(journals, asked)
    if as_json:
        print_json(
            [{"who": use.who, **asdict(use), "budgets": sorted(use.budgets)} for use in found]
        )
        return
    if out is not None:
        numbers = ("share", "epsilon", "spends", "steps", "refused")
        rows = [_plain(use, chosen) for use in found]
        Table((*asked, *numbers, "budgets", "last", "first"), rows).write_csv(out)
        typer.echo(f"{len(rows)} rows are in {out}")
        return
    rows = [[*use.names, *_row(use, chosen)] for use in found]
    if len(rows) > 1:
        whole = used(journals, ())
        rows += [["total", *[""] * (len(asked) - 1), *_row(use, chosen)] for use in whole]
    numbers = ("used up", "epsilon", "spends", "steps", "refused")
    Table(
        (*asked, *numbers, "budgets" if chosen[1:] else "last"),
        rows,
        right=numbers,
        title=f"{', '.join(names)}: use by {' and '.join(asked)}, each as if alone\n"
        f"{_terms(standing)}",
    ).print()


def _terms(standing: Sequence[Statement]) -> str:
    """Which budgets these are, and their limits."""
    from dosimeter.ledger.blocks import spans
    from dosimeter.rounding import exact

    names = [one.name for one in standing]
    what = f"{len(names):,} budgets: {spans(names, names)}" if names[1:] else names[0]
    limits = sorted({one.limit for one in standing})
    said = ["no limit" if one == math.inf else f"epsilon {exact(one)}" for one in limits]
    limit = said[0] if len(said) == 1 else f"{said[0]} to {said[-1]}"
    deltas = ", ".join(exact(delta) for delta in sorted({one.delta for one in standing}))
    of = "limit of each" if names[1:] else "limit"
    return f"{what}; {of}: {limit} at delta {deltas}"


def _row(use: Use, among: Sequence[str]) -> list[object]:
    """Return the cells of a use for people; a single budget leaves room for the last day."""
    from dosimeter.ledger.blocks import spans
    from dosimeter.rounding import at_most, share_words

    counts = (f"{n:,}" for n in (use.spends, use.steps, use.refused))
    where = spans(use.budgets, among) if among[1:] else use.last[:10]
    return [share_words(use.share), at_most(use.epsilon), *counts, where]


def _plain(use: Use, among: Sequence[str]) -> list[object]:
    """Return the cells of a use in a CSV file, numbers as numbers."""
    from dosimeter.ledger.blocks import spans

    numbers = (use.share, use.epsilon, use.spends, use.steps, use.refused)
    return [*use.names, *numbers, spans(use.budgets, among), use.last, use.first]
