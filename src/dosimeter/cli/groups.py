# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget usage`, and blocks of a budget named together."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.budget import Json
from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.outcome import print_json
from dosimeter.files import replaced

if TYPE_CHECKING:
    from dosimeter.ledger.usage import Use

_COLUMNS = ("budgets", "spends", "runs", "refused", "first", "last", "epsilon", "used up")


def usage(
    names: Annotated[
        list[str],
        typer.Argument(help="Budgets, or groups of blocks.", autocompletion=complete_budgets),
    ],
    by: Annotated[str, typer.Option(metavar="WORD", help="person, purpose or budget.")] = "person",
    block: Annotated[
        str | None, typer.Option(metavar="A..B", help="Only blocks from A to B of a group.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a .csv or an .html page.")
    ] = None,
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
    from dosimeter.cli import tables
    from dosimeter.ledger.usage import usage as used

    if out is not None and out.suffix.lower() not in (".csv", ".html"):
        raise ValueError(f"--out must end in .csv or .html, got {str(out)!r}")
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
        short = [(_plain(row[0]), *row[1:5], row[6][:10], *row[7:]) for row in rows]
        tables.print_table(title, (*head[:5], *head[6:]), short, right=right)
    else:
        page = _page(title, head, rows) if out.suffix.lower() == ".html" else _table(head, rows)
        replaced(out, lambda part: part.write_text(page, encoding="utf-8"))
        typer.echo(f"{len(rows)} rows are in {out}")


def _plain(name: str) -> str:
    from rich.markup import escape

    return escape("".join(letter if letter.isprintable() else " " for letter in name))


def _row(use: Use) -> tuple[str, ...]:
    from dosimeter.accounting.burned import share_words
    from dosimeter.rounding import at_most

    times = (time[:16].replace("T", " ") for time in (use.first, use.last))
    counts = (f"{n:,}" for n in (len(use.budgets), use.spends, use.runs, use.refused))
    return (use.who or "-", *counts, *times, at_most(use.epsilon), share_words(use.share))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def _page(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    from importlib import resources

    style = resources.files("dosimeter.report").joinpath("page.css").read_text(encoding="utf-8")
    heads = "".join(f"<th>{html.escape(word)}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        f"<header><h1>{html.escape(title)}</h1></header>\n<main>"
        '<p class="quiet">Epsilon and what is used up are what these spends would come to without '
        "all others, in the budget where that is most. Shares nearly add up, epsilons do not.</p>"
        f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></main></body></html>\n"
    )
