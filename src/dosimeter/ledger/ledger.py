# SPDX-License-Identifier: Apache-2.0
"""Ledger: privacy budgets that outlive the process, shared by many.

A budget belongs to a data set, not to a Python object. The ledger keeps it in a database,
takes spends one at a time, and writes down why in a journal that only grows. Nothing in
it is ever deleted, rewritten or refunded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dosimeter.accounting import Account, Terms
from dosimeter.accounting.priced.items import Ladder, Menu
from dosimeter.ledger import audit, blocks, book, streams, transfer
from dosimeter.ledger.blocks import Blocks
from dosimeter.ledger.book import Clock
from dosimeter.ledger.budget import Budget, Statement, statements
from dosimeter.ledger.desk import Desk, Kept, wall_clock
from dosimeter.ledger.errors import BudgetExists, BudgetNotFound, JournalError, suggesting
from dosimeter.ledger.receipts import Receipt, Verification
from dosimeter.ledger.request import Request, identifier, named, text
from dosimeter.ledger.rules import Every, Rule
from dosimeter.ledger.stores import Transaction, open_store
from dosimeter.ledger.stores.base import UniqueViolation
from dosimeter.ledger.streams import Stream
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost

if TYPE_CHECKING:
    from dosimeter.ledger.anchors import Anchor, AnchorLog, Sign


class Ledger:
    """Budgets in a database; `ledger[name]` is a `Gate`.

    Guarantee:
        An acknowledged spend is on the disk and in the journal; a budget never passes its
        limit, whoever spends from it and however they crash. Costs that are spent from one
        budget compose adaptively as `Filter` says; two budgets over the same people only
        add up (basic composition), so keep one budget per data set.

    Example:
        >>> import tempfile, dosimeter as dm
        >>> from dosimeter.ledger import Ledger
        >>> folder = tempfile.TemporaryDirectory()
        >>> with Ledger.open(f"sqlite:///{folder.name}/budgets.db") as ledger:
        ...     patients = ledger.create("patients", epsilon=1.0, delta=1e-6)
        ...     receipt = patients.spend(dm.Gaussian(noise_multiplier=20), purpose="mean age")
        ...     print(receipt.sequence, f"{receipt.epsilon:.3f}", ledger.verify("patients").ok)
        1 0.258 True
        >>> folder.cleanup()
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @classmethod
    def open(
        cls,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        clock: Clock = wall_clock,
        make: bool = True,
    ) -> Ledger:
        """Open the ledger at a URL, and make its tables where there are none.

        Args:
            url: `sqlite:///budgets.db` for one machine, `postgresql://user@host/db` for a
                team, `https://host` for a budget service; a plain path is an SQLite file.
            token: What a service has issued; DOSIMETER_TOKEN in the environment by default.
            timeout: Seconds to wait for a lock, or for any answer, before giving up.
            clock: What the entries' times are read from; their order is not.
            make: Whether a ledger is made where there is none; else such a database is left as
                it is.

        Raises:
            SchemaMismatch: Another release made the tables.
            LedgerUnavailable: The database cannot be reached, or holds no ledger.
        """
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            from dosimeter.ledger.courier import Courier
            from dosimeter.ledger.remote import RemoteLedger

            return RemoteLedger(
                Courier(url, token or os.environ.get("DOSIMETER_TOKEN", ""), timeout)
            )
        if token is not None:
            raise ValueError("token must come with the URL of a service, https://…")
        return cls(Desk(open_store(url, timeout, make=make), clock))

    def create(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        plan: tuple[Cost, int] | None = None,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | None = None,
        menu: Sequence[Cost] | Menu | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        exist_ok: bool = False,
        purpose: str = "",
        actor: str = "",
    ) -> Budget:
        """A new budget that refuses what would pass (epsilon, delta); see `Filter`.

        With `exist_ok`, the budget of that name on these very terms, as it stands, if there is one:
        so a script can be run again. A menu of the same costs may have another version's prices.

        Raises:
            BudgetExists: The name is taken, with `exist_ok` by a budget on other terms.
        """
        terms = Terms.of_filter(
            epsilon,
            delta,
            plan=plan,
            approx_delta=approx_delta,
            orders=orders,
            weights=weights,
            menu=menu,
            neighbours=neighbours,
        )
        return self._open_all([name], terms, purpose, actor, exist_ok=exist_ok)[0]

    def create_odometer(
        self,
        name: str,
        delta: float,
        *,
        approx_delta: float = 0.0,
        orders: Iterable[float] | None = None,
        weights: Sequence[float] | None = None,
        menu: Sequence[Cost] | Ladder | None = None,
        plan: tuple[Cost, int] | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        exist_ok: bool = False,
        purpose: str = "",
        actor: str = "",
    ) -> Budget:
        """A new budget without a limit, which reads epsilon; see `Odometer` and `create`.

        Raises:
            BudgetExists: The name is taken, with `exist_ok` by a budget on other terms.
        """
        terms = Terms.of_odometer(
            delta,
            approx_delta=approx_delta,
            orders=orders,
            weights=weights,
            menu=menu,
            plan=plan,
            neighbours=neighbours,
        )
        return self._open_all([name], terms, purpose, actor, exist_ok=exist_ok)[0]

    def create_blocks(
        self,
        prefix: str,
        labels: Iterable[str],
        epsilon: float,
        delta: float,
        *,
        plan: tuple[Cost, int] | None = None,
        approx_delta: float = 0.0,
        menu: Sequence[Cost] | Menu | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        exist_ok: bool = False,
        purpose: str = "",
        actor: str = "",
    ) -> list[Budget]:
        """A budget `prefix/label` for each part of a partition, all of them or none.

        With `exist_ok`, blocks that are there on these very terms are left as they are.

        Guarantee:
            Each record must lie in one block only (a day, a shard), by a rule that does
            not depend on other records. Then everything together costs a record what its
            own block has spent: parallel composition; see `Blocks`. Spend in every block that a
            computation reads, through `blocks` or with `spend_all`.
        """
        terms = Terms.of_filter(
            epsilon,
            delta,
            plan=plan,
            approx_delta=approx_delta,
            menu=menu,
            neighbours=neighbours,
        )
        names = [f"{prefix}/{label}" for label in labels]
        return self._open_all(names, terms, purpose, actor, exist_ok=exist_ok)

    def create_stream(
        self,
        name: str,
        every: str,
        epsilon: float,
        delta: float,
        *,
        since: date | None = None,
        plan: tuple[Cost, int] | None = None,
        approx_delta: float = 0.0,
        menu: Sequence[Cost] | Menu | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
        exist_ok: bool = False,
        purpose: str = "",
        actor: str = "",
    ) -> Stream:
        """A rule that gives every day, week, month or shard a block with the same budget.

        Args:
            name: That of the data set; its blocks are `name/label`.
            every: "day", "week" (ISO, from Monday) or "month", in UTC, or "shard".
            epsilon: What no block ever passes.
            delta: The delta of each block.
            since: The first day that has a block, today by default; not for shards.
            plan: As `create` has it, for each block.
            approx_delta: As `create` has it, for each block.
            menu: As `create` has it, for each block.
            neighbours: As `create` has it.
            exist_ok: Whether the stream of that name by this very rule, on these very terms, will
                do as it stands; without `since`, whatever day it began on.
            purpose: What for, in words.
            actor: Who, for the journal.

        Raises:
            BudgetExists: There is a stream, or there are blocks, of this name; with `exist_ok` by
                another rule or on other terms.
        """
        terms = Terms.of_filter(
            epsilon,
            delta,
            plan=plan,
            approx_delta=approx_delta,
            menu=menu,
            neighbours=neighbours,
        )
        unit = Every.named(every)
        first = since
        if unit is not Every.SHARD and since is None:
            first = self._desk.clock().astimezone(UTC).date()
        try:
            return streams.begin(self, name, Rule(unit, first), terms, purpose, actor)
        except BudgetExists:
            there = streams.standing(self, name, unit, since, terms) if exist_ok else None
            if there is None:
                raise
            return there

    def stream(self, name: str) -> Stream:
        """The stream of that name.

        Raises:
            BudgetNotFound: There is none.
        """
        return Stream(self, name, streams.find(self._desk, name))

    def spend_all(
        self,
        costs: Mapping[str, Cost],
        count: int = 1,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
    ) -> dict[str, Receipt]:
        """Spends in every budget named, or in none; the receipts by name.

        For a computation over several data sets. Locks are taken in the order of the
        names, so that such spends never wait for each other in a circle. Arguments and
        errors are those of `Budget.spend`.
        """
        if not isinstance(costs, Mapping) or not costs:
            raise ValueError(f"costs must map the names of budgets to costs, got {costs!r}")
        asked = Request(costs, count, key=key, purpose=purpose, actor=actor)
        with suggesting(self):
            return self._desk.spend(asked)

    def blocks(self, group: str, block: str | None = None) -> Blocks:
        """The blocks of a group as one gate, which spends in all of them or in none.

        Args:
            group: What stands before the slash in their names.
            block: One label, or two as in "2026-01..2026-06" for all labels from one to the
                other, in the order of text; all blocks by default.

        Raises:
            BudgetNotFound: There is no such block.
        """
        return Blocks(self, blocks.named(self, identifier("group", group), block))

    @property
    def identity(self) -> str:
        """The name of this ledger among all ledgers, which moves of budgets are made out to."""
        return self._desk.store.identity

    def verify(
        self,
        name: str,
        *,
        receipt: Receipt | None = None,
        head: str | None = None,
        since: str = "",
        anchors: AnchorLog | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Verification:
        """Replays a journal with the code of today and names the first entry that does not fit.

        Args:
            name: The name of the budget.
            receipt: The journal must also hold the entry that it was given for, which shows a
                journal that someone wrote anew from start to end.
            head: As a receipt: a hash that an entry must have, from an earlier `Statement`.
            since: The `memory` of an earlier verification: only entries after it are replayed,
                and the last one before must still be there.
            anchors: What `AnchorLog.read` read: the journal must hold every entry they name.
            progress: Is told now and then how many entries are done, and of how many.

        Raises:
            JournalError: The anchors are of another ledger.
        """
        if anchors is not None:
            anchors.require_of(self.identity)
        found = audit.verify(
            self._desk, name, receipt=receipt, head=head, since=since, progress=progress
        )
        return found if anchors is None else anchors.compared(found, self[name].holds)

    def anchor(
        self, file: str | os.PathLike[str], *, signing_key: str | os.PathLike[str] | None = None
    ) -> list[Anchor]:
        """Appends to a file, for others to keep, where journals end that moved since its last line.

        Args:
            file: The anchors so far; made if it is not there. Give copies to people who do not
                own the database: `verify` with `anchors` then finds what was rewritten.
            signing_key: The file with the key that signs, made with the first anchor. A service
                has its own.

        Returns:
            What was appended: nothing if nothing moved.

        Raises:
            JournalError: A journal lost an entry that was anchored, or the file was changed.
        """
        from dosimeter.ledger import anchors

        def sign(new: bool) -> Sign:
            return self._signing(None if signing_key is None else Path(signing_key), new)

        return anchors.extend(
            Path(file), self._heads, lambda name, *at: self[name].holds(*at), sign
        )

    def _signing(self, key: Path | None, new: bool) -> Sign:
        from dosimeter.ledger.anchors import Anchor
        from dosimeter.ledger.signing import Signer

        if key is None:
            raise ValueError("signing_key must name the file with the key that signs, got none")
        signer = Signer.made(key) if new else Signer.read(key)

        def sign(heads: Mapping[str, tuple[int, str]], number: int, previous: str) -> Anchor:
            time = book.utc(self._desk.clock)
            place = (self.identity, number, previous)
            return Anchor.signed(signer, *place, heads, time)

        return sign

    def _heads(self) -> dict[str, tuple[int, str]]:
        """Where every journal ends."""
        found: list[Statement] = []
        while page := self.statements(after=found[-1].name if found else None):
            found += page
        for one in found:
            if one.problem:
                raise JournalError(f"budget {one.name!r} must fit to be anchored: {one.problem}")
        return {one.name: (one.entries - 1, one.head) for one in found}

    def export(self, name: str, *, to: str | None = None) -> Iterator[str]:
        """The journal as lines of JSON, the same bytes every time: a copy, or a move.

        With `to`, the `identity` of another ledger, the budget is closed here in the same breath
        and the lines leave that out; it then goes on there, and no other ledger takes it.
        """
        return transfer.export(self._desk, name, to=to)

    def import_journal(
        self, lines: Iterable[str], *, progress: Callable[[int], None] = lambda _: None
    ) -> Budget:
        """The budget that an export describes, replayed and checked before it is added.

        A copy of an open budget comes in closed: it goes on where it was exported from. One that
        was moved goes on here, if it was moved to here.

        Raises:
            JournalError: A line does not fit, or the budget was moved to another ledger. Nothing
                was added.
            BudgetExists: The name is taken.
        """
        return Budget(self._desk, transfer.import_lines(self._desk, lines, progress))

    def statements(self, *, after: str | None = None, most: int = 1000) -> list[Statement]:
        """Where budgets stand, the oldest first, at most so many of those after one of them.

        A budget whose row does not fit its journal has a `problem`, and hides no other.
        """
        return statements(self._desk, after, most)

    def __getitem__(self, name: str) -> Budget:
        """The budget of that name, as a gate."""
        with suggesting(self):
            self._desk.balance(identifier("name", name))
        return Budget(self._desk, name)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._desk.balance(name).name == name
        except BudgetNotFound:
            return False

    def __iter__(self) -> Iterator[str]:
        """The names of the budgets, the oldest first."""
        with self._desk.store.reading() as transaction:
            names = [row[0] for row in transaction.rows("names")]
        return iter(names)

    def disconnect(self) -> None:
        """Closes the idle connections; the ledger can still be used and reconnects."""
        self._desk.store.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()

    def _open_all(
        self, names: list[str], terms: Terms, purpose: str, actor: str, *, exist_ok: bool = False
    ) -> list[Budget]:
        for name in names:
            identifier("name", name)
        note = (named(actor), text("purpose", purpose))

        account = Account.open(terms)

        def work(transaction: Transaction, kept: Kept) -> None:
            time = book.utc(self._desk.clock)
            for name in names:
                if not (exist_ok and book.stands(transaction, name, terms)):
                    book.open_budget(transaction, name, account, time, *note)

        try:
            self._desk.transact(work)
        except UniqueViolation:
            if exist_ok:  # someone made it just now
                return self._open_all(names, terms, purpose, actor, exist_ok=exist_ok)
            raise BudgetExists(
                f"name must be new in this ledger, got {', '.join(map(repr, names[:3]))}; "
                "budgets are never deleted, so choose another or use the one that is there"
            ) from None
        return [Budget(self._desk, name) for name in names]
