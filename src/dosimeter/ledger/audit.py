# SPDX-License-Identifier: Apache-2.0
"""Audit: a journal replayed from its first entry with the code of today.

The chain says that no byte was changed, the replay that the numbers follow from the costs:
every entry is asked again of the account that it was asked of. Hashes must match
exactly; sums to a relative 1e-6, and epsilons to 1e-7 more, because another release or
processor may round differently in the last digits. The first entry that does not fit is
named. Where a replay came to can be kept, to go on from there another time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dosimeter.accounting import Account, Terms
from dosimeter.accounting.sums import Sums, read_all
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import book, journal
from dosimeter.ledger.accounts import read_position, stored_terms, terms_of, write_position
from dosimeter.ledger.book import ENDING, Balance
from dosimeter.ledger.desk import Desk
from dosimeter.ledger.errors import JournalError
from dosimeter.ledger.journal import Line
from dosimeter.ledger.receipts import Receipt, Verification
from dosimeter.ledger.records import START, Entry, Kind, canonical, digest
from dosimeter.ledger.stores import Transaction

_TOLERANCE = 1e-6
_EPSILON = 1e-7
"""How far above the exact epsilon a certified one may lie, so two of them apart."""


_AT_ONCE = 200
_TOLD_EVERY = 1000
# Looked up once: an enum takes its time to name a member.
_CHARGED = (Kind.SPEND, Kind.RESERVE)
_SETTLING = (Kind.COMMIT, Kind.RELEASE)


class _Unread(NamedTuple):
    """An entry that was taken, whose epsilon is still to be compared; and where it came from."""

    entries: int
    head: str
    before: Account
    after: Account
    epsilon: float


class Replay:
    """The state of a replay: feed it lines in order, then settle.

    Epsilons are worked out for many entries at once, which takes a fraction of the time.

    Attributes:
        name: The name of the budget.
        account: The account after the entries so far.
        head: The hash of the last of them.
        entries: How many there were.
        closed: Whether the last of them closed the budget.
        parameters: The hash of the parameters in the first of them.
        recorded: The epsilon that the last of them says.
        state: The hash of the balance after it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.account: Account | None = None
        self.head = START
        self.entries = 0
        self.closed = False
        self.parameters = ""
        self.recorded = 0.0
        self.state = ""
        self._reserved: dict[int, Entry] = {}
        self._unread: list[_Unread] = []

    def memory(self) -> str:
        """Where the replay came to, as a line of JSON that `resumed` goes on from."""
        account = self.account
        return canonical(
            {
                "budget": self.name,
                "entries": self.entries,
                "head": self.head,
                "parameters": self.parameters,
                "sums": "" if account is None else write_position(account),
                "closed": self.closed,
                "state": self.state,
                "reserved": [entry.body() for entry in self._reserved.values()],
            }
        )

    @classmethod
    def resumed(cls, name: str, memory: str, terms: Callable[[str], Terms]) -> Replay:
        """The replay that `memory` was kept of.

        Args:
            name: The name of the budget.
            memory: What `memory` gave.
            terms: Finds terms by their hash.

        Raises:
            ValueError: It is not what a replay of this budget gave.
        """
        replay = cls(name)
        try:
            values = json.loads(memory)
            if values["budget"] != name:
                raise ValueError(f"it is of budget {values['budget']!r}")
            replay.entries, replay.head = int(values["entries"]), str(values["head"])
            replay.closed, replay.state = bool(values["closed"]), str(values["state"])
            reserved = [Entry.parse(body) for body in values["reserved"]]
            replay._reserved = {entry.sequence: entry for entry in reserved}
            replay.parameters = str(values["parameters"])
            if replay.entries:
                position = read_position(terms(replay.parameters), values["sums"])
                replay.account = _lenient(position)
        except (KeyError, TypeError, ValueError, JournalError) as error:
            raise ValueError(
                f"since must be the memory of a verification of {name!r}: {error}; verify it whole"
            ) from None
        return replay

    @property
    def epsilon(self) -> float:
        """Epsilon recomputed over the entries so far."""
        return 0.0 if self.account is None else self.account.epsilon

    def feed(self, line: Line) -> None:
        """Takes the next line of the journal.

        Raises:
            JournalError: It, or one before it, does not fit; nothing of that one was taken.
        """
        if len(self._unread) == _AT_ONCE:
            self.settle()
        if line.sequence != self.entries:
            raise JournalError(f"its sequence must be {self.entries}, got {line.sequence}")
        if digest(line.body) != line.hash:
            raise JournalError("its hash is not that of its text: one of them was changed")
        entry = line.entry()
        self._check_place(line, entry)
        if self.entries == 0:
            self._open(entry)
        else:
            self._move(entry)
        self.head = line.hash
        self.entries += 1
        self.recorded = entry.epsilon
        self.state = entry.state

    def _check_place(self, line: Line, entry: Entry) -> None:
        stored = (line.sequence, line.key, line.reference)
        if stored != (entry.sequence, entry.key, entry.reference):
            raise JournalError("its key, reference or sequence is not the one in its text")
        if entry.budget != self.name:
            raise JournalError(f"it belongs to budget {entry.budget!r}")
        if entry.previous != self.head:
            raise JournalError("it does not follow from the entry before it")
        if (entry.kind is Kind.OPEN) != (entry.sequence == 0):
            raise JournalError(f"an entry of kind {entry.kind} cannot stand here")
        if self.closed:
            raise JournalError("it comes after the budget was closed")

    def _open(self, entry: Entry) -> None:
        if entry.parameters is None or entry.epsilon != 0.0:
            raise JournalError("it must carry the parameters of the budget and no spend")
        self.parameters = digest(canonical(entry.parameters))
        self.account = _lenient(Account.open(terms_of(entry.parameters)))

    def _move(self, entry: Entry) -> None:
        assert self.account is not None
        kind = entry.kind
        if kind in _SETTLING:
            self._check_end(entry)
        account = _moved(self.account, entry)
        self._unread.append(_Unread(self.entries, self.head, self.account, account, entry.epsilon))
        if kind in _SETTLING:
            del self._reserved[entry.reference or 0]
        elif kind is Kind.RESERVE:
            self._reserved[entry.sequence] = entry
        self.closed = kind in ENDING
        self.account = account

    def settle(self) -> None:
        """Compares the epsilons of the entries that were taken since it was last called.

        Raises:
            JournalError: That of one does not fit; nothing from that one on was taken.
        """
        unread, self._unread = self._unread, []
        read_all(one.after.sums for one in unread)
        for one in unread:
            if not near(one.epsilon, one.after.epsilon, _EPSILON):
                self.entries, self.head, self.account = one.entries, one.head, one.before
                raise JournalError(
                    f"its epsilon is {one.epsilon!r}, recomputed {one.after.epsilon!r}"
                )

    def _check_end(self, entry: Entry) -> None:
        reserved = self._reserved.get(entry.reference or 0)
        if reserved is None or reserved.cost != entry.cost:
            raise JournalError("it must end an open reservation of the same cost")
        if entry.kind is Kind.RELEASE and entry.count != reserved.count:
            raise JournalError("it must release the whole reservation")
        if not 0 <= entry.count <= reserved.count:
            raise JournalError("it draws more than its reservation holds")

    def check_balance(self, balance: Balance) -> None:
        """Compares the end of the journal with the stored balance.

        Raises:
            JournalError: They differ.
        """
        if self.account is None or (balance.sequence, balance.head) != (
            self.entries - 1,
            self.head,
        ):
            raise JournalError(
                f"it ends at entry {balance.sequence} and the journal at {self.entries - 1}"
            )
        terms = self.account.terms
        if self.parameters != balance.parameters:
            raise JournalError("its parameters are not those of the opening entry")
        stored, found = read_position(terms, balance.sums).sums.tally, self.account.sums.tally
        pairs = zip((*stored.rdp, *stored[1:]), (*found.rdp, *found[1:]), strict=True)
        counts = [text.split(" ")[1:] for text in (balance.sums, write_position(self.account))]
        if not all(near(float(a), float(b)) for a, b in pairs) or counts[0] != counts[1]:
            raise JournalError("its sums are not those of the costs in the journal")
        if not near(balance.epsilon, self.epsilon, _EPSILON) or balance.closed != self.closed:
            raise JournalError("its epsilon or its state is not that of the journal")

    def result(self, problem: str | None = None, sequence: int | None = None) -> Verification:
        """What the replay found so far."""
        return Verification(
            budget=self.name,
            entries=self.entries,
            epsilon=self.epsilon,
            head=self.head,
            sequence=sequence,
            problem=problem,
            memory=self.memory() if problem is None else "",
        )


def _lenient(account: Account) -> Account:
    """An account that forgives a spend at its limit the rounding of another release."""
    terms = account.terms
    sums = Sums(
        terms.mixture,
        terms.limit * (1 + _TOLERANCE) + _EPSILON,
        terms.approx_delta * (1 + _TOLERANCE),
        terms.cutting,
        account.sums.tally,
    )
    potentials = (*account.potentials[:-1], sums)
    return Account(terms, potentials, account.prepaid, account.strangers)


def _moved(account: Account, entry: Entry) -> Account:
    """The account after an entry, by the same functions that wrote it."""
    try:
        if entry.kind in _CHARGED:
            return account.after(entry.priced(), entry.count)
        if entry.kind is Kind.RELEASE:
            return account.released(entry.priced(), entry.count)
        return account
    except BudgetExceeded as error:
        raise JournalError(f"it passes the limit: {error.reason}") from None
    except (TypeError, ValueError) as error:
        raise JournalError(f"its cost cannot be priced: {error}") from None


def near(a: float, b: float, least: float = 1e-12) -> bool:
    """Whether two numbers are the same up to the rounding of another release."""
    if a == b or not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= _TOLERANCE * max(abs(a), abs(b)) + least


def replayed(replay: Replay, lines: Iterable[Line]) -> Verification:
    """Feeds lines to a replay; the verification names the first entry that does not fit."""
    try:
        try:
            for line in lines:
                replay.feed(line)
        finally:
            replay.settle()
    except JournalError as error:
        return replay.result(str(error), replay.entries)
    return replay.result()


def verify(
    desk: Desk,
    name: str,
    *,
    receipt: Receipt | None = None,
    head: str | None = None,
    since: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Replay a stored journal and compare its end with the balance."""
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
        result = replayed(replay, _watched(lines, head, seen))
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


def _watched(lines: Iterator[Line], wanted: str | None, seen: set[str]) -> Iterator[Line]:
    for line in lines:
        if line.hash == wanted:
            seen.add(line.hash)
        yield line


def _holds(transaction: Transaction, balance: Balance, sequence: int, hash: str) -> bool:
    line = journal.by_sequence(transaction, balance, sequence)
    return line is not None and line.hash == hash
