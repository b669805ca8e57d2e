# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget history` and `usage`: what journals hold, by entry and by person."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.costs import in_words
from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.options import Block, Json, Name, Out
from dosimeter.cli.output import Table, print_json, require_csv
from dosimeter.rounding import at_most, exact, share_words

if TYPE_CHECKING:
    from dosimeter.ledger import Statement
    from dosimeter.ledger.activity import Activity
    from dosimeter.ledger.records import Entry
    from dosimeter.ledger.usage import Use

_COLUMNS = ("kind", "actor", "purpose", "cost", "count", "epsilon", "budget", "entry", "time")


def history(
    name: Name,
    last: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, max=1_000_000, help="How many lines; 20, or all in FILE."
        ),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Every entry in a line of its own.")] = False,
    block: Block = None,
    out: Out = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Show the last lines of a journal, or those of a group.

    Spends by one person for one purpose, such as the steps of a training run, are one line, also
    in several blocks. Every entry is in a .csv, in JSON and with --each.

    \b
    Example:
      dosimeter budget history patients --last 5
      dosimeter budget history visits --block 2026-01..2026-06 --out journal.csv
    """
    from dosimeter.ledger.activity import Activity, activities

    require_csv(out)
    last = last or (20 if out is None else 1_000_000)
    with opened(db) as ledger:
        budgets = [ledger[one] for one in members(ledger, name, block)]
        found = [
            entry
            for budget in budgets
            for entry in budget.history(last if as_json else budget.statement().entries)
        ]
    if len(budgets) > 1:
        found.sort(key=lambda entry: (entry.time, entry.budget, entry.sequence))
    if as_json:
        plain = [{**e._asdict(), "cost": json.loads(e.cost or "null")} for e in found[-last:]]
        print_json(plain)
        return
    lines = [Activity([entry]) for entry in found] if each else activities(found)
    kept = lines[-last:]
    if out is not None:
        entries = [entry for line in kept for entry in line.entries]
        Table(_COLUMNS, map(_entry_cells, entries)).write_csv(out)
        typer.echo(f"{len(kept)} lines about {len(entries)} entries are in {out}")
        return
    _print_activities(kept, [budget.name for budget in budgets])
    if len(lines) > last:
        cut = len(lines) - last
        many = "1 earlier line" if cut == 1 else f"{cut:,} earlier lines"
        typer.echo(f"{many}; --last {len(lines)} shows all", err=True)


def _print_activities(lines: Sequence[Activity], names: Sequence[str]) -> None:
    """Print a row for each activity in the budgets of these names."""
    from dosimeter.ledger.blocks import spans
    from dosimeter.ledger.usage import UNKNOWN

    several = len(names) > 1
    Table(
        ("blocks" if several else "entry", "time", "what", "epsilon", "actor", "purpose"),
        [
            (
                spans(line.budgets, names) if several else _places(line),
                line.first.time[:16].replace("T", " "),
                _what(line),
                at_most(line.epsilon, padded=True),
                line.first.actor or UNKNOWN,
                line.first.purpose,
            )
            for line in lines
        ],
        right=("entry", "epsilon"),
    ).print()


def _places(line: Activity) -> str:
    """Return the first and the last place of entries in the journal."""
    first, last = line.first.sequence, line.last.sequence
    return str(first) if first == last else f"{first}-{last}"


def _what(line: Activity) -> str:
    """Return the kind of an activity, its steps and its cost."""
    kind = {"spend": "", "refuse": "refused"}.get(line.first.kind, line.first.kind)
    many = f"{line.steps:,} x" if line.first.count and line.steps != 1 else ""
    costs = list(dict.fromkeys(in_words(json.loads(cost)) for cost in line.costs))
    more = f"and {len(costs) - 1} more" if len(costs) > 1 else ""
    return " ".join(word for word in (kind, many, *costs[:1], more) if word)


def _entry_cells(entry: Entry) -> list[object]:
    """Return the cells of an entry in a CSV file, numbers as numbers."""
    cost = in_words(json.loads(entry.cost)) if entry.cost else ""
    return [entry.kind, entry.actor, entry.purpose, cost, entry.count, entry.epsilon,
            entry.budget, entry.sequence, entry.time]  # fmt: skip


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
        rows = [_use_numbers(use, chosen) for use in found]
        Table((*asked, *numbers, "budgets", "last", "first"), rows).write_csv(out)
        typer.echo(f"{len(rows)} rows are in {out}")
        return
    rows = [[*use.names, *_use_words(use, chosen)] for use in found]
    if len(rows) > 1:
        whole = used(journals, ())
        rows += [["total", *[""] * (len(asked) - 1), *_use_words(use, chosen)] for use in whole]
    numbers = ("used up", "epsilon", "spends", "steps", "refused")
    Table(
        (*asked, *numbers, "budgets" if chosen[1:] else "last"),
        rows,
        right=numbers,
        title=f"{', '.join(names)}: use by {' and '.join(asked)}, each as if alone\n"
        f"{_terms(standing)}",
    ).print()


def _terms(standing: Sequence[Statement]) -> str:
    """Return the budgets and their limits in words."""
    from dosimeter.ledger.blocks import spans

    names = [one.name for one in standing]
    what = f"{len(names):,} budgets: {spans(names, names)}" if names[1:] else names[0]
    limits = sorted({one.limit for one in standing})
    said = ["no limit" if one == math.inf else f"epsilon {exact(one)}" for one in limits]
    limit = said[0] if len(said) == 1 else f"{said[0]} to {said[-1]}"
    deltas = ", ".join(exact(delta) for delta in sorted({one.delta for one in standing}))
    of = "limit of each" if names[1:] else "limit"
    return f"{what}; {of}: {limit} at delta {deltas}"


def _use_words(use: Use, among: Sequence[str]) -> list[object]:
    """Return the cells of a use for people; a single budget leaves room for the last day."""
    from dosimeter.ledger.blocks import spans

    counts = (f"{n:,}" for n in (use.spends, use.steps, use.refused))
    where = spans(use.budgets, among) if among[1:] else use.last[:10]
    return [share_words(use.share), at_most(use.epsilon), *counts, where]


def _use_numbers(use: Use, among: Sequence[str]) -> list[object]:
    """Return the cells of a use in a CSV file, numbers as numbers."""
    from dosimeter.ledger.blocks import spans

    numbers = (use.share, use.epsilon, use.spends, use.steps, use.refused)
    return [*use.names, *numbers, spans(use.budgets, among), use.last, use.first]
