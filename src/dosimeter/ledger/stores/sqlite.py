# SPDX-License-Identifier: Apache-2.0
"""SQLite: a ledger in one file, for one machine and no server.

BEGIN IMMEDIATE takes the only write lock before anything is read, so check and append
cannot be parted; WAL lets readers go on meanwhile; synchronous EXTRA (FULL, and the
directory where there is no WAL) puts a commit on the disk before it is acknowledged.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from sqlalchemy import URL, create_engine, event
from sqlalchemy.pool import NullPool

from dosimeter.ledger.stores.base import Store, Transaction, UniqueViolation, _one_line
from dosimeter.ledger.stores.errors import LedgerBusy, LedgerError, LedgerUnavailable

_REASONS = {
    "SQLITE_FULL": "the disk is full; nothing was recorded",
    "SQLITE_READONLY": "the file is read-only; nothing was recorded",
    "SQLITE_CANTOPEN": "the file cannot be opened; does its folder exist?",
    "SQLITE_IOERR": "the disk failed; nothing was acknowledged",
    "SQLITE_CORRUPT": "the file is damaged; restore it from a backup",
    "SQLITE_NOTADB": "the file is not an SQLite database",
    "SQLITE_PERM": "the file may not be used",
    "SQLITE_AUTH": "the file may not be used",
}


class SqliteStore(Store):
    """A ledger in an SQLite file."""

    backend = "sqlite"
    begin_writing = "BEGIN IMMEDIATE"
    begin_reading = "BEGIN"
    recording = ("move_on", "append")

    def __init__(self, url: URL, timeout: float) -> None:
        if url.database in (None, "", ":memory:"):
            raise _not_a_file(url)
        self._url = url
        engine = create_engine(
            url.set(drivername="sqlite+pysqlite"),
            connect_args={"timeout": timeout, "isolation_level": None},
            poolclass=NullPool,
        )
        event.listen(engine, "connect", _make_durable)
        super().__init__(engine, timeout)

    def migrate(self) -> None:
        """Brings the tables up to date, and the file into WAL mode."""
        self._use_wal()
        super().migrate()

    def _use_wal(self) -> None:
        """Switches the file to WAL, once; SQLite does not wait for others there by itself."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                with Transaction(self, None) as outside:
                    mode = outside.sql("PRAGMA journal_mode")
                    if mode == [("memory",)]:
                        raise _not_a_file(self._url)
                    if mode != [("wal",)]:
                        outside.sql("PRAGMA journal_mode = WAL")
                return
            except LedgerBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)

    def _has_tables(self, transaction: Transaction) -> bool:
        found = transaction.sql("SELECT 1 FROM sqlite_master WHERE name = 'dosimeter_schema'")
        return bool(found)

    def _lock_schema(self, transaction: Transaction) -> None:
        """BEGIN IMMEDIATE has done it."""

    def _failure(self, error: BaseException) -> LedgerError:
        name = getattr(error, "sqlite_errorname", None) or ""
        text = _one_line(error)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return LedgerBusy(f"the ledger stayed locked for {self._timeout:g} s: {text}; retry")
        if name.startswith("SQLITE_CONSTRAINT"):
            return UniqueViolation(text)
        for start, reason in _REASONS.items():
            if name.startswith(start):
                return LedgerUnavailable(f"{reason} ({text})")
        return LedgerUnavailable(f"SQLite failed and nothing was acknowledged: {text}")


def _not_a_file(url: URL) -> ValueError:
    return ValueError(
        f"url must name a file, because a ledger outlives the process, got {url}; use "
        "dosimeter.Filter for a budget in memory"
    )


def _make_durable(connection: sqlite3.Connection, _: Any) -> None:
    connection.execute("PRAGMA synchronous = EXTRA")
    # A text that was edited into none is found by its hash, and not by an error of the driver.
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
