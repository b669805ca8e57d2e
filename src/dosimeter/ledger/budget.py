# SPDX-License-Identifier: Apache-2.0
"""Budget: one budget of a ledger, as a gate.

It holds nothing but its name: every question reads the database and every spend is a
transaction, so any number of these, in any number of processes, are one budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dosimeter import arguments
from dosimeter.accounting import Account, Gate, Guarantee, Terms
from dosimeter.accounting.burned import spent_share
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import book, journal
from dosimeter.ledger.accounts import read_position, stored_terms
from dosimeter.ledger.book import Balance
from dosimeter.ledger.desk import Desk
from dosimeter.ledger.errors import JournalError, LedgerError, ReservationError
from dosimeter.ledger.noted import Noted
from dosimeter.ledger.receipts import Receipt
from dosimeter.ledger.records import Entry, Kind
from dosimeter.ledger.request import Request, request
from dosimeter.ledger.reservation import Buffered, Reservation
from dosimeter.notebook import card
from dosimeter.rdp import Cost
from dosimeter.rounding import at_most, exact, share_words


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Where a budget stands.

    Attributes:
        name: The name of the budget.
        kind: "filter" or "odometer".
        limit: The epsilon never to be passed; infinite for an odometer.
        delta: The delta of the guarantee, apart from `approx_delta`.
        approx_delta: Cap on the summed delta of costs that have one.
        epsilon: Epsilon spent, rounded up.
        remaining: What is left of it, rounded down; infinite for an odometer.
        closed: Whether it spends no more.
        entries: How many entries the journal has.
        head: The hash of the last of them.
        problem: Why none of this can be believed, in words; empty if it can.
    """

    name: str
    kind: str
    limit: float
    delta: float
    approx_delta: float
    epsilon: float
    remaining: float
    closed: bool
    entries: int
    head: str
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a spend would do to a budget now.

    Attributes:
        name: The name of the budget.
        admitted: Whether it would be accepted.
        spent: Epsilon spent now, rounded up.
        after: Epsilon spent after it, rounded up; what is spent now if it would be refused.
        remaining: What would be left then, rounded down; infinite for an odometer.
        affordable: The largest count of this cost that would be accepted.
        reason: Why it would be refused, in words; empty if it would not.
    """

    name: str
    admitted: bool
    spent: float
    after: float
    remaining: float
    affordable: int
    reason: str = ""


class Budget:
    """A budget of a ledger; a `Gate`, so whatever takes a `Filter` takes it.

    Guarantee:
        As that of `Filter` or `Odometer`, over everything that any process ever spends
        from this budget: spends are taken one at a time, each recorded durably before it
        is acknowledged.
    """

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk = desk
        self._name = name

    @property
    def name(self) -> str:
        """The name of the budget."""
        return self._name

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up."""
        return self._desk.balance(self._name).epsilon

    @property
    def limit(self) -> float:
        """The epsilon never to be passed; infinite for an odometer."""
        return self._desk.ask(self._name, lambda _, now: now.limit)

    @property
    def remaining(self) -> float:
        """How far epsilon is from the limit, rounded down; infinite for an odometer."""
        return self._desk.ask(self._name, lambda _, now: now.remaining)

    @property
    def closed(self) -> bool:
        """Whether it spends no more."""
        return bool(self._desk.balance(self._name).closed)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing.

        Someone else may spend before you do: `spend` asks again, under the lock.
        """
        return self._desk.ask(self._name, lambda at, now: not at.closed and now.admits(cost, count))

    def spend(
        self,
        cost: Cost,
        count: int = 1,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
    ) -> Receipt:
        """The receipt for `count` runs of `cost`; call it before the data are touched.

        Args:
            cost: What one run costs.
            count: How many runs.
            key: A name for this very spend, so that a retry after a failure spends once
                and returns the first receipt, marked `replayed`. It pays for one
                computation: run it again only if the first never began.
            purpose: What for, in words, for the journal.
            actor: Who, for the journal; DOSIMETER_ACTOR or USER by default.

        Raises:
            LedgerRefusal: The spend would pass the limit (a `BudgetExceeded`). Nothing is
                spent; the journal notes who asked for what.
            BudgetClosed: The budget spends no more.
            KeyConflict: The key was used for another spend.
            LedgerUnavailable: The database failed. Unless `outcome_unknown` says
                otherwise, nothing was recorded.
        """
        asked = request(self._name, cost, count, key, purpose, actor)
        return self._desk.spend(asked)[self._name]

    def noted(self, purpose: str, *, actor: str = "") -> Noted:
        """The same budget as a gate whose spends all have this purpose in the journal."""
        return Noted(self, purpose, actor)

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that would be admitted now, at most 2**53."""
        return self._desk.ask(self._name, lambda at, now: 0 if at.closed else now.affordable(cost))

    def price(self, cost: Cost, count: int = 1) -> Price:
        """What `count` runs of `cost` would take and leave; changes nothing."""
        return self._desk.ask(self._name, lambda at, now: _price(at, now, cost, count))

    def reserve(
        self,
        cost: Cost,
        count: int,
        *,
        lifetime: float = 3600.0,
        purpose: str = "",
        actor: str = "",
    ) -> Reservation:
        """Runs paid for now and drawn later by this process, within `lifetime` seconds.

        There is no key: a reservation found again after a crash might be drawn twice.
        """
        arguments.positive("lifetime", lifetime)
        asked = Request({self._name: cost}, count, purpose=purpose, actor=actor, kind=Kind.RESERVE)
        receipt = self._desk.spend(asked)[self._name]
        return Reservation(self._desk, receipt, lifetime=lifetime, actor=actor)

    def settle(self, receipt: Receipt, drawn: int, *, actor: str = "") -> None:
        """Ends a reservation for whoever made it, with the number of runs that they drew.

        For a service, whose clients draw in processes of their own. `Reservation.commit` is the
        same for the process that made it.

        Args:
            receipt: What the reservation was acknowledged with.
            drawn: How many runs were drawn. With none of them, what it held is free again, so
                say none only if no data were touched on its account.
            actor: Who, for the journal.

        Raises:
            ReservationError: The receipt is not for a reservation here, or it has ended.
        """
        if receipt.budget != self._name:
            raise ReservationError(
                f"receipt must be for budget {self._name!r}, got one for {receipt.budget!r}"
            )
        if drawn != 0 and not arguments.count("drawn", drawn) <= receipt.count:
            raise ValueError(f"drawn must be at most {receipt.count}, got {drawn!r}")
        self._desk.settle(receipt, drawn, actor)

    def buffered(self, block: int = 1000, *, lifetime: float = 3600.0, actor: str = "") -> Buffered:
        """A gate that spends from this budget in reservations of `block` runs."""
        return Buffered(self, block, lifetime=lifetime, actor=actor)

    def guarantee(self) -> Guarantee:
        """What holds for everything spent from this budget."""
        return self._desk.ask(self._name, lambda _, now: now.guarantee())

    def statement(self) -> Statement:
        """Where the budget stands."""
        return self._desk.ask(self._name, _statement)

    def history(self, last: int = 100) -> list[Entry]:
        """The last entries of the journal, the oldest of them first."""
        with self._desk.store.reading() as transaction:
            balance = book.read(transaction, self._name)
            lines = journal.latest(transaction, balance, arguments.count("last", last))
        return [line.entry() for line in reversed(lines)]

    def opening(self) -> Entry:
        """The entry that made the budget, with its terms."""
        with self._desk.store.reading() as transaction:
            return next(journal.lines(transaction, book.read(transaction, self._name))).entry()

    def holds(self, sequence: int, hash: str) -> bool:
        """Whether the journal has the entry that a receipt names by its sequence and hash."""
        with self._desk.store.reading() as transaction:
            balance = book.read(transaction, self._name)
            line = journal.by_sequence(transaction, balance, sequence)
        return line is not None and line.hash == hash

    def close(self, *, purpose: str = "", actor: str = "") -> None:
        """Stops spending for good; it stays readable, and closing twice is no error."""
        self._desk.end(self._name, Kind.CLOSE, purpose, actor)

    @property
    def spent_share(self) -> float:
        """The share that is used up by the filter's own measure; see `Filter.spent_share`."""
        return self._desk.ask(self._name, lambda _, now: spent_share(now))

    def __repr__(self) -> str:
        try:
            return f"Budget({', '.join([repr(self._name), *self._lines()])})"
        except LedgerError:  # to be shown is no reason to fail
            return f"Budget({self._name!r})"

    def _repr_html_(self) -> str:
        share = self.spent_share if self.limit < math.inf else None
        return card(f"budget {self._name}", self._lines(), share)

    def _lines(self) -> list[str]:
        """Where it stands, in a few words each."""
        one = self.statement()
        lines = [f"epsilon {at_most(one.epsilon)}", "no limit"]
        if one.limit < math.inf:
            share = share_words(self.spent_share)
            lines = [f"epsilon {at_most(one.epsilon)} of {exact(one.limit)}", f"{share} used up"]
        lines.append(f"{one.entries:,} entries" + (", closed" if one.closed else ""))
        return lines


if TYPE_CHECKING:
    _gates: tuple[type[Gate], ...] = (Budget, Buffered)


def statements(desk: Desk, after: str | None, most: int) -> list[Statement]:
    """Where budgets stand, the oldest first, in one moment; damage to one hides no other."""
    with desk.store.reading() as transaction:
        number = 0 if after is None else book.find(transaction, after).balance.id
        texts: dict[str, str] = {}
        made = []
        for found in book.page(transaction, number, arguments.count("most", most)):
            try:
                balance = found.checked()
                key = balance.parameters
                if key not in texts:
                    texts[key] = book.parameters(transaction, key)
                terms = stored_terms(texts[key])
                made.append(_stated(balance, terms, _remaining(balance, terms)))
            except JournalError as error:
                made.append(_damaged(found.balance, str(error)))
    return made


def _remaining(balance: Balance, terms: Terms) -> float:
    """What is left of a budget; without a menu, the epsilon in its row says it."""
    if terms.menu is not None:
        return read_position(terms, balance.sums).remaining
    return max(0.0, math.nextafter(terms.limit - balance.epsilon, 0.0))


def _price(balance: Balance, account: Account, cost: Cost, count: int) -> Price:
    reason, after = "", account
    try:
        after = account.after(cost, count)
    except BudgetExceeded as refusal:
        reason = refusal.reason
    if balance.closed:
        reason, after = "it was closed", account
    return Price(
        name=balance.name,
        admitted=not reason,
        spent=balance.epsilon,
        after=balance.epsilon if reason else after.epsilon,
        remaining=after.remaining,
        affordable=0 if balance.closed else account.affordable(cost),
        reason=reason,
    )


def _statement(balance: Balance, account: Account) -> Statement:
    return _stated(balance, account.terms, account.remaining)


def _stated(balance: Balance, terms: Terms, remaining: float) -> Statement:
    return Statement(
        name=balance.name,
        kind=terms.kind,
        limit=terms.limit,
        delta=terms.delta,
        approx_delta=terms.approx_delta,
        epsilon=balance.epsilon,
        remaining=remaining,
        closed=bool(balance.closed),
        entries=balance.sequence + 1,
        head=balance.head,
    )


def _damaged(balance: Balance, problem: str) -> Statement:
    """What is said of a budget that cannot be believed: everything may be spent."""
    return Statement(
        name=str(balance.name),
        kind="damaged",
        limit=math.inf,
        delta=1.0,
        approx_delta=0.0,
        epsilon=math.inf,
        remaining=0.0,
        closed=False,
        entries=0,
        head=str(balance.head),
        problem=problem,
    )
