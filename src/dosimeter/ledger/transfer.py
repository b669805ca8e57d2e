# SPDX-License-Identifier: Apache-2.0
"""Journals out of a ledger, into another, and under the auditor's eye.

An export is the stored lines themselves, each with its hash, and one that counts them: nothing is
written anew, so the same journal gives the same bytes for ever. An import replays every line
first and adds the budget only if all of them fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dosimeter.ledger import book
from dosimeter.ledger.accounts import terms_row, write_position
from dosimeter.ledger.audit import Replay, verify_lines
from dosimeter.ledger.book import Balance, Line
from dosimeter.ledger.desk import Desk, Kept
from dosimeter.ledger.errors import BudgetClosed, BudgetExists, JournalError
from dosimeter.ledger.records import START, Kind, Receipt, Verification, canonical
from dosimeter.ledger.request import identifier
from dosimeter.ledger.stores import Transaction
from dosimeter.ledger.stores.base import UniqueViolation


def verify(desk: Desk, name: str, receipt: Receipt | None) -> Verification:
    """Replays a stored journal and compares its end with the balance."""
    with desk.store.reading() as transaction:
        try:
            balance = book.read(transaction, name)
        except JournalError as error:
            return Replay(name).result(str(error))
        replay, found = verify_lines(name, book.lines(transaction, balance))
        if not found.ok:
            return found
        if balance.sequence >= replay.entries:
            return replay.result("it is missing", replay.entries)
        try:
            replay.check_balance(balance, book.parameters(transaction, balance.parameters))
        except JournalError as error:
            return replay.result(str(error))
        if receipt is not None and not _holds(transaction, balance, receipt):
            return replay.result("it is not the one that the receipt is for", receipt.sequence)
    return found


def export(desk: Desk, name: str, *, move: bool) -> Iterator[str]:
    """The lines of a journal; with `move`, the budget is closed and that entry left out."""
    if move:
        # Before the first line is asked for: a spend after it would be lost on the way.
        desk.end(name, Kind.MOVE, "moved to another ledger", "")
    return _exported(desk, name, move=move)


def _exported(desk: Desk, name: str, *, move: bool) -> Iterator[str]:
    with desk.store.reading() as transaction:
        balance = book.read(transaction, name)
        if move and not _was_moved(transaction, balance):
            raise BudgetClosed(f"budget {name!r} must be open to be moved, it was closed")
        written, head = 0, START
        for line in book.lines(transaction, balance):
            if not (move and line.sequence == balance.sequence):
                yield book.export_line(line)
                written, head = written + 1, line.hash
        yield _end(written, head)


def _end(entries: int, head: str) -> str:
    """The last line of an export, without which it is not whole."""
    return canonical({"entries": entries, "head": head})


def import_lines(desk: Desk, lines: Iterable[str]) -> str:
    """The name of the budget that the lines described."""
    *journal, end = [line.rstrip("\r\n") for line in lines if line.strip()] or [""]
    read = [book.import_line(line) for line in journal]
    if not read or end != _end(len(read), read[-1].hash):
        raise JournalError(
            f"export must end with a line that counts its entries, got {len(read)} of them and "
            "another end: it was cut short or added to. Export the budget again; one that was "
            "moved can be exported with --move again."
        )
    name = identifier("name", read[0].entry().budget)
    replay, found = verify_lines(name, read)
    if not found.ok or replay.account is None:
        raise JournalError(f"export must fit from its first entry on: {found}")
    key, body = terms_row(replay.account.terms)
    sums, closed = write_position(replay.account), replay.closed

    def work(transaction: Transaction, kept: Kept) -> None:
        book.insert(transaction, read, key, body, sums, closed=closed)

    try:
        desk.transact(work)
    except UniqueViolation:
        raise BudgetExists(f"name must be new in this ledger, got {name!r}") from None
    return name


def _holds(transaction: Transaction, balance: Balance, receipt: Receipt) -> bool:
    line = book.by_sequence(transaction, balance, receipt.sequence)
    return line is not None and line.hash == receipt.hash


def _was_moved(transaction: Transaction, balance: Balance) -> bool:
    last: list[Line] = book.latest(transaction, balance, 1)
    return bool(last) and last[0].entry().kind is Kind.MOVE
