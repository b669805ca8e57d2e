# SPDX-License-Identifier: Apache-2.0
"""Store: transactions on one database, and what its failures mean to a ledger.

A writing transaction holds the locks it needs before it asks anything; a reading one sees
one moment and blocks nobody. Every failure of a driver leaves here as one of the ledger's
errors, and a transaction that did not commit has changed nothing. The store knows no
privacy; the ledger knows no driver.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from dosimeter.ledger.stores import forks, schema, tables
from dosimeter.ledger.stores.errors import (
    ConnectionLost,
    LedgerError,
    LedgerUnavailable,
    SchemaMismatch,
)

Values = dict[str, Any] | tuple[Any, ...]
"""What a statement is given, by names or by their order."""


class UniqueViolation(LedgerError):
    """A row with this name, key or reference is there already."""


class Link(NamedTuple):
    """A connection and the cursor that its transactions share, one after another."""

    connection: Any
    cursor: Any
    process: int
    place: object = None
    """What the connection leads to, where that can be taken away under it: a file."""


class Transaction:
    """Statements that are recorded together when the block ends, or not at all."""

    def __init__(self, store: Store, begin: str | None) -> None:
        self._store = store
        self._begin = begin
        self._entered = self._open = False
        # What is a transaction of its own is committed as it is run.
        self._committed = begin is None

    def __enter__(self) -> Transaction:
        try:
            self._entered = True
            forks.enter()
            self._link = link = self._store.link()
            self._cursor = link.cursor
            self._open = True
            if self._begin is not None:
                self._run(self._begin, None)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end()
            return
        try:
            if not self._committed:
                self._commit()
            self._store.require_in_place(self._link)
            self._open = False
            self._store.keep(self._link)
        finally:
            self.end()

    def end(self) -> None:
        """Rolls back what is open; nothing happens if nothing is.

        Whoever holds a transaction calls it again where an interrupt came between: what stays
        open keeps everybody else waiting for as long as somebody looks at the traceback.
        """
        try:
            if self._open:
                self._store.undo(self._link)
                self._open = False
        finally:
            if self._entered:
                self._entered = False
                forks.leave()

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement of `schema.STATEMENTS` gives."""
        self._run(self._store.statements[statement], values)
        return self._fetched()

    def run(self, statement: str, values: Values) -> int:
        """How many rows a statement of `schema.STATEMENTS` changed."""
        self._run(self._store.statements[statement], values, committing=self._committed)
        changed: int = self._cursor.rowcount
        return changed

    def each(self, statement: str, values: Iterable[Values]) -> int:
        """How many rows a statement of `schema.STATEMENTS` changed for all of some values."""
        try:
            self._cursor.executemany(self._store.statements[statement], values)
        except self._store.errors as error:
            raise self._failure(error) from error
        changed: int = self._cursor.rowcount
        return changed

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Runs SQL of the store's own, without values."""
        self._run(text, None)
        return self._fetched() if self._cursor.description else []

    def record(
        self, moves: list[tuple[Any, ...]], lines: list[tuple[Any, ...]], *, last: bool = False
    ) -> bool:
        """Moves balances and appends their lines; False if one of them was elsewhere.

        What is the `last` of a transaction may be committed with it: a balance that was elsewhere
        has then changed nothing.
        """
        wanted = len(moves)
        if last and wanted == 1 and self._store.records_at_once:
            return self._record_and_commit(moves, lines)
        for statement, values in self._store.recording(moves, lines):
            changed = (
                self.run(statement, values[0]) if wanted == 1 else self.each(statement, values)
            )
            if changed != wanted:
                return False
        return True

    def _record_and_commit(
        self, moves: list[tuple[Any, ...]], lines: list[tuple[Any, ...]]
    ) -> bool:
        ((statement, (values,)),) = self._store.recording(moves, lines)
        try:
            changed = self._store.run_and_commit(
                self._link, self._store.statements[statement], values
            )
        except self._store.errors as error:
            raise self._failure(error, committing=True) from error
        self._committed = True
        return changed == 1

    def several(self, values: Sequence[object]) -> object:
        """Values that a statement of `schema.STATEMENTS` takes at once."""
        return self._store.several(values)

    def pairs(self, names: list[str], seen: list[int]) -> dict[str, object]:
        """Names, each with a number, as "lock" takes them."""
        return self._store.pairs(names, seen)

    def _run(self, text: str, values: Values | None, *, committing: bool = False) -> None:
        try:
            self._store.execute(self._cursor, text, values)
        except self._store.errors as error:
            raise self._failure(error, committing=committing) from error

    def _fetched(self) -> list[tuple[Any, ...]]:
        try:
            found: list[tuple[Any, ...]] = self._cursor.fetchall()
        except self._store.errors as error:
            raise self._failure(error) from error
        return found

    def _commit(self) -> None:
        try:
            self._link.connection.commit()
        except self._store.errors as error:
            raise self._failure(error, committing=True) from error

    def _failure(self, error: Exception, *, committing: bool = False) -> LedgerError:
        return self._store.failure(error, self._link.connection, committing=committing)


class Store(ABC):
    """A database with the ledger's tables, and the connections to it.

    A connection is kept for the next transaction once one has ended on it cleanly; there
    are as many as transactions ran at once.
    """

    backend: str
    begin_writing: str
    """What opens a writing transaction."""
    begin_reading: str
    """What opens a transaction that sees one moment."""
    records_at_once: bool
    """Whether one statement moves a balance and appends its line, and so needs no other around."""

    errors: type[Exception]
    """What its driver raises."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._process = os.getpid()
        self._idle: list[Link] = []
        self._inherited: list[Link] = []
        self.statements = schema.statements(self.backend)

    def writing(self) -> Transaction:
        """A transaction that is committed at the end, or leaves nothing behind."""
        return Transaction(self, self.begin_writing)

    def reading(self) -> Transaction:
        """A transaction that sees one moment of the database and changes nothing."""
        return Transaction(self, self.begin_reading)

    def alone(self) -> Transaction:
        """Statements each of which is a transaction of its own, and sees one moment."""
        return Transaction(self, None)

    def recording(
        self, moves: list[tuple[Any, ...]], lines: list[tuple[Any, ...]]
    ) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """The statements that move balances and append lines; each changes a row for each."""
        if self.records_at_once:
            return [("record", [(*move, *line) for move, line in zip(moves, lines, strict=True)])]
        return [("move_on", moves), ("append", lines)]

    def require_tables(self, *, make: bool = True) -> None:
        """Make the ledger's tables where there are none and `make` allows it.

        Raises:
            SchemaMismatch: The tables are of another version than this release's.
            LedgerUnavailable: There is no ledger, and none is to be made.
        """
        with self.reading() as transaction:
            if self._is_made(transaction):
                return
            self._require_no_other(transaction)
        if not make:
            raise LedgerUnavailable(
                "the database must hold a ledger, got one without its tables, and nothing was "
                "changed; dosimeter budget create makes them"
            )
        with self.writing() as transaction:
            self._lock_schema(transaction)
            if not self._is_made(transaction):
                self._make_tables(transaction)

    def _make_tables(self, transaction: Transaction) -> None:
        for line in tables.SQL[self.backend]:
            transaction.sql(line)
        transaction.run("add_identity", {"ledger": uuid.uuid4().hex})
        now = datetime.now(UTC).isoformat(timespec="seconds")
        transaction.run("add_version", {"version": schema.VERSION, "applied": now})

    @cached_property
    def identity(self) -> str:
        """The name of this ledger among all ledgers, drawn at random when it was made."""
        with self.reading() as transaction:
            return str(transaction.rows("identity")[0][0])

    def dispose(self) -> None:
        """Closes the idle connections."""
        self._forget_the_parents()
        while self._idle:
            with suppress(Exception):
                self._idle.pop().connection.close()

    def _is_made(self, transaction: Transaction) -> bool:
        """Return whether the tables are there, in the version of this release."""
        if not self._has_tables(transaction):
            return False
        found = sorted(row[0] for row in transaction.rows("versions"))
        if found != [schema.VERSION]:
            raise SchemaMismatch(
                f"schema of the ledger must be version {schema.VERSION} for this release, got "
                f"{', '.join(map(str, found)) or 'none'}; open it with the release that made it"
            )
        return True

    def link(self) -> Link:
        """A connection for one transaction; it goes to `keep` or to `undo` afterwards."""
        self._forget_the_parents()
        place = self._place()
        while self._idle:
            link = self._idle.pop()
            if link.place == place:
                return link
            with suppress(Exception):
                link.connection.close()
        try:
            connection = self.connect()
        except self.errors as error:
            raise self._failure(error) from None
        # As it was before: a file replaced meanwhile shows as another place, never as this one.
        return Link(connection, connection.cursor(), self._process, place)

    def _forget_the_parents(self) -> None:
        """Sets aside connections that came through a fork: they are neither used nor closed."""
        if self._process != os.getpid():
            self._inherited += self._idle
            self._process, self._idle = os.getpid(), []

    def keep(self, link: Link) -> None:
        """Keeps a connection, on which a transaction has ended, for the next one."""
        (self._idle if link.process == os.getpid() else self._inherited).append(link)

    def require_in_place(self, link: Link) -> None:
        """Raises ConnectionLost if what a transaction was recorded in is no longer there."""
        try:
            same = link.place is None or link.place == self._place()
        except LedgerUnavailable:
            same = False
        if not same:
            raise ConnectionLost(
                "the file of the ledger was removed or replaced while it was written; whether "
                "the spend is in the one that is there now is unknown: retry with the same key",
                outcome_unknown=True,
            )

    def _place(self) -> object:
        """What a new connection would lead to, where that can change; None where it cannot."""
        return None

    def execute(self, cursor: Any, text: str, values: Values | None) -> None:
        """Runs a statement; a driver that does not wait for locks is asked again."""
        cursor.execute(text, values)

    def run_and_commit(self, link: Link, text: str, values: Values) -> int:
        """How many rows the last statement of a transaction changed, once it is committed.

        Only where a statement records at once.
        """
        raise NotImplementedError

    def undo(self, link: Link) -> None:
        """Rolls back what is open on a connection."""
        if link.process != os.getpid():
            self._inherited.append(link)
            return
        try:
            link.connection.rollback()
        except BaseException as error:
            # Whatever rollback could not reach is rolled back when the connection ends.
            with suppress(Exception):
                link.connection.close()
            if not isinstance(error, Exception):
                raise
        else:
            self.keep(link)

    def failure(
        self, error: Exception, connection: Any, *, committing: bool = False
    ) -> LedgerError:
        """The ledger's error for a failure of the driver in a transaction."""
        if not self._is_lost(connection, error):
            return self._failure(error, committing=committing)
        # The others lead to the same server; they are as dead as this one.
        self.dispose()
        known = "it may have been recorded" if committing else "nothing was recorded"
        return ConnectionLost(
            f"the connection to the ledger was lost and {known}; retry with the same key: "
            f"{_one_line(error)}",
            outcome_unknown=committing,
        )

    @abstractmethod
    def several(self, values: Sequence[object]) -> object:
        """Several values as one value of a statement."""

    @abstractmethod
    def pairs(self, names: list[str], seen: list[int]) -> dict[str, object]:
        """Names, each with a number, as "lock" takes them."""

    @abstractmethod
    def connect(self) -> Any:
        """A new connection of the driver, which commits nothing that is not on the disk."""

    @abstractmethod
    def _is_lost(self, connection: Any, error: Exception) -> bool:
        """Whether a failure means that a connection is of no more use."""

    @abstractmethod
    def _require_no_other(self, transaction: Transaction) -> None:
        """Raises if a ledger made here would stand beside another one without anybody seeing."""

    @abstractmethod
    def _has_tables(self, transaction: Transaction) -> bool:
        """Whether a ledger has been made here."""

    @abstractmethod
    def _lock_schema(self, transaction: Transaction) -> None:
        """Keep other clients from making the tables until this transaction ends."""

    @abstractmethod
    def _failure(self, error: BaseException, *, committing: bool = False) -> LedgerError:
        """The ledger's error for a failure of the driver."""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
