# SPDX-License-Identifier: Apache-2.0
"""What the pages show of a budget, worked out from where it stands and its last entries.

Everything here is read from a bounded number of entries, so that a page takes as long for a
journal of a million entries as for one of a thousand; the page says over how many it speaks.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dosimeter.ledger import Entry, Kind, Statement
from dosimeter.ledger.rules import LABEL
from dosimeter.rdp.cost import figure
from dosimeter.report.svg import Axes, Guide, Point, Trace, draw
from dosimeter.rounding import at_least, at_most, exact

PAID = (Kind.SPEND, Kind.RESERVE)
_MOST_POINTS = 300
_FEWEST_BLOCKS = 3
_EARLIEST_FORECAST = timedelta(hours=1)


@dataclass(frozen=True)
class Row:
    """A budget on the overview.

    Attributes:
        statement: Where it stands.
        burned: How much of the limit is used up, in percent; 0 where there is none.
        usual: The cost that was spent most often of late, in words; empty if there was none.
        left: How many more of those it affords; None if nothing says.
        last: The last spend; None if there was none.
        ends: The day on which it ends at the pace so far; None if nothing says.
    """

    statement: Statement
    burned: float
    usual: str
    left: int | None
    last: Entry | None
    ends: str | None


def short(cost: str) -> str:
    """A cost as it is written down, in a few words: its kind and its numbers."""
    plain = json.loads(cost)
    numbers = [
        figure(name, float(value)).removesuffix(".0")
        for name, value in plain.items()
        if isinstance(value, int | float)
    ]
    return " ".join([plain["kind"].replace("_", " "), ", ".join(numbers)]).strip()


def blocks(rows: Sequence[Row]) -> dict[str, list[tuple[str, int, Row]]]:
    """Budgets of several parts of one data set: label, heat from 0 to 4, and row, by prefix."""
    found: dict[str, list[tuple[str, int, Row]]] = {}
    for row in rows:
        prefix, slash, label = row.statement.name.rpartition("/")
        if slash and row.statement.kind == "filter" and label != LABEL:
            found.setdefault(prefix, []).append((label, heat(row.burned), row))
    return {prefix: parts for prefix, parts in found.items() if len(parts) >= _FEWEST_BLOCKS}


def heat(burned: float) -> int:
    """How hot a block is, from 0 to 4, by what is used up of it in percent."""
    return min(4, int(burned // 25))


def usual_cost(entries: Iterable[Entry]) -> str | None:
    """The cost, as it is written down, that was spent most often in some entries."""
    costs = Counter(entry.cost for entry in entries if entry.kind in PAID and entry.cost)
    return costs.most_common(1)[0][0] if costs else None


def last_spend(entries: Sequence[Entry]) -> Entry | None:
    """The last entry that paid for something."""
    return next((entry for entry in reversed(entries) if entry.kind in PAID), None)


def forecast(entries: Sequence[Entry], cost: str, left: int, now: datetime) -> str | None:
    """The day on which what is left of a cost is gone at the pace of some entries."""
    paid = [entry for entry in entries if entry.kind in PAID and entry.cost == cost]
    if not paid or left <= 0:
        return None
    span = now - _time(paid[0])
    if span < _EARLIEST_FORECAST:
        return None
    try:
        end = now + span * (left / sum(entry.count for entry in paid))
    except OverflowError:
        return None
    return end.date().isoformat()


def burn_down(statement: Statement, entries: Sequence[Entry]) -> str:
    """What was left over time, or what was read where there is no limit, as a picture."""
    if not entries:
        return ""
    start, end = _time(entries[0]), _time(entries[-1])
    unit, seconds = _unit((end - start).total_seconds())
    every = max(1, math.ceil(len(entries) / _MOST_POINTS))
    chosen = [*entries[:-1:every], entries[-1]]
    limited = statement.limit < math.inf
    points: list[Point] = []
    for entry in chosen:
        level = statement.limit - entry.epsilon if limited else entry.epsilon
        shown = at_least(max(0.0, level)) if limited else at_most(level)
        x = max(0.0, (_time(entry) - start).total_seconds() / seconds)
        says = f"{when(entry.time)}: ε {shown} {'left' if limited else 'spent'}, {entry.actor}"
        if points:  # it holds until the next entry
            points.append(Point(x, points[-1].y, says))
        points.append(Point(x, level, says))
    axes = Axes(f"{unit} since {when(entries[0].time)}", "ε left" if limited else "ε spent",
                whole=False)  # fmt: skip
    guides = [Guide(statement.limit, f"limit {exact(statement.limit)}")] if limited else []
    return draw(axes, [Trace(0, tuple(points))], guides)


def when(text: str) -> str:
    """A time of an entry for people, in UTC."""
    return text[:16].replace("T", " ")


def _time(entry: Entry) -> datetime:
    try:
        found = datetime.fromisoformat(entry.time)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _unit(seconds: float) -> tuple[str, float]:
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return name, size
    return "seconds", 1.0
