# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: one ledger for many machines.

SELECT ... FOR UPDATE locks a budget's row before it is read, in a short transaction, so
spends from different budgets do not wait for each other. A client that vanishes holds its
lock for a minute at most. Commits are never asynchronous, whatever the server's default.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Sequence
from typing import Any

import psycopg

from dosimeter.ledger.stores.base import (
    Link,
    Store,
    Transaction,
    UniqueViolation,
    Values,
    _one_line,
)
from dosimeter.ledger.stores.errors import LedgerBusy, LedgerError, LedgerUnavailable
from dosimeter.ledger.stores.url import Place

_GRACE = 1.0
"""Seconds more than the server may wait for a lock, until it is taken for frozen."""
_IDLE_LIMIT = "60s"
_SCHEMA_LOCK = 7_346_925_208_431
"""Any number that other programs on the server are unlikely to lock."""

_REASONS = {
    "25006": "the server is read-only; nothing was recorded",
    "28": "the server does not know this user or password",
    "3D": "the server has no such database",
    "42501": "this user may not use the ledger's tables",
    "53100": "the server's disk is full; nothing was recorded",
    "53300": "the server has no connection left; nothing was recorded",
    "57P03": "the server is starting or stopping; nothing was recorded",
}


class Frozen(psycopg.OperationalError):
    """The server did not answer in time."""


class _Connection(psycopg.Connection[Any]):
    """A connection that waits for no answer longer than it may."""

    limit = 0.0

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return super().wait(_limited(gen, self.limit), *args, **options)


def _limited(gen: Any, seconds: float) -> Generator[Any, Any, Any]:
    """What `gen` waits for, one after another, and its result if that comes in time."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise Frozen(f"the server did not answer for {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


class PostgresqlStore(Store):
    """A ledger on a PostgreSQL server."""

    backend = "postgresql"
    begin_writing = "BEGIN"
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    records_at_once = True
    errors = psycopg.Error

    def __init__(self, place: Place, timeout: float) -> None:
        self._target = place.target
        super().__init__(timeout)

    def connect(self) -> Any:
        """A new connection, on which a commit waits for the disk."""
        seconds = max(2, round(self._timeout))
        try:
            connection = _Connection.connect(self._target, connect_timeout=seconds, autocommit=True)
        except psycopg.ProgrammingError:
            # Its words may hold a piece of the password.
            raise ValueError(
                "url must be one that libpq understands, postgresql://user:password@host/database, "
                "with special characters of the password as %XX"
            ) from None
        connection.limit = self._timeout + _GRACE
        connection.execute(
            f"SET lock_timeout = {max(1, round(self._timeout * 1000))};"
            f"SET idle_in_transaction_session_timeout = '{_IDLE_LIMIT}';"
            "SET default_transaction_isolation = 'read committed';"
            # A balance is compared digit by digit.
            "SET extra_float_digits = 1;"
            # Else what takes a list is planned anew each time, which takes longer than to run it.
            "SET plan_cache_mode = force_generic_plan;"
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection

    def run_and_commit(self, link: Link, text: str, values: Values) -> int:
        """How many rows the last statement of a transaction changed, once it is committed.

        Both go in one trip to the server: others wait for the lock meanwhile.
        """
        try:
            with link.connection.pipeline():
                link.cursor.execute(text, values)
                link.connection.execute("COMMIT")
        except psycopg.Error as error:
            # A pipeline that is left while the server does not answer says only that it is busy.
            raise error.__context__ if isinstance(error.__context__, Frozen) else error from None
        changed: int = link.cursor.rowcount
        return changed

    def several(self, values: Sequence[object]) -> object:
        """Several values as one value of a statement: an array."""
        return list(values)

    def pairs(self, names: list[str], seen: list[int]) -> dict[str, object]:
        """Two arrays."""
        return {"names": names, "seen": seen}

    def require_tables(self, *, make: bool = True) -> None:
        """Make the tables where there are none, and warn if the server keeps no promise."""
        super().require_tables(make=make)
        with self.reading() as transaction:
            if transaction.sql("SHOW fsync") == [("off",)]:
                warnings.warn(
                    "fsync must be on for what is spent to outlive a power cut, got off on this "
                    "server; switch it on",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _has_tables(self, transaction: Transaction) -> bool:
        # A query sees what was committed before it; to_regclass may remember what was not.
        found = transaction.sql(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'dosimeter_schema' "
            "AND schemaname = ANY (current_schemas(false))"
        )
        if len(found) > 1:
            names = ", ".join(str(row[0]) for row in found)
            raise LedgerError(
                f"search_path must lead to one ledger, got those in schemas {names}; name one in "
                "the URL: ?options=-csearch_path%3DSCHEMA"
            )
        return bool(found)

    def _require_no_other(self, transaction: Transaction) -> None:
        if "search_path" in self._target:
            return  # whoever names a schema means it
        found = transaction.sql(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'dosimeter_schema'"
        )
        if found:
            raise LedgerError(
                f"database must hold one ledger, got one in schema {found[0][0]} and none in this "
                "user's; name the schema in the URL: ?options=-csearch_path%3DSCHEMA"
            )

    def _lock_schema(self, transaction: Transaction) -> None:
        transaction.sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")

    def _is_lost(self, connection: Any, error: Exception) -> bool:
        if isinstance(error, Frozen):
            # It must not be waited for again, nor can it be told anything.
            connection.close()
            return False
        return bool(connection.closed) and isinstance(error, psycopg.OperationalError)

    def _failure(self, error: BaseException, *, committing: bool = False) -> LedgerError:
        code = getattr(error, "sqlstate", None) or ""
        text = _one_line(error)
        if isinstance(error, Frozen):
            known = "it may have been recorded" if committing else "nothing was recorded"
            return LedgerUnavailable(f"{text}, and {known}; retry with the same key", committing)
        if code in ("55P03", "40P01", "40001"):
            return LedgerBusy(f"the budget stayed locked for {self._timeout:g} s: {text}; retry")
        if code == "23505":
            return UniqueViolation(text)
        for start, reason in _REASONS.items():
            if code.startswith(start):
                return LedgerUnavailable(f"{reason} ({text})")
        return LedgerUnavailable(f"PostgreSQL failed and nothing was acknowledged: {text}")
