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
    from dosimeter.ledger import Entry, Receipt, Statement

_BAR = 32


def bar(spent: float, limit: float, width: int = _BAR) -> str:
    """Spent against a limit; full only when nothing is left."""
    share = spent / limit if 0 < limit < math.inf and spent < math.inf else 1.0
    filled = width if share >= 1 else min(width - 1, math.ceil(width * share))
    return "█" * filled + "░" * (width - filled)


def print_budgets(statements: list[Statement]) -> None:
    """One line for each budget."""
    from rich.table import Table

    from dosimeter.ledger.records import shown

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
    from dosimeter.ledger.records import shown

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
    from dosimeter.ledger.records import shown

    again = " (recorded before, nothing spent now)" if receipt.replayed else ""
    line = (
        f"{shown(receipt.budget)}: entry {receipt.sequence}, {receipt.count:,} x {receipt.cost}, "
        f"epsilon {at_most(receipt.epsilon)}{again}"
    )
    typer.echo(_printable(line))


def print_entries(entries: list[Entry]) -> None:
    """One line for each entry."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("entry", "time", "kind", "count", "cost", "epsilon", "actor", "purpose"):
        right = column in ("entry", "count", "epsilon")
        table.add_column(
            column,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or column in ("time", "kind"),
        )
    for entry in entries:
        table.add_row(
            str(entry.sequence),
            entry.time[:16].replace("T", " "),
            str(entry.kind),
            f"{entry.count:,}" if entry.count else "",
            _text(in_words(json.loads(entry.cost)) if entry.cost else ""),
            at_most(entry.epsilon, padded=True),
            _text(entry.actor),
            _text(entry.purpose[:200]),
        )
    _print(table)


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
