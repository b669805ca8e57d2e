# SPDX-License-Identifier: Apache-2.0
"""Tables and bars for people. Only tables need rich, which takes its time to load."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
_WHOLE = 20
"""Words of no more letters are not broken."""


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
    from dosimeter.ledger.receipts import shown
    from dosimeter.rounding import share_words

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

    again = " then (recorded before, nothing spent now)" if receipt.replayed else ""
    line = (
        f"{shown(receipt.budget)}: entry {receipt.sequence}, {receipt.count:,} x {receipt.cost}, "
        f"epsilon {at_most(receipt.epsilon)}{again}"
    )
    typer.echo(_printable(line))


class Line(NamedTuple):
    """What is said of entries that belong together, each in a cell.

    Attributes:
        where: The budget, or the blocks.
        entry: Their places in its journal; empty if they differ from block to block.
        time: When the first was made.
        kind: What they record.
        count: How many steps or queries; empty where none.
        cost: What one of them costs.
        epsilon: What was spent after them.
        actor: Who.
        purpose: What for.
    """

    where: str
    entry: str
    time: str
    kind: str
    count: str  # type: ignore[assignment]  # no one counts the cells
    cost: str
    epsilon: str
    actor: str
    purpose: str

    @property
    def what(self) -> str:
        """Kind, count and cost in one."""
        kind = {"spend": "", "refuse": "refused"}.get(self.kind, self.kind)
        many = f"{self.count} x" if self.count not in ("", "1") else ""
        return " ".join(word for word in (kind, many, self.cost) if word)


def print_entries(lines: Sequence[Line], *, named: bool) -> None:
    """A line for each, with its blocks if asked, else with its place in the journal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    cells = [
        (one.where if named else one.entry, one.time, one.what, one.epsilon, one.actor, one.purpose)
        for one in lines
    ]
    rows = [[_printable(cell)[:200] for cell in row] for row in cells]
    heads = ("blocks" if named else "entry", "time", "what", "epsilon", "actor", "purpose")
    widths = _fitting([heads, *rows])
    for head, width in zip(heads, widths, strict=True):
        right = head in ("entry", "epsilon")
        table.add_column(head, justify="right" if right else "left", overflow="fold", width=width)
    for row in rows:
        row[1] = row[1][: widths[1]]  # the day, if there is no room for the time
        table.add_row(*map(_text, row))
    _print(table)


def _fitting(rows: Sequence[Sequence[str]]) -> list[int]:
    """How wide the columns of entries are where there is little room: words stay whole."""
    from rich.console import Console

    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    room = Console().width - 2 * (len(widths) - 1)
    words = [
        max(len(word) for cell in column for word in cell.split() or [""]) for column in columns
    ]
    _, time, what, _, actor, purpose = range(len(widths))
    for place, least in ((purpose, 20), (what, words[what]), (time, 10), (actor, 8), (purpose, 8)):
        over = sum(widths) - room
        if over > 0:
            narrow = widths[place] - over if place != time else least
            widths[place] = max(narrow, min(least, widths[place]))
    return widths


def entry_row(activity: Activity, among: Iterable[str]) -> Line:
    """What is said of entries that belong together.

    Args:
        activity: Them.
        among: All budgets that are looked at.
    """
    from dosimeter.ledger.blocks import spans
    from dosimeter.ledger.receipts import shown
    from dosimeter.ledger.usage import UNKNOWN

    first, budgets = activity.first, activity.budgets
    costs = list(dict.fromkeys(in_words(json.loads(cost)) for cost in activity.costs))
    places = {_places([e.sequence for e in activity.entries if e.budget == b]) for b in budgets}
    return Line(
        where=shown(budgets[0]) if len({*among}) == 1 else spans(budgets, among),
        entry=places.pop() if len(places) == 1 else "",
        time=first.time[:16].replace("T", " "),
        kind=str(first.kind),
        count=f"{activity.steps:,}" if first.count else "",
        cost=costs[0] + (f" and {len(costs) - 1} more" if len(costs) > 1 else "") if costs else "",
        epsilon=at_most(activity.epsilon, padded=True),
        actor=first.actor or UNKNOWN,
        purpose=first.purpose,
    )


def _places(sequences: Sequence[int]) -> str:
    first, last = sequences[0], sequences[-1]
    return str(first) if first == last else f"{first}-{last}"


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
    rows = list(rows)
    for place, heading in enumerate(headings):
        side: Literal["right", "left"] = "right" if heading in right else "left"
        whole = all(len(row[place]) <= _WHOLE and " " not in row[place] for row in rows)
        table.add_column(heading, justify=side, overflow="fold", no_wrap=whole)
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
