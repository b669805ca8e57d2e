# SPDX-License-Identifier: Apache-2.0
"""SQLite: a ledger in one file, for one machine and no server.

BEGIN IMMEDIATE takes the only write lock before anything is read, so check and append
cannot be parted; WAL lets readers go on meanwhile; synchronous EXTRA (FULL, and the
directory where there is no WAL) puts a commit on the disk before it is acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dosimeter.ledger.stores.base import (
    Store,
    Transaction,
    UniqueViolation,
    Values,
    _one_line,
)
from dosimeter.ledger.stores.errors import LedgerBusy, LedgerError, LedgerUnavailable
from dosimeter.ledger.stores.url import Place, not_a_file

_WRITE_LOCK = 120
"""The byte of the -shm file whose lock SQLite's writers hold (its file format, section 2.3.1)."""

_CACHE = 16_000
"""Kilobytes of pages; a spend from a thousand blocks changes six thousand of them."""

_LOGGED = 4000
"""Pages in the log before they are copied into the file; by SQLite's own 1,000, a spend from a
thousand blocks would copy with every commit."""

_PRIMARY = 0xFF
"""The bits of an error's code that say what it is; the others say why."""

_SHORTEST, _LONGEST = 0.0002, 0.05
"""Seconds between two looks at a lock."""
_dice = random.Random()

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
    records_at_once = False
    errors = sqlite3.Error

    def __init__(self, place: Place, timeout: float) -> None:
        self._target = place
        self._file = place.file
        self._made = False
        super().__init__(timeout)

    def connect(self) -> Any:
        """A new connection, on which a commit waits for the disk."""
        connection = sqlite3.connect(
            self._target.target,
            timeout=0.0,  # see `execute`
            isolation_level=None,
            check_same_thread=False,  # one thread after another
            uri=self._target.uri,
        )
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(f"PRAGMA cache_size = -{_CACHE}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOGGED}")
        connection.text_factory = _text
        return connection

    def execute(self, cursor: Any, text: str, values: Values | None) -> None:
        """Runs a statement once the lock that it needs is free.

        SQLite itself asks again after up to a tenth of a second, whatever it waits for: where many
        spend from one file, everybody sleeps while nobody holds the lock. Here a wait is
        longer than it need be by about an eighth.
        """
        began = 0.0
        while True:
            try:
                cursor.execute(text, values or ())
                return
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - began if began else 0.0
                busy = error.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY
                if not busy or waited >= self._timeout:
                    raise
            began = began or time.monotonic()
            # Nobody is to come always at the same time as somebody else.
            pause = min(max(waited / 8, _SHORTEST), _LONGEST) * _dice.uniform(0.5, 1.5)
            time.sleep(min(pause, max(self._timeout - waited, _SHORTEST)))

    def several(self, values: Sequence[object]) -> object:
        """Several values as one value of a statement: a list of JSON."""
        return json.dumps(values)

    def pairs(self, names: list[str], seen: list[int]) -> dict[str, object]:
        """An object of JSON; two lists would be joined by walking one for each of the other."""
        return {"wanted": json.dumps(dict(zip(names, seen, strict=True)))}

    def require_tables(self, *, make: bool = True) -> None:
        """Make the tables where there are none, and bring the file into WAL mode."""
        if make and not os.path.exists(self._file):
            # What is spent is nobody else's business, unless the owner says so.
            with suppress(OSError):
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if make or self._is_ledger():
            self._use_wal()
        super().require_tables(make=make)
        self._made = True

    def _is_ledger(self) -> bool:
        """Whether the file has a ledger's tables; it is not made, nor changed."""
        if not os.path.exists(self._file):
            raise LedgerUnavailable(
                f"the file of the ledger must exist, got {self._file!r}; dosimeter budget create "
                "makes one"
            )
        with self.reading() as transaction:
            return self._has_tables(transaction)

    def _use_wal(self) -> None:
        """Switches the file to WAL, once; SQLite does not wait for others there by itself."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                with Transaction(self, None) as outside:
                    mode = outside.sql("PRAGMA journal_mode")
                    if mode == [("memory",)]:
                        raise not_a_file()
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

    def _require_no_other(self, transaction: Transaction) -> None:
        """A file holds one."""

    def _lock_schema(self, transaction: Transaction) -> None:
        """BEGIN IMMEDIATE has done it."""

    def _is_lost(self, connection: Any, error: Exception) -> bool:
        return isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error)

    def _failure(self, error: BaseException, *, committing: bool = False) -> LedgerError:
        name = getattr(error, "sqlite_errorname", None) or ""
        text = _one_line(error)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            waited = f"{self._timeout:g} s{self._holders()}"
            return LedgerBusy(f"the ledger stayed locked for {waited}: {text}; retry")
        if name.startswith("SQLITE_CONSTRAINT"):
            return UniqueViolation(text)
        if committing and name.startswith("SQLITE_IOERR"):
            return LedgerUnavailable(
                f"the disk failed as it was written, and it may have been recorded ({text}); "
                "retry with the same key",
                outcome_unknown=True,
            )
        for start, reason in _REASONS.items():
            if name.startswith(start):
                return LedgerUnavailable(f"{reason} ({text})")
        return LedgerUnavailable(f"SQLite failed and nothing was acknowledged: {text}")

    def _holders(self) -> str:
        """Who holds the lock, where the system says so."""
        with suppress(OSError, ValueError, IndexError):
            inode = os.stat(f"{self._file}-shm").st_ino
            rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            held = {
                int(row[4])
                for row in rows
                if "->" not in row
                and row[1:4] == ["POSIX", "ADVISORY", "WRITE"]
                and row[5].endswith(f":{inode}")
                and int(row[6]) <= _WRITE_LOCK <= int(row[7])
            }
            if held:
                return " by " + ", ".join(map(_described, sorted(held)))
        return ""


def _text(value: bytes) -> str:
    """A text of a row; one that was edited into none is found by its hash, and not by an error."""
    return value.decode("utf-8", "surrogateescape")


def _described(process: int) -> str:
    """A process and what it does, where the system says so."""
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            return f"process {process}, which is stopped (kill -CONT {process} lets it go on)"
    return f"process {process}"
