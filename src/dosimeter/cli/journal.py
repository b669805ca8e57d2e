# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget`: journals, to read, to replay, and to take elsewhere."""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.budget import Block, Json, Name
from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.outcome import ExitCode, print_json
from dosimeter.cli.pages import Out
from dosimeter.cli.waiting import waiting
from dosimeter.files import replaced

if TYPE_CHECKING:
    from dosimeter.ledger import Ledger, Verification
    from dosimeter.ledger.anchors import AnchorLog, Kept

_NOTE = (
    "Spends by one person for one purpose are one line, which unfolds into its entries. Times are "
    "in UTC, by the clients' clocks; epsilon is what was spent in the budget after the last entry."
)


def history(
    name: Name,
    last: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, max=1_000_000, help="How many lines; 20, or all in FILE."
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Every entry, also those of one run, in a line.")
    ] = False,
    block: Block = None,
    out: Out = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Show the last lines of a journal, or those of a group.

    Spends by one person for one purpose, such as the steps of a training run, are one line, which
    an .html page unfolds. A .csv, --json and --each have a line for each entry.

    \b
    Example:
      dosimeter budget history patients --last 5
      dosimeter budget history visits --block 2026-01..2026-06 --out journal.html
    """
    from dosimeter.cli import pages, tables
    from dosimeter.ledger.activity import Activity, activities

    pages.require_known(out)
    last = last or (20 if out is None else 1_000_000)
    with opened(db) as ledger:
        budgets = [ledger[one] for one in members(ledger, name, block)]
        whole = not (each or as_json)
        found = [
            entry
            for budget in budgets
            for entry in budget.history(budget.statement().entries if whole else last)
        ]
    if len(budgets) > 1:
        found.sort(key=lambda entry: (entry.time, entry.budget, entry.sequence))
    if as_json:
        plain = [{**e._asdict(), "cost": json.loads(e.cost or "null")} for e in found[-last:]]
        print_json(plain)
        return
    lines = (activities(found) if whole else [Activity([entry]) for entry in found])[-last:]
    rows, several = [tables.entry_row(line) for line in lines], len(budgets) > 1
    if out is None:
        tables.print_entries(rows, named=several)
        return
    within = [[tables.entry_row(Activity([entry])) for entry in line.entries] for line in lines]
    pages.write(out, f"{name}: journal", _NOTE, ("budget", *tables.ENTRY), rows, within)
    typer.echo(f"{len(rows)} lines about {sum(map(len, within))} entries are in {out}")


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Budgets or groups; all by default.", autocompletion=complete_budgets),
    ] = None,
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Receipts that spend --json printed; all must be there."),
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head that show printed; must be there.")
    ] = None,
    anchor: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Anchors; the journals must hold all they name."),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="Who must have signed the anchors or receipts."),
    ] = None,
    remember: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from what this file remembers, and remember there what was verified.",
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Replay journals and name the first entry that does not fit.

    \b
    Example:
      dosimeter budget verify
      dosimeter budget verify patients --remember audited.json
    """
    receipts = [] if receipt is None else _receipts(receipt, public_key)
    anchors = None if anchor is None else _anchors(anchor, public_key)
    if head is not None and len(names or []) != 1:
        raise ValueError(f"--head must come with the name of its budget, got {names or 'none'}")
    remembered = _remembered(remember)
    found = []
    with opened(db) as ledger:
        gone = set() if anchors is None else {*anchors.heads} - {*ledger}
        named = [
            one
            for name in names or ()
            for one in ([name] if name in gone else members(ledger, name))
        ] or sorted({one.budget for one in receipts})
        if anchors is not None and not named:
            named = sorted({*ledger, *anchors.heads})
        for name in named or ledger:
            if name in gone:
                checked = _gone(name)
            else:
                checked = _verified(ledger, name, head, remembered.get(name, ""), anchors)
            for kept in receipts:
                if checked.ok and kept.budget == name and not _held(ledger, kept):
                    wrong = "it is not the one that the receipt is for"
                    checked = replace(checked, problem=wrong, sequence=kept.sequence)
            found.append(checked)
            if not as_json:
                typer.echo(str(checked), err=not checked.ok)
    if as_json:
        print_json([{**asdict(one), "ok": one.ok, "memory": None} for one in found])
    if remember is not None:
        remembered |= {one.budget: one.memory for one in found if one.ok}
        replaced(remember, lambda part: part.write_text(json.dumps(remembered), encoding="ascii"))
    if not all(one.ok for one in found):
        raise typer.Exit(ExitCode.DOES_NOT_VERIFY)


def _verified(
    ledger: Ledger, name: str, head: str | None, since: str, anchors: AnchorLog | None
) -> Verification:
    with waiting(f"replaying {name!r}") as tell:
        return ledger.verify(
            name,
            head=head,
            since=since,
            anchors=anchors,
            progress=lambda done, of: tell(f"{done:,} of {of:,} entries", done / of),
        )


def _receipts(file: Path, key: str | None) -> list[Kept]:
    """What the receipts in a file are for; each must be signed by the key, if one is named."""
    from dosimeter.ledger.anchors import Kept, require_signed

    try:
        printed = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        read = [one for made in printed for one in (made if isinstance(made, list) else [made])]
        found = [
            Kept(
                str(one["budget"]),
                int(one["sequence"]),
                str(one["hash"]),
                str(one.get("signature", "")),
            )
            for one in read
        ]
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} must hold receipts as dosimeter budget spend --json prints them: {error}"
        ) from None
    if key is not None:
        for kept in found:
            require_signed(kept, key)
    return found


def _anchors(file: Path, key: str | None) -> AnchorLog:
    from dosimeter.ledger.anchors import AnchorLog

    return AnchorLog.read(file, key=key)


def _held(ledger: Ledger, kept: Kept) -> bool:
    return ledger[kept.budget].holds(kept.sequence, kept.hash)


def _gone(name: str) -> Verification:
    from dosimeter.ledger import Verification

    return Verification(
        budget=name,
        entries=0,
        epsilon=float("inf"),
        head="",
        sequence=0,
        problem="it was anchored, and the budget is gone or cannot be seen",
    )


def anchor(
    file: Annotated[Path, typer.Argument(help="Anchors so far, or a new file.")],
    signing_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Key that signs, made with the first anchor; a service has its own.",
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Sign where journals end, in a file for others to keep.

    Only those that moved since its last line are added. verify --anchor FILE then finds a journal
    that was rewritten or rolled back, whoever did it.

    \b
    Example:
      dosimeter budget anchor anchors.jsonl --signing-key office.key
    """
    with opened(db) as ledger:
        made = ledger.anchor(file, signing_key=signing_key)
    if as_json:
        print_json([json.loads(one.line()) for one in made])
        return
    for one in made:
        typer.echo(f"anchor {one.number}: {len(one.heads)} journals, hash {one.hash}")
        typer.echo(f"signed by key {one.key}")
    if not made:
        typer.echo("nothing moved since the last anchor")


def _remembered(file: Path | None) -> dict[str, str]:
    """What earlier verifications came to, by the name of the budget."""
    if file is None or not file.exists():
        return {}
    try:
        values = json.loads(file.read_text())
        if not isinstance(values, dict):
            raise ValueError("no names in it")
    except ValueError as error:
        raise ValueError(
            f"{file} must be what dosimeter budget verify --remember wrote: {error}; remove it to "
            "verify whole journals"
        ) from None
    return {str(name): str(memory) for name, memory in values.items()}


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
        file = output.open("x", encoding="ascii", newline="\n") if output else None
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
