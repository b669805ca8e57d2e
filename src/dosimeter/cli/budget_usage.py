# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget usage`, and blocks of a budget named together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.errors import print_json
from dosimeter.cli.options import Block, Json, Out

if TYPE_CHECKING:
    from dosimeter.ledger import Statement
    from dosimeter.ledger.usage import Use

_COLUMNS = ("used up", "epsilon", "spends", "steps", "refused", "budgets", "last", "first")
_TEXTS = ("budgets", "last", "first")


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
    from dosimeter.cli import pages
    from dosimeter.ledger.usage import used, words

    pages.require_known(out)
    asked = words(by)
    with opened(db) as ledger:
        chosen = [one for name in names for one in members(ledger, name, block)]
        standing = [ledger[name].statement() for name in chosen]
        journals = [ledger[one.name].history(one.entries) for one in standing]
    found, whole = used(journals, asked), used(journals, ())
    if as_json:
        print_json(
            [{"who": use.who, **asdict(use), "budgets": sorted(use.budgets)} for use in found]
        )
        return
    title = f"{', '.join(names)}: use by {' and '.join(asked)}, each as if alone"
    terms, head = _terms(standing), [*asked, *_COLUMNS]
    rows = [_row(use, use.names, chosen) for use in found]
    total = [_row(use, ("total", *[""] * (len(asked) - 1)), chosen) for use in whole]
    if out is None:
        _print(f"{title}\n{terms}", head, rows + total[: len(rows) - 1], alone=len(chosen) == 1)
        return
    plain = [_plain(use, chosen) for use in found]
    pages.write_csv(out, [*asked, "share", *_COLUMNS[1:]], plain)
    typer.echo(f"{len(found)} rows are in {out}")


def _print(title: str, head: list[str], rows: list[list[str]], *, alone: bool) -> None:
    """On a terminal, which is narrow, and on which names must not draw."""
    from dosimeter.cli import output

    left_out = ("first", "budgets" if alone else "last")
    kept = [place for place, name in enumerate(head) if name not in left_out]
    output.print_table(
        title,
        [head[place] for place in kept],
        [[output.plain(row[place]) for place in kept] for row in rows],
        right={*_COLUMNS} - {*_TEXTS},
    )


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


def _row(use: Use, names: Sequence[str], among: Sequence[str]) -> list[str]:
    from dosimeter.ledger.blocks import spans
    from dosimeter.rounding import at_most, share_words

    days = (time[:10] for time in (use.last, use.first))
    counts = (f"{n:,}" for n in (use.spends, use.steps, use.refused))
    figures = (share_words(use.share), at_most(use.epsilon))
    return [*names, *figures, *counts, spans(use.budgets, among), *days]


def _plain(use: Use, among: Sequence[str]) -> list[object]:
    """The same for programs: numbers as numbers."""
    from dosimeter.ledger.blocks import spans

    counts = (use.share, use.epsilon, use.spends, use.steps, use.refused)
    return [*use.names, *counts, spans(use.budgets, among), use.last, use.first]
