# SPDX-License-Identifier: Apache-2.0
"""Anchors: heads of journals, signed, in a file that others keep.

Whoever owns a database can write its journals anew, hashes and all, or put back an old copy. What
they cannot change is a file that someone else holds. Each line of it says where some
journals ended, is signed by the keeper of the ledger, and carries the hash of the line before. A
journal that no longer has an entry which an anchor names was rewritten or rolled back, and the
keeper's own signature says so. A file cut at its end says less, and nothing false.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, NamedTuple

from dosimeter.ledger import journal
from dosimeter.ledger.audit import Replay, replayed
from dosimeter.ledger.errors import JournalError
from dosimeter.ledger.receipts import Receipt, Verification
from dosimeter.ledger.records import START, canonical, digest
from dosimeter.ledger.signing import Signer, is_signed, public_key

MOST_HEADS = 1000
"""How many journals one anchor speaks of at most."""

Head = tuple[int, str]
"""The sequence and the hash of an entry at which a journal ended."""


class Anchor(NamedTuple):
    """One line of a file of anchors.

    Attributes:
        number: 0 for the first line, then 1, 2, 3.
        previous: The hash of the line before.
        ledger: The identity of the ledger.
        time: When, by the clock of whoever signed.
        heads: Where journals ended, by the name of the budget.
        key: The public half of the key.
        signature: What it signed: all of the above.
    """

    number: int
    previous: str
    ledger: str
    time: str
    heads: Mapping[str, Head]
    key: str
    signature: str = ""

    @classmethod
    def signed(
        cls,
        signer: Signer,
        ledger: str,
        number: int,
        previous: str,
        heads: Mapping[str, Head],
        time: str,
    ) -> Anchor:
        """An anchor with the signature of a key."""
        made = cls(number, previous, ledger, time, dict(heads), signer.public)
        return made._replace(signature=signer.sign(made._text()))

    @classmethod
    def parse(cls, line: str) -> Anchor:
        """The anchor in a line.

        Raises:
            JournalError: It is not one, or not signed by the key that it names.
        """
        try:
            values = json.loads(line)
            kind = values.pop("dosimeter")
            heads = {name: (int(at), str(hash)) for name, (at, hash) in values.pop("heads").items()}
            made = cls(heads=heads, **values)
            if kind != "anchor" or made.line() != line:
                raise ValueError("it is not in the form in which anchors are written")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise JournalError(f"it is no anchor: {error}") from None
        if not is_signed(made._text(), made.signature, made.key):
            raise JournalError("its signature is not that of its key: one of them was changed")
        return made

    def line(self) -> str:
        """It as a line of JSON."""
        return canonical({"dosimeter": "anchor", **self._plain(), "signature": self.signature})

    @property
    def hash(self) -> str:
        """What the next anchor carries of this one; whoever publishes it fixes all before it."""
        return digest(self.line())

    def _text(self) -> str:
        return canonical({"dosimeter": "anchor", **self._plain()})

    def _plain(self) -> dict[str, object]:
        values = self._asdict()
        del values["signature"]
        return {**values, "heads": {name: list(head) for name, head in self.heads.items()}}


@dataclass
class AnchorLog:
    """All anchors of a file, each checked.

    Attributes:
        ledger: The identity of the ledger they are of; empty if there are none.
        key: The public key that signed them all.
        entries: How many there are.
        hash: The hash of the last line.
        heads: Every head they name, the oldest first, by budget.
    """

    ledger: str = ""
    key: str = ""
    entries: int = 0
    hash: str = START
    heads: dict[str, list[Head]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, key: str | None = None) -> AnchorLog:
        """The anchors in a file.

        Args:
            path: The file.
            key: The public key that must have signed them; whoever did not keep the file
                themselves should name it.

        Raises:
            JournalError: A line is not signed, was changed, or does not follow from the one before.
        """
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            log = cls._read(file, str(path))
        if not log.entries:
            raise JournalError(f"{path} must hold anchors, got none")
        if key is not None and log.key != public_key(key):
            raise JournalError(f"anchors must be signed by key {key}, got key {log.key}")
        return log

    @classmethod
    def _read(cls, lines: Iterable[str], name: str) -> AnchorLog:
        log = cls()
        for line in lines:
            try:
                if not line.endswith("\n"):
                    raise JournalError("it is cut short; take it off")
                log.add(Anchor.parse(line[:-1]))
            except JournalError as error:
                raise JournalError(
                    f"{name} must be as it was written, line {log.entries + 1} is not: {error}"
                ) from None
        return log

    def add(self, anchor: Anchor) -> None:
        """Takes the next anchor.

        Raises:
            JournalError: It does not follow.
        """
        if (anchor.number, anchor.previous) != (self.entries, self.hash):
            raise JournalError("it does not follow from the anchor before it")
        if self.entries and (anchor.ledger, anchor.key) != (self.ledger, self.key):
            raise JournalError(
                f"it is of ledger {anchor.ledger} and key {anchor.key[:12]}…, and the first one of "
                f"ledger {self.ledger} and key {self.key[:12]}…; a new key begins a new file"
            )
        for name, (sequence, hash) in anchor.heads.items():
            last, known = self.heads.get(name, [(-1, "")])[-1]
            if sequence < last or (sequence == last and hash != known):
                raise JournalError(f"it says that budget {name!r} lost entry {last}")
            self.heads.setdefault(name, []).append((sequence, hash))
        self.ledger, self.key = anchor.ledger, anchor.key
        self.entries, self.hash = self.entries + 1, anchor.hash

    def require_of(self, ledger: str) -> None:
        """Raises JournalError unless the anchors are of this ledger."""
        if self.ledger != ledger:
            raise JournalError(
                f"anchors must be of this ledger ({ledger}), got those of ledger {self.ledger}: "
                "they belong to another one, or this one was put in its place"
            )

    def compared(self, found: Verification, holds: Callable[[int, str], bool]) -> Verification:
        """A verification, with the first anchored entry that the journal does not hold."""
        if found.ok:
            for sequence, hash in self.heads.get(found.budget, []):
                if not holds(sequence, hash):
                    wrong = "it is not the one that was anchored: rewritten, or rolled back"
                    return replace(found, problem=wrong, sequence=sequence, memory="")
        return found


Sign = Callable[[Mapping[str, Head], int, str], Anchor]
"""Signs heads as the anchor of a number after the one with a hash."""


def extend(
    path: Path,
    now: Callable[[], Mapping[str, Head]],
    holds: Callable[[str, int, str], bool],
    sign: Callable[[bool], Sign],
) -> list[Anchor]:
    """Appends anchors for journals that moved since the last ones; none if none did.

    Args:
        path: The file, made if it is not there.
        now: Reads where journals end, once nobody else appends.
        holds: Whether a journal has an entry.
        sign: Gives what signs; told whether the file is new.

    Raises:
        JournalError: A journal lost what was anchored, or the file is not as it was written.
    """
    with _held(path) as file:
        log, heads = AnchorLog._read(file, str(path)), now()
        for name, listed in log.heads.items():
            if name not in heads or (listed[-1] != heads[name] and not holds(name, *listed[-1])):
                raise JournalError(
                    f"budget {name!r} must hold entry {listed[-1][0]}, which was anchored, and it "
                    "does not, or cannot be seen: was it rolled back? Keep this file, and verify"
                )
        moved = [name for name in heads if log.heads.get(name, [None])[-1] != heads[name]]
        made: list[Anchor] = []
        signing = sign(log.entries == 0)
        for first in range(0, len(moved), MOST_HEADS):
            some = {name: heads[name] for name in moved[first : first + MOST_HEADS]}
            anchor = Anchor.parse(signing(some, log.entries, log.hash).line())
            log.add(anchor)
            made.append(anchor)
        file.write("".join(anchor.line() + "\n" for anchor in made))
        file.flush()
        os.fsync(file.fileno())
    return made


@contextmanager
def _held(path: Path) -> Iterator[IO[str]]:
    """The file to read and append to, which nobody else appends to meanwhile."""
    with open(path, "a+", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def witnessed(name: str, exported: Iterable[str], log: AnchorLog) -> Verification:
    """Replays an exported journal here, and looks for what was anchored in it."""
    kept = list(exported)[:-1]  # the last line counts the others
    lines = [journal.import_line(line) for line in kept]
    found = replayed(Replay(name), lines)
    hashes = [line.hash for line in lines]
    return log.compared(found, lambda at, hash: at < len(hashes) and hashes[at] == hash)


class Kept(NamedTuple):
    """What was kept of a receipt: the entry it is for, and the signature."""

    budget: str
    sequence: int
    hash: str
    signature: str = ""


def sign_receipt(receipt: Receipt, signer: Signer, ledger: str) -> Receipt:
    """A receipt with the keeper's signature, the key and the identity of the ledger before it."""
    signature = signer.sign(_receipt_text(receipt, ledger))
    return receipt._replace(signature=f"{signer.public} {ledger} {signature}")


def require_signed(receipt: Receipt | Kept, key: str) -> None:
    """Raises JournalError unless a receipt carries the signature of a key.

    Guarantee:
        The keeper of the ledger signed that its journal has this very entry: the budget, the
        sequence, and by the hash the cost, the count, the epsilon, the time and the actor.
    """
    public, _, rest = receipt.signature.partition(" ")
    ledger, _, signature = rest.partition(" ")
    if public != public_key(key) or not is_signed(_receipt_text(receipt, ledger), signature, key):
        raise JournalError(
            f"receipt for entry {receipt.sequence} of budget {receipt.budget!r} must be signed by "
            f"key {key[:12]}…, and is not: it was changed, or is another's"
        )


def _receipt_text(receipt: Receipt | Kept, ledger: str) -> str:
    said = {"budget": receipt.budget, "sequence": receipt.sequence, "hash": receipt.hash}
    return canonical({"dosimeter": "receipt", "ledger": ledger, **said})
