# SPDX-License-Identifier: Apache-2.0
"""The double entry of the ledger: a balance that moves and a journal line that says why.

Everything here happens inside one transaction of a store. A balance carries a checksum of
itself, and the entry at the head of its journal carries the same one; so a row edited by hand is
refused at the next spend and not only by an audit, whoever worked out its checksum. It moves on
only from the very row that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dosimeter.accounting import Account, Terms
from dosimeter.ledger.accounts import stored_terms, terms_row, write_position
from dosimeter.ledger.errors import BudgetExists, BudgetNotFound, JournalError
from dosimeter.ledger.records import START, Kind, Note, digest, in_digits, stated
from dosimeter.ledger.stores import Transaction, schema

Clock = Callable[[], datetime]


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
        """A balance with its checksum: a hash over everything in the row but its id and head.

        The entry at the head carries it, and the head is the hash of that entry.
        """
        checksum = _checksum(name, parameters, sequence, repr(epsilon), sums, closed)
        return cls(id, name, parameters, sequence, head, epsilon, sums, closed, checksum)

    def require_head(self, hash: str | None, body: str | None, *, beyond: bool) -> Balance:
        """The balance itself, if the journal ends with an entry that leads to it.

        Raises:
            JournalError: The row, or the end of the journal, is not as the ledger wrote it.
        """
        if beyond:
            raise self._wrong(f"entries beyond {self.sequence}, at which it ends")
        if hash is None or body is None:
            raise self._wrong(f"no entry {self.sequence}, at which it ends")
        if hash != self.head or digest(body) != self.head:
            raise self._wrong("another entry at its head")
        if Balance.sealed(*self[:-1]) != self or stated(body) != self.checksum:
            raise self._wrong("a wrong checksum")
        return self

    def _wrong(self, found: str) -> JournalError:
        return JournalError(
            f"balance of budget {self.name!r} must be as the ledger wrote it, got {found}; verify "
            "the budget and restore it from an export"
        )


def _checksum(
    name: str, parameters: str, sequence: int, epsilon: str, sums: str, closed: int
) -> str:
    # With their lengths before them, no text can pass for another.
    lengths = f"{len(parameters)} {len(sums)}"
    return digest(f"{sequence!r} {epsilon} {closed!r} {lengths} {parameters}{sums}{name}")


_FIXED = 3
"""How many fields of a balance, the first ones, never move: its id, name and parameters."""
ENDING = (Kind.CLOSE, Kind.MOVE)
"""What leaves a budget closed."""


def utc(clock: Clock) -> str:
    """Now, by a client's clock."""
    return clock().astimezone(UTC).isoformat(timespec="microseconds")


Seen = tuple[int, str]
"""Sequence and hash of the last entry of a budget that a client saw recorded."""
UNSEEN: Seen = (-1, "")


def read(
    transaction: Transaction, name: str, *, known: Balance | None = None, seen: Seen = UNSEEN
) -> Balance:
    """The balance of a budget; one that is `known` has been checked before.

    Raises:
        BudgetNotFound: There is no such budget.
        JournalError: It does not fit its journal, or lost an entry that was `seen`.
    """
    return _checked(find(transaction, name, seen=seen[0]), known, seen)


def lock(
    transaction: Transaction, names: list[str], kept: Mapping[str, tuple[Balance | None, Seen]]
) -> list[Balance]:
    """The balances of budgets, which no one else moves until the transaction ends.

    Args:
        transaction: A writing one.
        names: Those of the budgets, in their order.
        kept: What a client has checked before and the last it saw, by name.

    Raises:
        BudgetNotFound: There is no such budget.
        JournalError: One does not fit its journal, or lost an entry that was seen.
    """
    last = [kept[name][1][0] for name in names]
    if len(names) == 1:
        rows = transaction.rows("lock_one", name=names[0], seen=last[0])
    else:
        rows = transaction.rows("lock", **transaction.pairs(names, last))
    found = _all_of(names, rows)
    return [_checked(found[name], *kept[name]) for name in names]


def several(transaction: Transaction, names: list[str]) -> list[Balance]:
    """The balances of budgets in one moment.

    Raises:
        BudgetNotFound: There is no such budget.
        JournalError: One does not fit its journal.
    """
    rows = transaction.rows("several", names=transaction.several(names), seen=-1)
    found = _all_of(names, rows)
    return [found[name].checked() for name in names]


def _all_of(names: list[str], rows: list[tuple[Any, ...]]) -> dict[str, Found]:
    found = {row[1]: _found(row) for row in rows}
    for name in names:
        if name not in found:
            raise BudgetNotFound(name)
    return found


def _checked(found: Found, known: Balance | None, seen: Seen) -> Balance:
    sequence, head = seen
    balance = found.balance
    if sequence >= 0 and (sequence > balance.sequence or found.seen != head):
        raise JournalError(
            f"budget {balance.name!r} must hold entry {sequence}, which was recorded, and it "
            f"ends at entry {balance.sequence} or with another; was an old backup restored?"
        )
    same = known == balance and not found.beyond
    return known if known is not None and same else found.checked()


class Found(NamedTuple):
    """A balance as it was found, and what its journal has at its head: not checked yet."""

    balance: Balance
    hash: str | None
    body: str | None
    beyond: bool
    seen: str | None

    def checked(self) -> Balance:
        """The balance, if it fits its journal.

        Raises:
            JournalError: It does not.
        """
        return self.balance.require_head(self.hash, self.body, beyond=self.beyond)


def find(transaction: Transaction, name: str, *, seen: int = -1) -> Found:
    """The balance of a budget, as it was found.

    Raises:
        BudgetNotFound: There is no such budget.
    """
    found = transaction.rows("balance", name=name, seen=seen)
    if not found:
        raise BudgetNotFound(name)
    return _found(found[0])


def _found(row: tuple[Any, ...]) -> Found:
    hash, body, beyond, seen = row[schema.BALANCE :]
    return Found(Balance(*row[: schema.BALANCE]), hash, body, bool(beyond), seen)


def page(transaction: Transaction, after: int, size: int) -> list[Found]:
    """Balances in the order of their ids, as they were found."""
    rows = transaction.rows("balances", after=after, size=size, seen=-1)
    return [_found(row) for row in rows]


def parameters(transaction: Transaction, key: str) -> str:
    """The text of stored parameters."""
    found = transaction.rows("parameters", hash=key)
    body = str(found[0][0]) if found else ""
    if digest(body) != key:
        raise JournalError(f"parameters {key[:12]} must be as the ledger wrote them, got others")
    return body


def stands(transaction: Transaction, name: str, terms: Terms) -> bool:
    """Whether a budget of that name is there, on these terms; its menu may have other prices.

    Raises:
        BudgetExists: It is there on other terms.
    """
    try:
        balance = read(transaction, name)
    except BudgetNotFound:
        return False
    if balance.parameters != terms_row(terms)[0] and not (
        terms.menu is not None
        and terms.repriced(stored_terms(parameters(transaction, balance.parameters)))
    ):
        raise BudgetExists(
            f"name must be new, or that of a budget on the same terms, got {name!r}, which has "
            "other terms; choose another name, or use the budget as it is"
        )
    return True


def open_budget(
    transaction: Transaction, name: str, account: Account, time: str, actor: str, purpose: str
) -> Balance:
    """Adds a budget with its opening entry."""
    key, body = terms_row(account.terms)
    note = Note(Kind.OPEN, parameters=account.terms.plain(), actor=actor, purpose=purpose)
    made = step(Balance(0, name, key, -1, "", 0.0, "", 0, ""), position(account), note, time)
    after = insert(transaction, made.after, body)
    transaction.run("append", made._replace(after=after).line())
    return after


def insert(transaction: Transaction, balance: Balance, parameters: str) -> Balance:
    """Adds a balance, with the parameters of its budget; the same with its id."""
    transaction.run("add_parameters", {"hash": balance.parameters, "body": parameters})
    ((identity,),) = transaction.rows("open", **balance._asdict())
    schema.require_room(identity)
    return balance._replace(id=identity)


class Moved(JournalError):
    """A balance is no longer the one that a move starts from; nothing was recorded."""


class Step(NamedTuple):
    """A move of a balance that is worked out and not yet recorded."""

    before: Balance
    after: Balance
    note: Note
    time: str
    key: str | None
    body: str

    def record(self, transaction: Transaction) -> bool:
        """Records it if the row is still the very balance it starts from; else changes nothing.

        The database compares and moves the row under its lock, in one statement.
        """
        return transaction.record([self.move()], [self.line()])

    def move(self) -> tuple[Any, ...]:
        """Where the balance goes, and where it was."""
        before = self.before
        return (*self.after[_FIXED:], before.id, *before[_FIXED:])

    def line(self) -> tuple[Any, ...]:
        """The row of the journal."""
        after = self.after
        place = schema.place(after.id, after.sequence)
        return (place, self.key, self.note.reference, after.head, self.body)


class Position(NamedTuple):
    """Where an account stands, as a balance has it; epsilon in digits too."""

    epsilon: float
    digits: str
    sums: str


def position(account: Account) -> Position:
    """Where an account stands, written down."""
    epsilon = account.epsilon
    return Position(epsilon, in_digits(epsilon), write_position(account))


def step(
    balance: Balance, position: Position, note: Note, time: str, key: str | None = None
) -> Step:
    """The move of a balance to a position, with the entry that says why.

    The entry carries the checksum of the balance that it leads to.
    """
    id, name, parameters, sequence, head, *_ = balance
    sequence += 1
    epsilon, digits, sums = position
    closed = int(note.kind in ENDING)
    checksum = _checksum(name, parameters, sequence, digits, sums, closed)
    body = note.line((name, sequence, head or START), digits, checksum, time, key)
    head = digest(body)
    after = Balance(id, name, parameters, sequence, head, epsilon, sums, closed, checksum)
    return Step(balance, after, note, time, key, body)


def append(
    transaction: Transaction, balance: Balance, account: Account, note: Note, time: str
) -> Balance:
    """Moves a locked balance to where `account` stands and writes the entry that says why."""
    made = step(balance, position(account), note, time)
    record(transaction, [made])
    return made.after


def record(transaction: Transaction, steps: list[Step], *, last: bool = False) -> None:
    """Records moves of locked balances, together; nothing follows what is the `last`."""
    moves, lines = [step.move() for step in steps], [step.line() for step in steps]
    if not transaction.record(moves, lines, last=last):
        names = ", ".join(repr(step.before.name) for step in steps[:3])
        raise Moved(f"budget {names} must stay locked while it moves, it did not")
