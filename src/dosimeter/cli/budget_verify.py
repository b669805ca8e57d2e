# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget verify` and `anchor`: journals replayed, and held against what others keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.database import DEFAULT_DB, Db, complete_budgets, members, opened
from dosimeter.cli.errors import ExitCode
from dosimeter.cli.options import Block, Json
from dosimeter.cli.output import print_json
from dosimeter.cli.progress import waiting
from dosimeter.files import replaced
from dosimeter.rounding import at_most

if TYPE_CHECKING:
    from dosimeter.ledger import Ledger, Verification
    from dosimeter.ledger.anchors import AnchorLog, Kept


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
    block: Block = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Replay journals and name the first entry that does not fit.

    Blocks of a group that fit are one line; --json has each.

    \b
    Example:
      dosimeter budget verify
      dosimeter budget verify visits --block 2026-01..2026-06
      dosimeter budget verify patients --remember audited.json
    """
    receipts = [] if receipt is None else _receipts(receipt, public_key)
    anchors = None if anchor is None else _anchors(anchor, public_key)
    if head is not None and len(names or []) != 1:
        raise ValueError(f"--head must come with the name of its budget, got {names or 'none'}")
    if block is not None and not names:
        raise ValueError(f"--block must come with the name of its group, got {block!r} alone")
    remembered = _remembered(remember)
    found = []
    with opened(db) as ledger:
        gone = set() if anchors is None else {*anchors.heads} - {*ledger}
        named = [
            one
            for name in names or ()
            for one in ([name] if name in gone else members(ledger, name, block))
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
            if not as_json and not checked.ok:
                typer.echo(str(checked), err=True)
    if as_json:
        print_json([{**asdict(one), "ok": one.ok, "memory": None} for one in found])
    else:
        for line in _fitting([one for one in found if one.ok], len(found)):
            typer.echo(line)
    if remember is not None:
        remembered |= {one.budget: one.memory for one in found if one.ok}
        replaced(remember, lambda part: part.write_text(json.dumps(remembered), encoding="ascii"))
    if not all(one.ok for one in found):
        raise typer.Exit(ExitCode.DOES_NOT_VERIFY)


def _fitting(good: list[Verification], of: int) -> Iterator[str]:
    """A line for each budget and each group that fits, and one about all that were verified."""
    from dosimeter.ledger.blocks import spans
    from dosimeter.ledger.receipts import shown
    from dosimeter.ledger.rules import LABEL

    groups: dict[str, list[Verification]] = {}
    for one in good:
        group, _, label = one.budget.rpartition("/")
        groups.setdefault(group if group and label != LABEL else one.budget, []).append(one)
    for group, parts in groups.items():
        if len(parts) == 1:
            yield str(parts[0])
            continue
        names = [one.budget for one in parts]
        entries, most = sum(one.entries for one in parts), max(one.epsilon for one in parts)
        yield (
            f"{shown(group)}: {len(parts):,} blocks, {spans(names, names)}: "
            f"all {entries:,} entries fit, epsilon at most {at_most(most)}"
        )
    if of > 1:
        said = "all fit" if len(good) == of else f"{of - len(good):,} of them do not fit"
        yield f"{of:,} journals verified: {said}"


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
