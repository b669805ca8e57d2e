# SPDX-License-Identifier: Apache-2.0
"""A stored journal under the auditor's eye, whole or from where the last audit came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dosimeter.accounting import Terms
from dosimeter.ledger import book, journal
from dosimeter.ledger.accounts import stored_terms
from dosimeter.ledger.audit import Replay, replayed
from dosimeter.ledger.desk import Desk
from dosimeter.ledger.errors import JournalError
from dosimeter.ledger.journal import Line
from dosimeter.ledger.receipts import Receipt, Verification
from dosimeter.ledger.stores import Transaction

_TOLD_EVERY = 1000


def verify(
    desk: Desk,
    name: str,
    *,
    receipt: Receipt | None = None,
    head: str | None = None,
    since: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Replays a stored journal and compares its end with the balance."""
    with desk.store.reading() as transaction:
        found = book.find(transaction, name)
        balance = found.balance
        replay = _begun(transaction, name, since)
        if replay.entries and not _holds(transaction, balance, replay.entries - 1, replay.head):
            return replay.result("it is not the one that was verified before", replay.entries - 1)
        seen = {replay.head} if replay.entries else set()
        lines = _told(
            journal.lines(transaction, balance, replay.entries), balance.sequence, progress
        )
        result = replayed(replay, _noted(lines, head, seen))
        if not result.ok:
            return result
        if balance.sequence >= replay.entries:
            return replay.result("it is missing", replay.entries)
        try:
            replay.check_balance(found.checked())
            book.parameters(transaction, balance.parameters)
        except JournalError as error:
            return replay.result(str(error))
        if receipt is not None and not _holds(transaction, balance, receipt.sequence, receipt.hash):
            return replay.result("it is not the one that the receipt is for", receipt.sequence)
        if head is not None and head not in seen:
            since_then = " since the last verification" if since else ""
            return replay.result(f"no entry{since_then} has the hash {head}", replay.entries)
    return result


def _begun(transaction: Transaction, name: str, since: str) -> Replay:
    if not since:
        return Replay(name)

    def terms(key: str) -> Terms:
        return stored_terms(book.parameters(transaction, key))

    return Replay.resumed(name, since, terms)


def _told(
    lines: Iterator[Line], last: int, progress: Callable[[int, int], None] | None
) -> Iterator[Line]:
    for line in lines:
        if progress is not None and line.sequence % _TOLD_EVERY == 0:
            progress(line.sequence, last + 1)
        yield line


def _noted(lines: Iterator[Line], wanted: str | None, seen: set[str]) -> Iterator[Line]:
    for line in lines:
        if line.hash == wanted:
            seen.add(line.hash)
        yield line


def _holds(transaction: Transaction, balance: book.Balance, sequence: int, hash: str) -> bool:
    line = journal.by_sequence(transaction, balance, sequence)
    return line is not None and line.hash == hash
