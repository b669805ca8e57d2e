# SPDX-License-Identifier: Apache-2.0
"""The double entry of the ledger: a balance that moves and a journal line that says why.

Everything here happens inside one transaction of a store. A balance carries a checksum of
itself, so a row edited by hand is refused at the next spend and not only by an audit; and
it moves on only from the very sequence that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dosimeter.accounting import Account
from dosimeter.ledger.accounts import terms_row, write_position
from dosimeter.ledger.errors import BudgetNotFound, JournalError
from dosimeter.ledger.records import START, Entry, Kind, digest
from dosimeter.ledger.stores import Transaction, schema

Clock = Callable[[], datetime]
_PAGE = 2000


class Balance(NamedTuple):
    """The row of a budget: where its journal ends and what it adds up to."""

    id: int
    name: str
    parameters: str
    sequence: int
    head: str
    epsilon: float
    sums: str
    closed: int
    checksum: str

    @classmethod
    def sealed(
        cls,
        id: int,
        name: str,
        parameters: str,
        sequence: int,
        head: str,
        epsilon: float,
        sums: str,
        closed: int,
    ) -> Balance:
        """A balance with its checksum: a hash over everything in the row but its id."""
        # With their lengths before them, no text can pass for another.
        lengths = f"{len(parameters)} {len(head)} {len(sums)}"
        row = f"{sequence!r} {epsilon!r} {closed!r} {lengths} {parameters}{head}{sums}{name}"
        return cls(id, name, parameters, sequence, head, epsilon, sums, closed, digest(row))

    def check(self) -> Balance:
        """The balance itself.

        Raises:
            JournalError: The row is not as the ledger wrote it.
        """
        if Balance.sealed(*self[:-1]) != self:
            raise JournalError(
                f"balance of budget {self.name!r} must be as the ledger wrote it, got a wrong "
                "checksum; verify the budget and restore it from an export"
            )
        return self


_FIXED = 3
"""How many fields of a balance, the first ones, never move: its id, name and parameters."""


@dataclass(frozen=True)
class Line:
    """A row of the journal as it is stored, whatever it may hold."""

    sequence: int
    key: str | None
    reference: int | None
    hash: str
    body: str

    @classmethod
    def at(cls, balance: Balance, row: Sequence[Any]) -> Line:
        """The line in a row of a budget's journal."""
        place, key, reference, hash, body = row
        sequence = place - schema.place(balance.id, 0)
        # Whatever is no text was not written by the ledger.
        return cls(sequence, key, reference, str(hash), str(body))

    def entry(self) -> Entry:
        """The entry in it.

        Raises:
            JournalError: The body is not one the ledger writes.
        """
        return Entry.parse(self.body)


def utc(clock: Clock) -> str:
    """Now, by a client's clock."""
    return clock().astimezone(UTC).isoformat(timespec="microseconds")


def read(
    transaction: Transaction, name: str, *, lock: bool = False, known: Balance | None = None
) -> Balance:
    """The balance of a budget; with `lock`, no one else moves it until the transaction ends.

    One that is `known` has been checked before.
    """
    found = transaction.rows("lock" if lock else "balance", name=name)
    if not found:
        raise BudgetNotFound(name)
    return known if known == found[0] and known is not None else Balance(*found[0]).check()


def parameters(transaction: Transaction, key: str) -> str:
    """The text of stored parameters."""
    found = transaction.rows("parameters", hash=key)
    body = str(found[0][0]) if found else ""
    if digest(body) != key:
        raise JournalError(f"parameters {key[:12]} must be as the ledger wrote them, got others")
    return body


def open_budget(
    transaction: Transaction, name: str, account: Account, time: str, actor: str, purpose: str
) -> Balance:
    """Adds a budget with its opening entry."""
    entry = Entry(
        budget=name,
        sequence=0,
        kind=Kind.OPEN,
        parameters=account.terms.plain(),
        actor=actor,
        purpose=purpose,
        time=time,
        previous=START,
    )
    key, body = terms_row(account.terms)
    return insert(transaction, [_line(entry)], key, body, write_position(account), closed=False)


def insert(
    transaction: Transaction,
    lines: list[Line],
    key: str,
    body: str,
    sums: str,
    *,
    closed: bool,
) -> Balance:
    """Adds a budget with a journal that ends in `sums`."""
    transaction.run("add_parameters", {"hash": key, "body": body})
    last = lines[-1].entry()
    balance = Balance.sealed(
        0,
        last.budget,
        key,
        last.sequence,
        lines[-1].hash,
        last.epsilon,
        sums,
        int(closed),
    )
    ((identity,),) = transaction.rows("open", **balance._asdict())
    schema.require_room(identity)
    for line in lines:
        place = schema.place(identity, line.sequence)
        values = (place, line.key, line.reference, line.hash, line.body)
        transaction.run("append", dict(zip(schema.LINE, values, strict=True)))
    return balance._replace(id=identity)


class Step(NamedTuple):
    """A move of a balance that is worked out and not yet recorded."""

    before: Balance
    after: Balance
    entry: Entry
    body: str

    def record(self, transaction: Transaction) -> bool:
        """Records it if the row is still the very balance it starts from; else changes nothing.

        The database compares and moves the row under its lock, in one statement.
        """
        old, new = self.before, self.after
        place = schema.place(old.id, new.sequence)
        line = (place, self.entry.key, self.entry.reference, new.head, self.body)
        values = (old.id, *old[_FIXED:], *new[_FIXED:], *line)
        return transaction.record(dict(zip(schema.RECORD, values, strict=True)))


def step(balance: Balance, account: Account, **values: Any) -> Step:
    """The move of a balance to where `account` stands, with the entry that says why."""
    entry = Entry(
        budget=balance.name,
        sequence=balance.sequence + 1,
        epsilon=account.epsilon,
        previous=balance.head,
        **values,
    )
    body = entry.body()
    after = Balance.sealed(
        balance.id,
        balance.name,
        balance.parameters,
        entry.sequence,
        digest(body),
        entry.epsilon,
        write_position(account),
        int(entry.kind in (Kind.CLOSE, Kind.MOVE)),
    )
    return Step(balance, after, entry, body)


def append(
    transaction: Transaction, balance: Balance, account: Account, **values: Any
) -> tuple[Balance, Entry]:
    """Moves a locked balance to where `account` stands and writes the entry that says why."""
    made = step(balance, account, **values)
    if not made.record(transaction):
        raise JournalError(f"budget {balance.name!r} must stay locked while it moves, it did not")
    return made.after, made.entry


def by_key(transaction: Transaction, balance: Balance, key: str) -> Line | None:
    """The journal line with an idempotency key."""
    found = transaction.rows("by_key", budget=balance.id, key=key)
    return Line.at(balance, found[0]) if found else None


def by_sequence(transaction: Transaction, balance: Balance, sequence: int) -> Line | None:
    """The journal line with a sequence."""
    found = transaction.rows("by_place", at=schema.place(balance.id, sequence))
    return Line.at(balance, found[0]) if found else None


def lines(transaction: Transaction, balance: Balance) -> Iterator[Line]:
    """Every line of a journal, from the first on, without holding them all."""
    start, end = _places(balance)
    while start < end:
        page = transaction.rows("page", start=start, end=end, size=_PAGE)
        yield from (Line.at(balance, row) for row in page)
        start = page[-1][0] + 1 if len(page) == _PAGE else end


def latest(transaction: Transaction, balance: Balance, size: int) -> list[Line]:
    """The last lines of a journal, the newest first."""
    start, end = _places(balance)
    found = transaction.rows("latest", start=start, end=end, size=size)
    return [Line.at(balance, row) for row in found]


def _places(balance: Balance) -> tuple[int, int]:
    """The first place of a budget's journal, and the one after its last."""
    return schema.place(balance.id, 0), schema.place(balance.id + 1, 0)


def _line(entry: Entry) -> Line:
    body = entry.body()
    return Line(entry.sequence, entry.key, entry.reference, digest(body), body)


def export_line(line: Line) -> str:
    """A journal line as it is exported: the entry with its hash, one line of JSON."""
    return f'{line.body[:-1]},"hash":"{line.hash}"}}'


def import_line(text: str) -> Line:
    """The journal line that `export_line` wrote.

    Raises:
        JournalError: It is not such a line.
    """
    body, mark, rest = text.rpartition(',"hash":"')
    hash, end = rest[:64], rest[64:]
    if not mark or end != '"}':
        raise JournalError("line must end with the hash of its entry, as an export does")
    entry = Entry.parse(body + "}")
    return Line(entry.sequence, entry.key, entry.reference, hash, body + "}")
