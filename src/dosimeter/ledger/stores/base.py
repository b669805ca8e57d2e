# SPDX-License-Identifier: Apache-2.0
"""Store: transactions on one database, and what its failures mean to a ledger.

A writing transaction holds the locks it needs before it asks anything; a reading one sees
one moment and blocks nobody. Every failure of a driver leaves here as one of the ledger's
errors, and a transaction that did not commit has changed nothing. The store knows no
privacy; the ledger knows no driver.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dosimeter.ledger import schema
from dosimeter.ledger.errors import ConnectionLost, LedgerBusy, LedgerError, SchemaTooNew
from dosimeter.ledger.migrations import MIGRATIONS
from dosimeter.ledger.schema import Prepared


class UniqueViolation(LedgerError):
    """A row with this name, key or reference is there already."""


class Transaction:
    """Statements inside one transaction."""

    def __init__(self, store: Store, connection: Any) -> None:
        self._store = store
        self._connection = connection
        self._cursor = connection.cursor()

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement of `schema.STATEMENTS` gives."""
        self._execute(self._store.statements[statement], values)
        found: list[tuple[Any, ...]] = self._cursor.fetchall()
        return found

    def run(self, statement: str, **values: Any) -> int:
        """How many rows a statement of `schema.STATEMENTS` changed."""
        self._execute(self._store.statements[statement], values)
        changed: int = self._cursor.rowcount
        return changed

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Runs SQL of the store's own, without values."""
        with self._store.failures(self._connection):
            self._cursor.execute(text)
        found: list[tuple[Any, ...]] = self._cursor.fetchall() if self._cursor.description else []
        return found

    def _execute(self, statement: Prepared, values: dict[str, Any]) -> None:
        with self._store.failures(self._connection):
            self._cursor.execute(statement.text, statement.arguments(values))


class Store(ABC):
    """A database with the ledger's tables."""

    backend: str

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._engine = engine
        self._timeout = timeout
        self._process = os.getpid()
        self._errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        self.statements = schema.prepare(engine.dialect)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that is committed at the end, or leaves nothing behind."""
        with self._transaction(self._begin_writing()) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one moment of the database and changes nothing."""
        with self._transaction(self._begin_reading()) as transaction:
            yield transaction

    def migrate(self) -> None:
        """Brings the tables up to date.

        Raises:
            SchemaTooNew: A newer release has been here.
        """
        with self.reading() as transaction:
            if self._version(transaction) == schema.VERSION:
                return
        with self.writing() as transaction:
            self._lock_schema(transaction)
            version = self._version(transaction)
            for migration in MIGRATIONS[version:]:
                if migration.number == 1:
                    transaction.sql(
                        "CREATE TABLE dosimeter_schema "
                        "(version INTEGER PRIMARY KEY, applied TEXT NOT NULL)"
                    )
                for line in migration.sql[self.backend]:
                    transaction.sql(line)
                now = datetime.now(UTC).isoformat(timespec="seconds")
                transaction.run("add_version", version=migration.number, applied=now)

    def dispose(self) -> None:
        """Closes the idle connections."""
        self._engine.dispose()

    def _version(self, transaction: Transaction) -> int:
        if not self._has_tables(transaction):
            return 0
        version = max((row[0] for row in transaction.rows("versions")), default=0)
        if version > schema.VERSION:
            raise SchemaTooNew(
                f"schema of the ledger must be at most {schema.VERSION} for this release, "
                f"got {version}; upgrade dosimeter"
            )
        return int(version)

    @contextmanager
    def _transaction(self, begin: str | None) -> Iterator[Transaction]:
        connection = self._connection()
        try:
            transaction = Transaction(self, connection)
            if begin is not None:
                transaction.sql(begin)
            yield transaction
            with self.failures(connection, committing=True):
                connection.commit()
        except BaseException:
            self._undo(connection)
            raise
        finally:
            connection.close()

    def _connection(self) -> Any:
        if self._process != os.getpid():
            # A connection inherited by fork is still the parent's.
            self._engine.dispose(close=False)
            self._process = os.getpid()
        try:
            return self._engine.raw_connection()
        except PoolTimeout as error:
            raise LedgerBusy(f"no connection became free in time: {error}") from error
        except DBAPIError as error:
            raise self._failure(error.orig or error) from error
        except self._errors as error:
            raise self._failure(error) from error

    def _undo(self, connection: Any) -> None:
        try:
            connection.rollback()
        except Exception:
            # Whatever rollback could not reach is rolled back when the connection ends.
            with suppress(Exception):
                connection.invalidate()

    @contextmanager
    def failures(self, connection: Any, *, committing: bool = False) -> Iterator[None]:
        """Turns a failure of the driver into the ledger's error for it."""
        try:
            yield
        except self._errors as error:
            driver = connection.dbapi_connection
            if not self._engine.dialect.is_disconnect(error, driver, None):  # type: ignore[arg-type]
                raise self._failure(error) from error
            connection.invalidate()
            self._engine.dispose()
            known = "it may have been recorded" if committing else "nothing was recorded"
            raise ConnectionLost(
                f"the connection to the ledger was lost and {known}; retry with the same key: "
                f"{_one_line(error)}",
                outcome_unknown=committing,
            ) from error

    @abstractmethod
    def _begin_writing(self) -> str | None:
        """What opens a writing transaction, if the driver does not."""

    @abstractmethod
    def _begin_reading(self) -> str | None:
        """What opens a transaction that sees one moment."""

    @abstractmethod
    def _has_tables(self, transaction: Transaction) -> bool:
        """Whether a ledger has been made here."""

    @abstractmethod
    def _lock_schema(self, transaction: Transaction) -> None:
        """Keeps others from migrating until this transaction ends."""

    @abstractmethod
    def _failure(self, error: BaseException) -> LedgerError:
        """The ledger's error for a failure of the driver."""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
