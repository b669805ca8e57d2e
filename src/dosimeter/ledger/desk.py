# SPDX-License-Identifier: Apache-2.0
"""Desk: the transactions of a ledger; the only place where budgets move.

Lock the rows in the order of their names, ask the accounts, write balances and journal,
commit, and only then say so. Whatever fails before the commit has changed nothing. The
desk never hands back what was spent, but for a reservation of which nothing was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from dosimeter import arguments
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import book
from dosimeter.ledger.book import Balance, Clock, Line
from dosimeter.ledger.errors import BudgetClosed, ConnectionLost, KeyConflict, LedgerRefusal
from dosimeter.ledger.live import LivePositions
from dosimeter.ledger.positions import Position
from dosimeter.ledger.records import Entry, Kind, Receipt, digest
from dosimeter.ledger.stores import Store, Transaction
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import to_plain

T = TypeVar("T")
Kept = list[tuple[Balance, Position]]

_LONGEST_NAME = 500
_LONGEST_TEXT = 100_000


def wall_clock() -> datetime:
    """Now, by the system's clock."""
    return datetime.now(UTC)


class Desk:
    """Runs a ledger's transactions on a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._live = LivePositions()

    def spend(
        self,
        costs: Mapping[str, Cost],
        count: int,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
        kind: Kind = Kind.SPEND,
    ) -> dict[str, Receipt]:
        """Spends in every budget or in none; the receipts by budget."""
        names = sorted(name_of(name) for name in costs)
        plain = {name: to_plain(costs[name]) for name in names}
        number = arguments.count("count", count)
        note = {"purpose": text("purpose", purpose), "actor": text("actor", actor)}
        if key is None and len(names) == 1:
            values = {"kind": kind, "cost": plain[names[0]], "count": number, **note}
            done = self._spend_ahead(names[0], costs[names[0]], values)
            if done is not None:
                return {names[0]: done}
        key = None if key is None else identifier("key", key)

        def work(transaction: Transaction, kept: Kept) -> dict[str, Receipt]:
            balances = [self._locked(transaction, name) for name in names]
            if key is not None:
                earlier = [book.by_key(transaction, balance, key) for balance in balances]
                if any(earlier):
                    return _replayed(key, balances, earlier, costs, plain, number)
            receipts = {}
            for balance in balances:
                cost = costs[balance.name]
                position = self._spent(transaction, balance, cost, number)
                after, entry = book.append(
                    transaction,
                    balance,
                    position,
                    kind=kind,
                    cost=plain[balance.name],
                    count=number,
                    key=key,
                    time=book.utc(self.clock),
                    **note,
                )
                kept.append((after, position))
                receipts[balance.name] = receipt(entry, after.head, cost)
            return receipts

        return self.transact(work)

    def _spend_ahead(self, name: str, cost: Cost, values: dict[str, Any]) -> Receipt | None:
        """The receipt of a spend worked out before the lock; None if it must be asked under it.

        Guarantee:
            It is recorded only if the row is, under its lock, still the balance that it was
            worked out from; so it is what the slower way would have recorded. Refusals are
            never decided here, because the row may have moved.
        """
        live = self._live.pop(name)
        if live is None or live[0].closed:
            return None
        balance, position = live
        try:
            position = position.spend(cost, values["count"])
        except BudgetExceeded:
            return None
        made = book.step(balance, position, time=book.utc(self.clock), **values)
        if not self.transact(lambda transaction, _: made.record(transaction)):
            return None
        self._live.keep(made.after, position)
        return receipt(made.entry, made.after.head, cost)

    def settle(self, reserved: Receipt, drawn: int, actor: str) -> None:
        """Ends a reservation; if nothing was drawn from it, what it holds is free again."""

        def work(transaction: Transaction, kept: Kept) -> None:
            balance = self._locked(transaction, reserved.budget)
            if balance.closed:
                return
            body = book.parameters(transaction, balance.parameters)
            position = self.position(transaction, balance)
            if not drawn:
                position = position.released(body, reserved.cost, reserved.count)
            after, _ = book.append(
                transaction,
                balance,
                position,
                kind=Kind.COMMIT if drawn else Kind.RELEASE,
                cost=to_plain(reserved.cost),
                count=drawn or reserved.count,
                reference=reserved.sequence,
                time=book.utc(self.clock),
                actor=actor,
            )
            kept.append((after, position))

        self.transact(work)

    def end(self, name: str, kind: Kind, purpose: str, actor: str) -> None:
        """Stops a budget for good; nothing happens if it is stopped already."""
        note = {"purpose": text("purpose", purpose), "actor": text("actor", actor)}

        def work(transaction: Transaction, kept: Kept) -> None:
            balance = self._locked(transaction, name)
            if not balance.closed:
                position = self.position(transaction, balance)
                time = book.utc(self.clock)
                book.append(transaction, balance, position, kind=kind, time=time, **note)

        self.transact(work)

    def ask(self, name: str, question: Callable[[Balance, Position], T]) -> T:
        """The answer to a question about where a budget stands now."""
        with self.store.reading() as transaction:
            balance = book.read(transaction, name, known=self._live.known(name))
            position = self.position(transaction, balance)
        answer = question(balance, position)
        self._live.keep(balance, position)
        return answer

    def balance(self, name: str) -> Balance:
        """The row of a budget."""
        with self.store.reading() as transaction:
            return book.read(transaction, name)

    def transact(self, work: Callable[[Transaction, Kept], T]) -> T:
        """The result of `work`, once it is recorded."""
        try:
            return self._once(work)
        except ConnectionLost as error:
            if error.outcome_unknown:
                raise
            # Nothing was recorded: the pool held a connection to a server that has restarted.
            return self._once(work)

    def position(self, transaction: Transaction, balance: Balance) -> Position:
        """The live position of a budget; the caller owns it and may give it back."""
        kept = self._live.take(balance)
        if kept is not None:
            return kept
        body = book.parameters(transaction, balance.parameters)
        return Position.restored(body, balance.sums)

    def _locked(self, transaction: Transaction, name: str) -> Balance:
        return book.read(transaction, name, lock=True, known=self._live.known(name))

    def _once(self, work: Callable[[Transaction, Kept], T]) -> T:
        kept: Kept = []
        with self.store.writing() as transaction:
            result = work(transaction, kept)
        for balance, position in kept:
            self._live.keep(balance, position)
        return result

    def _spent(
        self, transaction: Transaction, balance: Balance, cost: Cost, count: int
    ) -> Position:
        if balance.closed:
            raise BudgetClosed(f"budget {balance.name!r} must be open to spend, it was closed")
        position = self.position(transaction, balance)
        try:
            return position.spend(cost, count)
        except BudgetExceeded as refusal:
            raise LedgerRefusal(balance.name, refusal) from None


def _replayed(
    key: str,
    balances: list[Balance],
    earlier: list[Line | None],
    costs: Mapping[str, Cost],
    plain: Mapping[str, object],
    count: int,
) -> dict[str, Receipt]:
    """The first receipts of a spend that was recorded under this key."""
    receipts = {}
    for balance, line in zip(balances, earlier, strict=True):
        name = balance.name
        entry = line.entry() if line is not None and digest(line.body) == line.hash else None
        same = entry is not None and (entry.kind, entry.cost, entry.count) == (
            Kind.SPEND,
            plain[name],
            count,
        )
        if line is None or entry is None or not same:
            raise KeyConflict(
                f"key must name one spend, got {key!r} again for another cost, count or budget "
                f"({name!r}); choose a new key for a new spend"
            )
        receipts[name] = receipt(entry, line.hash, costs[name], replayed=True)
    return receipts


def receipt(entry: Entry, hash: str, cost: Cost, *, replayed: bool = False) -> Receipt:
    """The receipt for a recorded entry."""
    return Receipt(
        budget=entry.budget,
        sequence=entry.sequence,
        cost=cost,
        count=entry.count,
        epsilon=entry.epsilon,
        hash=hash,
        time=entry.time,
        replayed=replayed,
    )


def name_of(name: object) -> str:
    """The name of a budget, if it can be one."""
    return identifier("name", name)


def identifier(what: str, value: object) -> str:
    """Text that every database can store and index exactly."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {value!r}")
    if not 0 < len(value) <= _LONGEST_NAME:
        raise ValueError(
            f"{what} must have 1 to {_LONGEST_NAME} characters, got {len(value)} of them"
        )
    if "\0" in value or not _encodable(value):
        raise ValueError(f"{what} must be Unicode text without NUL, got {value!r}")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(what: str, value: object) -> str:
    """Any text that is not unreasonably long."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {value!r}")
    if not len(value) <= _LONGEST_TEXT:
        raise ValueError(
            f"{what} must have at most {_LONGEST_TEXT} characters, got {len(value)} of them"
        )
    return value
