# SPDX-License-Identifier: Apache-2.0
"""SQLite: a ledger in one file, for one machine and no server.

BEGIN IMMEDIATE takes the only write lock before anything is read, so check and append
cannot be parted; WAL lets readers go on meanwhile; synchronous EXTRA (FULL, and the
directory where there is no WAL) puts a commit on the disk before it is acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

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
        if not str(url.database).startswith("file:"):
            # Later connections lead to the same file, whatever folder the process is in by then.
            url = url.set(database=os.path.abspath(str(url.database)))
        self._url = url
        self._file = _path(url)
        self._made = False
        engine = create_engine(
            url.set(drivername="sqlite+pysqlite"),
            connect_args={"timeout": timeout, "isolation_level": None},
            poolclass=NullPool,
        )
        event.listen(engine, "connect", _make_durable)
        super().__init__(engine, timeout)

    def migrate(self) -> None:
        """Brings the tables up to date, and the file into WAL mode."""
        if not os.path.exists(self._file):
            # What is spent is nobody else's business, unless the owner says so.
            with suppress(OSError):
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._use_wal()
        super().migrate()
        self._made = True

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

    def _place(self) -> object:
        """The device and the inode of the file."""
        try:
            found = os.stat(self._file)
        except OSError as error:
            if not self._made:
                return None
            raise LedgerUnavailable(
                f"the file of the ledger is gone, and nothing was recorded ({_one_line(error)}); "
                "restore it, or open another ledger"
            ) from None
        return found.st_dev, found.st_ino

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


def _path(url: URL) -> str:
    """The path of the file, which SQLite also takes as a URI."""
    name = str(url.database)
    return unquote(urlsplit(name).path) if name.startswith("file:") else name


def _not_a_file(url: URL) -> ValueError:
    return ValueError(
        f"url must name a file, because a ledger outlives the process, got {url}; use "
        "dosimeter.Filter for a budget in memory"
    )


def _make_durable(connection: sqlite3.Connection, _: Any) -> None:
    connection.execute("PRAGMA synchronous = EXTRA")
    # A text that was edited into none is found by its hash, and not by an error of the driver.
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
