# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget identity`, `export` and `import`: budgets taken to another ledger."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli.database import DEFAULT_DB, Db, members, opened
from dosimeter.cli.options import Block, Name
from dosimeter.cli.progress import waiting


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
