# SPDX-License-Identifier: Apache-2.0
"""Tables and bars for people. Only tables need rich, which takes its time to load."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from dosimeter.cli.costs import in_words
from dosimeter.rounding import at_most, exact, shortened

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dosimeter.accounting.classic import Validity
    from dosimeter.ledger import Receipt, Statement
    from dosimeter.ledger.activity import Activity

_BAR = 32


def bar(spent: float, limit: float, width: int = _BAR) -> str:
    """Spent against a limit; full only when nothing is left."""
    share = spent / limit if 0 < limit < math.inf and spent < math.inf else 1.0
    filled = width if share >= 1 else min(width - 1, math.ceil(width * share))
    return "█" * filled + "░" * (width - filled)


def print_budgets(statements: list[Statement]) -> None:
    """One line for each budget."""
    from rich.table import Table

    from dosimeter.ledger.receipts import shown

    table = Table(box=None, pad_edge=False)
    for column in ("name", "spent", "limit", "delta", "entries", "state"):
        table.add_column(column, justify="left" if column in ("name", "state") else "right")
    for one in statements:
        table.add_row(
            _text(shown(one.name)),
            at_most(one.epsilon, padded=True),
            "none" if one.limit == math.inf else exact(one.limit),
            _delta(one),
            f"{one.entries:,}",
            "DAMAGED" if one.problem else "closed" if one.closed else "open",
        )
    _print(table)


def print_statement(one: Statement, guarantee: str, share: float) -> None:
    """Everything about one budget but its journal; the bar shows the share that is used up."""
    from dosimeter.accounting.burned import share_words
    from dosimeter.ledger.receipts import shown

    lines = [("budget", shown(one.name)), ("kind", one.kind + (", closed" if one.closed else ""))]
    if one.limit < math.inf:
        lines.append(("used up", f"{bar(share, 1.0)} {share_words(share)}"))
        lines.append(("spent", f"epsilon {at_most(one.epsilon)} of {exact(one.limit)}"))
    else:
        lines.append(("spent", f"epsilon {at_most(one.epsilon)}"))
    lines += [
        ("delta", _delta(one)),
        ("entries", f"{one.entries:,}"),
        ("head", one.head),
        ("guarantee", shortened(guarantee)),
    ]
    for label, value in lines:
        typer.echo(f"{label:<11} {_printable(value)}")


def print_receipt(receipt: Receipt) -> None:
    """One line for a spend."""
    from dosimeter.ledger.receipts import shown

    again = " (recorded before, nothing spent now)" if receipt.replayed else ""
    line = (
        f"{shown(receipt.budget)}: entry {receipt.sequence}, {receipt.count:,} x {receipt.cost}, "
        f"epsilon {at_most(receipt.epsilon)}{again}"
    )
    typer.echo(_printable(line))


ENTRY = ("entry", "time", "kind", "count", "cost", "epsilon", "actor", "purpose")
"""What a line about entries says, after the name of the budget where there are several."""


def print_entries(rows: Iterable[Sequence[str]], *, named: bool) -> None:
    """A line for each row of `entry_row`, with the label of its block if asked."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("block", *ENTRY)[not named :]:
        right = column in ("entry", "count", "epsilon")
        table.add_column(
            column,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or column in ("time", "kind"),
        )
    for row in rows:
        cells = (row[0].rpartition("/")[2], *row[1:])[not named :]
        table.add_row(*(_text(cell[:200]) for cell in cells))
    _print(table)


def entry_row(activity: Activity) -> tuple[str, ...]:
    """What is said of entries that belong together: where, which, when, and what they came to."""
    from dosimeter.ledger.receipts import shown

    first, last, costs = activity.first, activity.last, activity.costs
    words = in_words(json.loads(costs[0])) if costs else ""
    return (
        shown(first.budget),
        str(first.sequence) + (f"-{last.sequence}" if last is not first else ""),
        first.time[:16].replace("T", " "),
        str(first.kind),
        f"{activity.runs:,}" if first.count else "",
        words + (f" and {len(costs) - 1} more" if len(costs) > 1 else ""),
        at_most(last.epsilon, padded=True),
        first.actor,
        first.purpose,
    )


def print_rules(
    title: str, headings: tuple[str, str], rows: list[tuple[str, str, str, Validity]]
) -> None:
    """Rules of accounting with two figures each, and when these hold."""
    from dosimeter.accounting.classic import Validity

    worth = {
        Validity.ANYTIME: "sound at any stop",
        Validity.FILTER: "sound as a filter",
        Validity.FIXED: "if fixed beforehand",
        Validity.UNSOUND: "[red]UNSOUND[/red]",
    }
    print_table(
        title,
        ("rule", *headings, "holds"),
        [(rule, one, other, worth[validity]) for rule, one, other, validity in rows],
        right=headings,
    )


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
) -> None:
    """A table under its title, without lines."""
    from rich.table import Table
    from rich.text import Text

    _print(Text(f"{title}\n"), style="bold", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*row)
    _print(table)


def plain(name: str) -> str:
    """A name as it may stand in a cell of `print_table`, on which it must not draw."""
    from rich.markup import escape

    return escape("".join(letter if letter.isprintable() else " " for letter in name))


def _delta(one: Statement) -> str:
    return exact(one.delta) + (f" + {exact(one.approx_delta)}" if one.approx_delta else "")


def _printable(value: str) -> str:
    """Text as it is, but for control characters, which could rewrite the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _text(value: str) -> Text:
    """Printable text, in which rich finds no marks of its own."""
    from rich.text import Text

    return Text(_printable(value))


def _print(what: Table | Text, **options: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(what, **options)
