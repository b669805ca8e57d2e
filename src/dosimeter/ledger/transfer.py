# SPDX-License-Identifier: Apache-2.0
"""Journals out of a ledger, and into another.

An export is the stored lines themselves, each with its hash, and one that counts them: nothing is
written anew, so the same journal gives the same bytes for ever. An import replays every line
first and adds the budget only if all of them fit. A copy of an open budget is closed as it
comes in, for the budget goes on where it is; one that was moved goes on in the one ledger that the
move is made out to.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import IO, NamedTuple

from dosimeter.ledger import book, journal
from dosimeter.ledger.audit import Replay, replayed
from dosimeter.ledger.book import Balance
from dosimeter.ledger.desk import Desk, Kept
from dosimeter.ledger.errors import BudgetClosed, BudgetExists, JournalError
from dosimeter.ledger.journal import Line
from dosimeter.ledger.records import START, Kind, Note, canonical
from dosimeter.ledger.request import identifier
from dosimeter.ledger.stores import Transaction
from dosimeter.ledger.stores.base import UniqueViolation

_END = '{"entries":'
"""How the last line of an export begins, and no other."""


class End(NamedTuple):
    """The last line of an export, without which it is not whole.

    Attributes:
        entries: How many lines come before it.
        head: The hash of the last of them.
        sums: Where the budget stands, as its ledger wrote it.
        to: The ledger that a move is made out to; None in a copy.
    """

    entries: int
    head: str
    sums: str
    to: str | None = None

    def line(self) -> str:
        """It as a line of JSON."""
        return canonical(
            {name: value for name, value in self._asdict().items() if value is not None}
        )

    @classmethod
    def parse(cls, text: str) -> End | None:
        """The end that a line is; None if it is none."""
        try:
            end = cls(**json.loads(text))
            return end if end.line() == text and isinstance(end.sums, str) else None
        except (TypeError, ValueError, RecursionError):
            return None


def export(desk: Desk, name: str, *, to: str | None) -> Iterator[str]:
    """The lines of a journal; for a move, the budget is closed and that entry left out."""
    if to is not None:
        # Before the first line is asked for: a spend after it would be lost on the way.
        desk.end(name, Kind.MOVE, _moved_to(identifier("to", to)), "")
    return _exported(desk, name, to)


def _moved_to(ledger: str) -> str:
    return f"moved to ledger {ledger}"


def _exported(desk: Desk, name: str, to: str | None) -> Iterator[str]:
    with desk.store.reading() as transaction:
        balance = book.read(transaction, name)
        if to is not None:
            _require_moved(transaction, balance, to)
        written, head = 0, START
        for line in journal.lines(transaction, balance):
            if to is None or line.sequence != balance.sequence:
                yield journal.export_line(line)
                written, head = written + 1, line.hash
        yield End(written, head, balance.sums, to).line()


def _require_moved(transaction: Transaction, balance: Balance, to: str) -> None:
    """Raises unless a budget was closed by a move to this very ledger."""
    (last,) = journal.latest(transaction, balance, 1)
    entry = last.entry()
    if entry.kind is not Kind.MOVE:
        raise BudgetClosed(f"budget {balance.name!r} must be open to be moved, it was closed")
    if entry.purpose != _moved_to(to):
        raise BudgetClosed(
            f"budget {balance.name!r} must be moved once, it was {entry.purpose!r} before; a move "
            "can be exported again for the same ledger only"
        )


def journals(lines: Iterable[str]) -> Iterator[Iterable[str]]:
    """The lines of each export in a file that holds some, one after another; at least one.

    Each must be read before the next is asked for. What comes after the last whole one is another,
    which is not whole.
    """
    number = 0

    def place(line: str) -> int:
        nonlocal number
        here = number
        number += line.startswith(_END)
        return here

    found = groupby((line for line in lines if line.strip()), place)
    yield next(found, (0, ()))[1]
    yield from (part for _, part in found)


def import_lines(desk: Desk, lines: Iterable[str], progress: Callable[[int], None]) -> str:
    """The name of the budget that the lines described."""
    with tempfile.TemporaryFile("w+", encoding="ascii", newline="\n") as spool:
        replay, end = _read(lines, spool, progress)
        if end.to not in (None, desk.store.identity):
            raise JournalError(
                f"move must be made out to this ledger ({desk.store.identity}), got one to ledger "
                f"{end.to}; import it there, or export the budget as a copy"
            )
        balance = _arrived(replay, end)

        def work(transaction: Transaction, kept: Kept) -> None:
            spool.seek(0)
            opening = journal.import_line(spool.readline()[:-1]).entry()
            made = book.insert(transaction, balance, canonical(opening.parameters or {}))
            spool.seek(0)
            journal.write(transaction, made, (journal.import_line(line[:-1]) for line in spool))
            if end.to is None and not made.closed:
                account = desk.account(transaction, made)
                words = "imported as a copy: it goes on in the ledger that it was exported from"
                note = Note(Kind.CLOSE, purpose=words)
                book.append(transaction, made, account, note, book.utc(desk.clock))

        try:
            desk.transact(work)
        except UniqueViolation:
            raise BudgetExists(f"name must be new in this ledger, got {replay.name!r}") from None
    return replay.name


def _read(
    lines: Iterable[str], spool: IO[str], progress: Callable[[int], None]
) -> tuple[Replay, End]:
    """The replay of an export, and its end; its journal is put by, line by line."""
    last: str | None = None
    replay: Replay | None = None

    def entries() -> Iterator[Line]:
        """All lines but the last, which counts them."""
        nonlocal last
        for number, text in enumerate(line.rstrip("\r\n") for line in lines if line.strip()):
            if last is not None:
                yield journal.import_line(last)
                spool.write(last + "\n")
                progress(number)
            last = text

    fed = entries()
    first = next(fed, None)
    if first is not None:
        replay = Replay(identifier("name", first.entry().budget))
        found = replayed(replay, itertools.chain([first], fed))
        if not found.ok:
            raise JournalError(f"export must fit from its first entry on: {found}")
    end = None if last is None else End.parse(last)
    if replay is None or end is None or end[:2] != (replay.entries, replay.head):
        raise JournalError(
            "export must end with a line that counts its entries, got another end after "
            f"{0 if replay is None else replay.entries} of them: it was cut short or added to. "
            "Export the budget again; one that was moved can be exported with --move again."
        )
    return replay, end


def _arrived(replay: Replay, end: End) -> Balance:
    """The balance that an export ends with, as its own ledger had it."""
    name, key = replay.name, replay.parameters
    entries, head, closed = replay.entries, replay.head, int(replay.closed)
    balance = Balance.sealed(0, name, key, entries - 1, head, replay.recorded, end.sums, closed)
    if replay.state != balance.checksum:
        raise JournalError("export must end where its last entry leads, got other sums")
    replay.check_balance(balance)
    return balance
