# SPDX-License-Identifier: Apache-2.0
"""Stream: blocks made by a rule as data arrive, each with the same budget.

This is what makes a budget renew: new records bring blocks of their own, and nothing that was spent
is forgiven. The rule and the terms of its blocks are the opening entry of a closed budget `name/*`,
so they can neither be changed nor spent from, and are audited as any journal is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date
from typing import TYPE_CHECKING

from dosimeter import arguments
from dosimeter.accounting import Account, Terms
from dosimeter.ledger import book, journal
from dosimeter.ledger.accounts import stored_terms
from dosimeter.ledger.budget import Budget, Statement
from dosimeter.ledger.errors import BudgetExists, BudgetNotFound, LedgerError
from dosimeter.ledger.receipts import Receipt
from dosimeter.ledger.records import Kind, Note
from dosimeter.ledger.request import identifier, named, text
from dosimeter.ledger.rules import LABEL, Every, Rule
from dosimeter.ledger.stores import Transaction
from dosimeter.ledger.stores.base import UniqueViolation
from dosimeter.rdp import Cost

if TYPE_CHECKING:
    from dosimeter.ledger.desk import Desk, Kept
    from dosimeter.ledger.ledger import Ledger

ACTOR = "stream"
"""Who the journal says made a block: the rule did, whoever looked."""

_ATTEMPTS = 5
_WAY_OUT = (
    "ledger.stream(name) is the stream that is there, exist_ok (--exist-ok) makes do with it if "
    "its rule and terms are these; or choose another name"
)


class Stream:
    """Blocks of one data set that new records add to.

    Guarantee:
        Each record must lie in the one block that the rule names for it. Then everything together
        costs a record what its own block has spent, which never passes the budget of a block
        (parallel composition). A query must be paid for in every block that it reads, with
        `spend`; blocks that `offered` leaves out must not be read.
    """

    def __init__(self, ledger: Ledger, name: str, rule: Rule) -> None:
        self._ledger = ledger
        self._name = name
        self._rule = rule

    @property
    def name(self) -> str:
        """The name of the data set, before the slash in the names of its blocks."""
        return self._name

    @property
    def rule(self) -> Rule:
        """How its records fall into blocks."""
        return self._rule

    def blocks(self, last: int | None = None) -> list[str]:
        """The names of its blocks, the oldest first; those up to now are made if need be.

        Args:
            last: Only so many: the last 30 days, with today, or the 30 newest shards.
        """
        if last is not None:
            arguments.count("last", last)
        for _ in range(_ATTEMPTS):
            there = [one for one in self._ledger if one.startswith(f"{self._name}/")]
            if self._rule.every is Every.SHARD:
                made = [one for one in there if one != f"{self._name}/{LABEL}"]
                return made if last is None else made[-last:]
            names = [f"{self._name}/{label}" for label in self._rule.labels(self._today(), last)]
            known = set(there)
            missing = [name for name in names if name not in known]
            if not missing:
                return names
            try:
                self._make(missing)
                return names
            except BudgetExists:
                continue  # someone else saw the new day at the same moment
        raise LedgerError(f"blocks of stream {self._name!r} must be made by one at a time; retry")

    def add(self, label: str) -> Budget:
        """The block of a shard, made if it is not there.

        Raises:
            ValueError: The blocks of this stream follow the calendar.
        """
        if self._rule.every is not Every.SHARD:
            raise ValueError(
                f"label must be left to the rule: stream {self._name!r} has a block for every "
                f"{self._rule.every}"
            )
        name = f"{self._name}/{_shard(label)}"
        try:
            self._make([name])
        except BudgetExists:
            pass  # it has one budget, however often it is added
        return self._ledger[name]

    def offered(self, cost: Cost, count: int = 1, *, last: int | None = None) -> list[str]:
        """Those blocks that would accept a spend now; blocks that are used up drop out.

        Read the records of these and of no others, after `spend(…, blocks=offered)`.
        """
        return [name for name in self.blocks(last) if self._ledger[name].admits(cost, count)]

    def spend(
        self,
        cost: Cost,
        count: int = 1,
        *,
        last: int | None = None,
        blocks: Sequence[str] | None = None,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
    ) -> dict[str, Receipt]:
        """Spends in each of some blocks, or in none; the receipts by block.

        Args:
            cost: What one run costs each of them.
            count: How many runs.
            last: In the last so many blocks, with the one of today.
            blocks: Or in these, as `offered` gives them.
            key: As `Budget.spend` has it.
            purpose: As `Budget.spend` has it.
            actor: As `Budget.spend` has it.

        Raises:
            LedgerRefusal: One of them is used up; `offered` leaves it out. Nothing was spent.
        """
        if (last is None) == (blocks is None):
            raise ValueError("spend must be told either last or blocks, got both or neither")
        names = self.blocks(last) if blocks is None else self._require_own(blocks)
        if not names:
            raise ValueError(
                f"blocks must be one or more, got none: stream {self._name!r} has nothing to offer"
            )
        costs = dict.fromkeys(names, cost)
        return self._ledger.spend_all(costs, count, key=key, purpose=purpose, actor=actor)

    def statements(self, last: int | None = None) -> list[Statement]:
        """Where its blocks stand, the oldest first."""
        return [self._ledger[name].statement() for name in self.blocks(last)]

    def __repr__(self) -> str:
        return f"Stream({self._name!r}, {self._rule.words().removeprefix('stream ')})"

    def _require_own(self, blocks: Sequence[str]) -> list[str]:
        for name in blocks:
            if not name.startswith(f"{self._name}/") or name == f"{self._name}/{LABEL}":
                raise ValueError(f"blocks must be those of stream {self._name!r}, got {name!r}")
        return list(blocks)

    def _today(self) -> date:
        return self._ledger._desk.clock().astimezone(UTC).date()

    def _make(self, names: list[str]) -> None:
        terms = _terms(self._ledger._desk, self._name)
        self._ledger._open_all(names, terms, f"{self._rule.words()}", ACTOR)


def begin(ledger: Ledger, name: str, rule: Rule, terms: Terms, purpose: str, actor: str) -> Stream:
    """Writes down a rule, closed in the same breath: nothing can be spent from it.

    Raises:
        BudgetExists: There is a rule of this name, or blocks without one.
    """
    identifier("name", f"{name}/{LABEL}")
    if name.endswith("/") or any(one.startswith(f"{name}/") for one in ledger):
        raise BudgetExists(
            f"name must be new for a stream, got {name!r}, which has blocks; {_WAY_OUT}"
        )
    if rule.since is not None:
        rule.labels(max(rule.since, ledger._desk.clock().astimezone(UTC).date()))
    note, who = text("purpose", rule.words(purpose)), named(actor)
    account = Account.open(terms)

    def work(transaction: Transaction, kept: Kept) -> None:
        time = book.utc(ledger._desk.clock)
        balance = book.open_budget(transaction, f"{name}/{LABEL}", account, time, who, note)
        close = Note(Kind.CLOSE, actor=who, purpose="a rule: its blocks are spent from")
        book.append(transaction, balance, account, close, time)

    try:
        ledger._desk.transact(work)
    except UniqueViolation:
        raise BudgetExists(f"name must be new for a stream, got {name!r}; {_WAY_OUT}") from None
    return Stream(ledger, name, rule)


def standing(
    ledger: Ledger, name: str, every: Every, since: date | None, terms: Terms
) -> Stream | None:
    """The stream of that name by this rule, on these terms; since any day, if none is said.

    Raises:
        BudgetExists: It is there by another rule, or on other terms.
    """
    try:
        rule = find(ledger._desk, name)
    except BudgetNotFound:
        return None
    with ledger._desk.store.reading() as transaction:
        book.stands(transaction, f"{name}/{LABEL}", terms)
    if rule.every is not every or since not in (None, rule.since):
        raise BudgetExists(
            f"name must be new, or that of a stream by the same rule, got {name!r}, a "
            f"{rule.words()}; choose another name, or use it with ledger.stream(name)"
        )
    return Stream(ledger, name, rule)


def find(desk: Desk, name: str) -> Rule:
    """The rule of a stream.

    Raises:
        BudgetNotFound: There is no such stream.
    """
    with desk.store.reading() as transaction:
        balance = book.read(transaction, identifier("name", f"{name}/{LABEL}"))
        line = journal.by_sequence(transaction, balance, 0)
    rule = Rule.read(line.entry().purpose) if line is not None and balance.closed else None
    if rule is None:
        raise BudgetNotFound(f"{name}/{LABEL}")
    return rule


def _terms(desk: Desk, name: str) -> Terms:
    """What every block of a stream is opened with."""
    with desk.store.reading() as transaction:
        balance = book.read(transaction, f"{name}/{LABEL}")
        return stored_terms(book.parameters(transaction, balance.parameters))


def _shard(label: object) -> str:
    if identifier("label", label) == LABEL or "/" in str(label):
        raise ValueError(f"label must be another than {LABEL!r} and have no slash, got {label!r}")
    return str(label)
