# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget`: journals, to read, to replay, and to take elsewhere."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.costs import in_words
from dosimeter.cli.database import DEFAULT_DB, Db, members, opened
from dosimeter.cli.options import Block, Json, Name, Out
from dosimeter.cli.output import Table, print_json, require_csv
from dosimeter.cli.progress import waiting

if TYPE_CHECKING:
    from dosimeter.ledger.activity import Activity
    from dosimeter.ledger.records import Entry

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
        Table(_COLUMNS, map(_plain, entries)).write_csv(out)
        typer.echo(f"{len(kept)} lines about {len(entries)} entries are in {out}")
        return
    _print(kept, [budget.name for budget in budgets])
    if len(lines) > last:
        cut = len(lines) - last
        many = "1 earlier line" if cut == 1 else f"{cut:,} earlier lines"
        typer.echo(f"{many}; --last {len(lines)} shows all", err=True)


def _print(lines: Sequence[Activity], names: Sequence[str]) -> None:
    """Print a row for each activity in the budgets of these names."""
    from dosimeter.ledger.blocks import spans
    from dosimeter.ledger.usage import UNKNOWN
    from dosimeter.rounding import at_most

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


def _plain(entry: Entry) -> list[object]:
    """Return the cells of an entry in a CSV file, numbers as numbers."""
    cost = in_words(json.loads(entry.cost)) if entry.cost else ""
    return [entry.kind, entry.actor, entry.purpose, cost, entry.count, entry.epsilon,
            entry.budget, entry.sequence, entry.time]  # fmt: skip


def identity(db: Db = DEFAULT_DB) -> None:
    """Print the name of this ledger, for moves from afar.

    \b
    Example:
      dosimeter budget identity
    """
    with opened(db) as ledger:
        typer.echo(ledger.identity)


def export(
    name: Name,
    block: Block = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file.")
    ] = None,
    move: Annotated[
        str | None,
        typer.Option(
            "--move",
            metavar="URL",
            help="Close it here, to go on in the ledger at a URL, or of an identity.",
        ),
    ] = None,
    db: Db = DEFAULT_DB,
) -> None:
    """Write the journal of a budget, or of a group, as JSON.

    One line for each entry, and a last one that counts them; journals follow one another.

    \b
    Example:
      dosimeter budget export patients --move other.db -o patients.jsonl
      dosimeter budget export visits -o visits.jsonl
    """
    with opened(db) as ledger:
        names = members(ledger, name, block)
        to = None if move is None else _identity_of(move)
        # A file that is there is never overwritten, and is made before a budget is closed.
        try:
            file = output.open("x", encoding="ascii", newline="\n") if output else None
        except FileExistsError:
            raise ValueError(
                f"--output must be a new file, got {str(output)!r}, which is there; name another, "
                "or remove it first: an export never writes over a file"
            ) from None
        with file or nullcontext(sys.stdout) as target:
            for one in names:
                for line in ledger.export(one, to=to):
                    target.write(line + "\n")


def _identity_of(ledger: str) -> str:
    """The identity of the ledger at a URL, which is made if need be, or the one that is given."""
    if re.fullmatch("[0-9a-f]{32}", ledger):
        return ledger
    with opened(ledger, make=True) as other:
        return other.identity


def import_budget(
    source: Annotated[Path, typer.Argument(help="A file that export wrote, or - for input.")],
    db: Db = DEFAULT_DB,
) -> None:
    """Add budgets from an export, after replaying every line.

    \b
    Example:
      dosimeter budget import patients.jsonl --db other.db
    """
    file = nullcontext(sys.stdin) if str(source) == "-" else source.open(encoding="ascii")
    from dosimeter.ledger.receipts import shown
    from dosimeter.ledger.transfer import journals

    with file as lines, opened(db, make=True) as ledger, waiting("replaying") as tell:
        try:
            for journal in journals(lines):
                # How many lines there are is known at the end only.
                budget = ledger.import_journal(
                    journal, progress=lambda n: tell(f"{n:,} entries", 0.0)
                )
                found = budget.statement()
                state = "imported as a closed copy" if found.closed else "imported"
                typer.echo(f"{shown(budget.name)}: {found.entries} entries {state}")
        except UnicodeDecodeError as error:
            raise ValueError(f"{source} must be what dosimeter budget export wrote") from error
