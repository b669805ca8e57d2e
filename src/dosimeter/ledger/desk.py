# SPDX-License-Identifier: Apache-2.0
"""Desk: the transactions of a ledger; the only place where budgets move.

Lock the rows in the order of their names, ask the accounts, write balances and journal,
commit, and only then say so. Whatever fails before the commit has changed nothing. The
desk never hands back what was spent, but for a reservation of which nothing was drawn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from dosimeter.accounting import Account
from dosimeter.accounting.sums import read_all
from dosimeter.accounting.tally import charge
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import book, journal
from dosimeter.ledger.accounts import read_position, stored_terms
from dosimeter.ledger.book import Balance, Clock, Step
from dosimeter.ledger.errors import (
    BudgetClosed,
    ConnectionLost,
    LedgerError,
    LedgerRefusal,
    LedgerUnavailable,
    ReservationError,
)
from dosimeter.ledger.journal import Line
from dosimeter.ledger.live import LiveAccounts
from dosimeter.ledger.receipts import Receipt
from dosimeter.ledger.records import Entry, Kind, Note, digest, written
from dosimeter.ledger.request import Request, named, text
from dosimeter.ledger.stores import Store, Transaction
from dosimeter.ledger.stores.base import UniqueViolation
from dosimeter.rdp import Cost

T = TypeVar("T")
Kept = list[tuple[Balance, Account]]

_CROWDED = 20
"""For how many spends from a budget, where others keep coming between, the lock is taken first."""


def wall_clock() -> datetime:
    """Now, by the system's clock."""
    return datetime.now(UTC)


class Desk:
    """Runs a ledger's transactions on a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._live = LiveAccounts()
        self._alone = store.alone if store.records_at_once else store.writing
        self._crowds: dict[str, int] = {}
        """Budgets that others spend from: for how many more spends the lock is taken first."""

    def spend(self, request: Request) -> dict[str, Receipt]:
        """Spends in every budget or in none; the receipts by budget."""
        doubtful: Step | None = None
        if len(request.names) == 1:
            ahead = self._spend_ahead(request, request.names[0])
            if isinstance(ahead, Receipt):
                return {ahead.budget: ahead}
            doubtful = ahead
        self._price(request)
        if len(request.names) > 1:
            receipts = self._spend_all_ahead(request)
            if receipts is not None:
                return receipts

        def work(transaction: Transaction, kept: Kept) -> dict[str, Receipt]:
            balances = self._locked(transaction, request.names)
            if doubtful is not None and _is_recorded(transaction, doubtful):
                return {request.names[0]: receipt(doubtful, request.costs[request.names[0]])}
            if request.key is not None:
                earlier = journal.by_key(transaction, balances, request.key)
                if any(earlier):
                    return _replayed(request, balances, earlier)
            steps = self._steps(transaction, balances, request, kept)
            book.record(transaction, steps, last=True)
            return _receipts(request, steps)

        try:
            return self.transact(work)
        except LedgerRefusal as refusal:
            self._note_refusal(request, refusal.budget)
            raise
        except LedgerUnavailable as error:
            if doubtful is None or error.outcome_unknown:
                raise
            raise ConnectionLost(
                f"it may have been recorded, and the ledger does not answer ({error}); retry with "
                "the same key",
                outcome_unknown=True,
            ) from error

    def _steps(
        self, transaction: Transaction, balances: list[Balance], request: Request, kept: Kept
    ) -> list[Step]:
        """What a spend does to locked balances; those that stand alike go on together."""
        places = [(at.parameters, at.sums, request.note(at.name)) for at in balances]
        after: dict[tuple[str, str, Note], Account] = {}
        for balance, place in zip(balances, places, strict=True):
            if place not in after or balance.closed:
                cost = request.costs[balance.name]
                after[place] = self._spent(transaction, balance, cost, request.count)
        if len(after) > 1:
            read_all(account.sums for account in after.values())
        positions = {place: book.position(account) for place, account in after.items()}
        steps, time = [], book.utc(self.clock)
        for balance, place in zip(balances, places, strict=True):
            made = book.step(balance, positions[place], place[2], time, request.key)
            steps.append(made)
            kept.append((made.after, after[place]))
        return steps

    def _note_refusal(self, request: Request, name: str) -> None:
        """Writes down who asked for what and was refused; nothing is spent, and no key is used up.

        A reservation that is refused is not written down, since buffered gates ask for less then.
        """
        if request.kind is not Kind.SPEND:
            return
        note = request.refused(name)

        def work(transaction: Transaction, kept: Kept) -> None:
            (balance,) = self._locked(transaction, [name])
            if not balance.closed:
                account = self.account(transaction, balance)
                after = book.append(transaction, balance, account, note, book.utc(self.clock))
                kept.append((after, account))

        # The refusal stands whether or not there is room or time to note it.
        with contextlib.suppress(LedgerError):
            self.transact(work)

    def _price(self, request: Request) -> None:
        """Works out what a spend costs before anything is locked: that may take its time."""
        unknown = [name for name in request.names if self._live.latest(name) is None]
        if unknown:
            self._look_up(unknown)
        priced = set()
        for name in request.names:
            live = self._live.latest(name)
            alike = live and (live[0].parameters, request.note(name))
            if live and alike not in priced:
                priced.add(alike)
                terms = live[1].terms
                charge(request.costs[name], request.count, terms.mixture.orders, terms.cutting)
                live[1].price(request.costs[name])

    def _look_up(self, names: list[str]) -> None:
        """Reads accounts that are not kept, all in one moment."""
        with self.store.reading() as transaction:
            accounts: dict[tuple[str, str], Account] = {}
            for balance in book.several(transaction, names):
                at = (balance.parameters, balance.sums)
                if at not in accounts:
                    accounts[at] = self.account(transaction, balance)
                self._live.keep((balance, accounts[at]))

    def _spend_ahead(self, request: Request, name: str) -> Receipt | Step | None:
        """The receipt of a spend worked out before the lock; None if it must be asked under it.

        A step, if the connection was lost and it may or may not be recorded.

        Guarantee:
            It is recorded only if the row is, under its lock, still the balance that it was
            worked out from, and if the key is new; so it is what the slower way would have
            recorded, and it is recorded once. Refusals are never decided here, because the row may
            have moved.
        """
        crowd = self._crowds.get(name, 0)
        live = self._live.latest(name)
        if crowd > 1 or (not self.store.records_at_once and (crowd or live is None)):
            return None
        if live is None or crowd:
            live = self.ask(name, lambda *found: found)
        balance, before = live
        if balance.closed:
            return None
        cost = request.costs[name]
        try:
            account = before.after(cost, request.count)
        except BudgetExceeded:
            return None
        note, time = request.note(name), book.utc(self.clock)
        made = book.step(balance, book.position(account), note, time, request.key)
        try:
            recorded = self.transact(lambda transaction, _: made.record(transaction), self._alone)
        except UniqueViolation:  # the key is known
            return None
        except ConnectionLost as lost:
            if not (self.store.records_at_once and lost.outcome_unknown):
                raise
            return made
        if not recorded:
            # Whoever came between, even after a look, will again.
            self._crowds[name] = _CROWDED if crowd else 1
            return None
        self._live.keep((made.after, account))
        return receipt(made, cost)

    def _spend_all_ahead(self, request: Request) -> dict[str, Receipt] | None:
        """The receipts of a spend in several budgets that need not be read again; else None.

        Guarantee:
            That of `_spend_ahead`, for every one of the rows or none. Only where one lock holds
            all rows: where each has its own, they are locked in one order, first of all.
        """
        names = request.names
        live = [self._live.latest(name) for name in names]
        if self.store.records_at_once or any(name in self._crowds for name in names):
            return None
        balances = [found[0] for found in live if found is not None]
        if len(balances) < len(names):
            return None

        def work(transaction: Transaction, kept: Kept) -> dict[str, Receipt]:
            steps = self._steps(transaction, balances, request, kept)
            book.record(transaction, steps)
            return _receipts(request, steps)

        try:
            return self.transact(work)
        except book.Moved:
            self._crowds |= dict.fromkeys(names, 1)
        except (UniqueViolation, BudgetClosed, LedgerRefusal):
            pass  # the key is known, or the rows may have moved: it is decided under the lock
        return None

    def settle(self, reserved: Receipt, drawn: int, actor: str) -> None:
        """Ends a reservation; if nothing was drawn from it, what it holds is free again."""
        note = Note(
            Kind.COMMIT if drawn else Kind.RELEASE,
            written(reserved.cost),
            drawn or reserved.count,
            reference=reserved.sequence,
            actor=named(actor),
        )

        def work(transaction: Transaction, kept: Kept) -> None:
            (balance,) = self._locked(transaction, [reserved.budget])
            _require_reserved(
                journal.by_sequence(transaction, balance, reserved.sequence), reserved
            )
            if balance.closed:
                return
            account = self.account(transaction, balance)
            if not drawn:
                account = account.released(reserved.cost, reserved.count)
            after = book.append(transaction, balance, account, note, book.utc(self.clock))
            kept.append((after, account))

        try:
            self.transact(work)
        except UniqueViolation:
            raise ReservationError(
                f"reservation must be settled once, got entry {reserved.sequence} of budget "
                f"{reserved.budget!r} again"
            ) from None

    def end(self, name: str, kind: Kind, purpose: str, actor: str) -> None:
        """Stops a budget for good; nothing happens if it is stopped already."""
        note = Note(kind, purpose=text("purpose", purpose), actor=named(actor))

        def work(transaction: Transaction, kept: Kept) -> None:
            (balance,) = self._locked(transaction, [name])
            if not balance.closed:
                account = self.account(transaction, balance)
                book.append(transaction, balance, account, note, book.utc(self.clock))

        self.transact(work)

    def ask(self, name: str, question: Callable[[Balance, Account], T]) -> T:
        """The answer to a question about where a budget stands now."""
        balance, account = _again(lambda: self._read(name))
        answer = question(balance, account)
        self._live.keep((balance, account))
        return answer

    def _read(self, name: str) -> tuple[Balance, Account]:
        # What is recorded while this reads is not in the moment that it sees.
        seen = self._live.seen(name)
        with self.store.alone() as transaction:
            balance = book.read(transaction, name, known=self._known(name), seen=seen)
            return balance, self.account(transaction, balance)

    def balance(self, name: str) -> Balance:
        """The row of a budget."""
        with self.store.alone() as transaction:
            return book.read(transaction, name)

    def transact(
        self,
        work: Callable[[Transaction, Kept], T],
        begin: Callable[[], Transaction] | None = None,
    ) -> T:
        """The result of `work`, once it is recorded."""
        begin = begin or self.store.writing
        return _again(lambda: self._once(work, begin()))

    def account(self, transaction: Transaction, balance: Balance) -> Account:
        """The account of a budget."""
        kept = self._live.latest(balance.name)
        if kept is not None and kept[0] == balance:
            return kept[1]
        if kept is not None and kept[0].parameters == balance.parameters:
            return read_position(kept[1].terms, balance.sums, near=kept[1])
        terms = stored_terms(book.parameters(transaction, balance.parameters))
        return read_position(terms, balance.sums)

    def _known(self, name: str) -> Balance | None:
        kept = self._live.latest(name)
        return None if kept is None else kept[0]

    def _locked(self, transaction: Transaction, names: list[str]) -> list[Balance]:
        kept = {name: (self._known(name), self._live.seen(name)) for name in names}
        balances = book.lock(transaction, names, kept)
        for balance in balances:
            crowd = self._crowds.get(balance.name, 0)
            if balance is not kept[balance.name][0]:
                crowd = max(crowd - 1, min(crowd, 1))
            else:
                crowd //= 2  # that nobody came between may be chance
            if crowd:
                self._crowds[balance.name] = crowd
            else:
                self._crowds.pop(balance.name, None)
        return balances

    def _once(self, work: Callable[[Transaction, Kept], T], transaction: Transaction) -> T:
        kept: Kept = []
        try:
            with transaction:
                result = work(transaction, kept)
        except BaseException:
            # An interrupt may have come while it was being rolled back.
            transaction.end()
            raise
        if kept:
            self._live.keep(*kept)
        return result

    def _spent(self, transaction: Transaction, balance: Balance, cost: Cost, count: int) -> Account:
        if balance.closed:
            raise BudgetClosed(f"budget {balance.name!r} must be open to spend, it was closed")
        try:
            return self.account(transaction, balance).after(cost, count)
        except BudgetExceeded as refusal:
            raise LedgerRefusal(balance.name, refusal) from None


def _again(once: Callable[[], T]) -> T:
    """What `once` gives, asked a second time if the connection was lost and nothing recorded."""
    try:
        return once()
    except ConnectionLost as error:
        if error.outcome_unknown:
            raise
        # A kept connection led to a server that has restarted.
        return once()


def _is_recorded(transaction: Transaction, made: Step) -> bool:
    """Whether a step is in the journal; if not it never will be, once its row has moved on."""
    line = journal.by_sequence(transaction, made.before, made.after.sequence)
    return line is not None and line.hash == made.after.head


def _require_reserved(line: Line | None, reserved: Receipt) -> None:
    """Raises unless a line is the reservation that a receipt was given for."""
    entry = None if line is None or line.hash != reserved.hash else line.entry()
    expected = (Kind.RESERVE, reserved.count, written(reserved.cost))
    if entry is None or (entry.kind, entry.count, entry.cost) != expected:
        raise ReservationError(
            f"receipt must be for a reservation in budget {reserved.budget!r}, got one for another "
            f"entry {reserved.sequence}"
        )


def _replayed(
    request: Request, balances: list[Balance], earlier: list[Line | None]
) -> dict[str, Receipt]:
    """The first receipts of a spend that was recorded under this key."""
    receipts = {}
    for balance, line in zip(balances, earlier, strict=True):
        entry = request.require_same(balance.name, _genuine(line, balance.name, request.key))
        assert line is not None
        cost = request.costs[balance.name]
        receipts[balance.name] = Receipt(
            entry.budget,
            entry.sequence,
            cost,
            entry.count,
            entry.epsilon,
            line.hash,
            entry.time,
            replayed=True,
        )
    return receipts


def _genuine(line: Line | None, name: str, key: str | None) -> Entry | None:
    """The entry of a line that was neither edited nor moved."""
    if line is None or digest(line.body) != line.hash:
        return None
    entry = line.entry()
    expected = (name, key, line.sequence)
    return entry if (entry.budget, entry.key, entry.sequence) == expected else None


def receipt(made: Step, cost: Cost) -> Receipt:
    """The receipt for a step that is recorded."""
    _, name, _, sequence, head, epsilon, *_ = made.after
    return Receipt(name, sequence, cost, made.note.count, epsilon, head, made.time)


def _receipts(request: Request, steps: list[Step]) -> dict[str, Receipt]:
    return {made.before.name: receipt(made, request.costs[made.before.name]) for made in steps}
