# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: one ledger for many machines.

SELECT ... FOR UPDATE locks a budget's row before it is read, in a short transaction, so
spends from different budgets do not wait for each other. A client that vanishes holds its
lock for a minute at most. Commits are never asynchronous, whatever the server's default.
"""

from __future__ import annotations

import warnings
from typing import Any

from sqlalchemy import URL, create_engine, event
from sqlalchemy.pool import NullPool

from dosimeter.ledger.stores.base import Store, Transaction, UniqueViolation, _one_line
from dosimeter.ledger.stores.errors import LedgerBusy, LedgerError, LedgerUnavailable

_IDLE_LIMIT = "60s"
_MIGRATION_LOCK = 7_346_925_208_431
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


class PostgresqlStore(Store):
    """A ledger on a PostgreSQL server."""

    backend = "postgresql"
    begin_writing = None
    begin_reading = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    # Both in one statement: one trip to the server less.
    recording = ("record",)

    def __init__(self, url: URL, timeout: float) -> None:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={"connect_timeout": max(2, round(timeout))},
            poolclass=NullPool,
        )
        lock_timeout = max(1, round(timeout * 1000))

        @event.listens_for(engine, "connect")
        def _make_durable(connection: Any, _: Any) -> None:
            connection.execute(
                f"SET lock_timeout = {lock_timeout};"
                f"SET idle_in_transaction_session_timeout = '{_IDLE_LIMIT}';"
                "SET default_transaction_isolation = 'read committed';"
                # A balance is compared digit by digit.
                "SET extra_float_digits = 1;"
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
            connection.commit()

        super().__init__(engine, timeout)

    def migrate(self) -> None:
        """Brings the tables up to date, and warns if the server keeps no promise."""
        super().migrate()
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
            "SELECT 1 FROM pg_tables WHERE tablename = 'dosimeter_schema' "
            "AND schemaname = ANY (current_schemas(false))"
        )
        return bool(found)

    def _lock_schema(self, transaction: Transaction) -> None:
        transaction.sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")

    def _failure(self, error: BaseException) -> LedgerError:
        code = getattr(error, "sqlstate", None) or ""
        text = _one_line(error)
        if code in ("55P03", "40P01", "40001"):
            return LedgerBusy(f"the budget stayed locked for {self._timeout:g} s: {text}; retry")
        if code == "23505":
            return UniqueViolation(text)
        for start, reason in _REASONS.items():
            if code.startswith(start):
                return LedgerUnavailable(f"{reason} ({text})")
        return LedgerUnavailable(f"PostgreSQL failed and nothing was acknowledged: {text}")
