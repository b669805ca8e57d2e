# SPDX-License-Identifier: Apache-2.0
"""The statements that the ledger runs on its tables.

Parameters are stored once under their own hash, so many blocks share a row and an edit
shows. A budget's row is its balance: the running sums and the head of its journal, small
because it is rewritten with every spend. The journal only grows. A value is written `:name`, as
SQLite does; the words of each statement are those that both databases understand.
"""

from __future__ import annotations

import re

from dosimeter.ledger.stores.errors import LedgerError

VERSION = 1

ROOM = 36
"""A line's place is its budget's id, shifted by so many bits, plus its sequence."""

COLUMNS = (
    *("id", "name", "parameters", "sequence", "head", "epsilon", "sums", "closed", "checksum"),
)
"""Those of a balance that is read; what comes after them is what it must fit."""
BALANCE = len(COLUMNS)

_MOVING = COLUMNS[3:]
_AT = ("id", *_MOVING)
_LINE = ("place", "key", "reference", "hash", "body")

_FOUND = f"""
SELECT {", ".join(f"b.{name}" for name in COLUMNS)}, j.hash, j.body,
    EXISTS (
        SELECT 1 FROM dosimeter_journal
        WHERE place > (b.id << {ROOM}) + b.sequence AND place < (b.id + 1) << {ROOM}
    ),
    (SELECT s.hash FROM dosimeter_journal s WHERE s.place = (b.id << {ROOM}) + {{seen}})
FROM {{wanted}}
LEFT JOIN dosimeter_journal j ON j.place = (b.id << {ROOM}) + b.sequence
"""
_BALANCES = _FOUND.format(seen=":seen", wanted="dosimeter_budgets b")

_LINES = "SELECT place, key, reference, hash, body FROM dosimeter_journal"
# Spelt as in its index, which is found by its words.
_BY_KEY = f"{_LINES} WHERE (place >> {ROOM})"
_BETWEEN = f"{_LINES} WHERE place >= :start AND place < :end ORDER BY place"
# By place and not by name, which takes longer: where a balance goes, then where it was.
_MOVE_ON = (
    f"UPDATE dosimeter_budgets SET {', '.join(f'{name} = ?' for name in _MOVING)} "
    f"WHERE {' AND '.join(f'{name} = ?' for name in _AT)}"
)
_APPEND = f"INSERT INTO dosimeter_journal ({', '.join(_LINE)})"

_STATEMENTS = {
    "versions": "SELECT version FROM dosimeter_schema",
    "add_version": "INSERT INTO dosimeter_schema (version, applied) VALUES (:version, :applied)",
    "identity": "SELECT ledger FROM dosimeter_identity",
    "add_identity": "INSERT INTO dosimeter_identity (ledger) VALUES (:ledger)",
    "names": "SELECT name FROM dosimeter_budgets ORDER BY id",
    "balance": f"{_BALANCES} WHERE b.name = :name",
    "balances": f"{_BALANCES} WHERE b.id > :after ORDER BY b.id LIMIT :size",
    "open": (
        f"INSERT INTO dosimeter_budgets ({', '.join(COLUMNS[1:])}) "
        f"VALUES ({', '.join(f':{name}' for name in COLUMNS[1:])}) RETURNING id"
    ),
    "add_parameters": (
        "INSERT INTO dosimeter_parameters (hash, body) VALUES (:hash, :body) "
        # Two clients may add the same parameters at once; they are the same row.
        "ON CONFLICT DO NOTHING"
    ),
    "parameters": "SELECT body FROM dosimeter_parameters WHERE hash = :hash",
    "append": f"{_APPEND} VALUES ({', '.join('?' for _ in _LINE)})",
    "by_place": f"{_LINES} WHERE place = :at",
    "page": f"{_BETWEEN} LIMIT :size",
    "latest": f"{_BETWEEN} DESC LIMIT :size",
}

# Several values at once are a list of JSON for SQLite, and an array for PostgreSQL.
_SQLITE = {
    # BEGIN IMMEDIATE has locked everything.
    "lock_one": f"{_BALANCES} WHERE b.name = :name",
    "lock": _FOUND.format(
        # An object of JSON: names, and what was seen of each.
        seen="w.value",
        wanted="json_each(:wanted) w JOIN dosimeter_budgets b ON b.name = w.key",
    ),
    "several": f"{_BALANCES} WHERE b.name IN (SELECT value FROM json_each(:names))",
    "move_on": _MOVE_ON,
    "by_key": f"{_BY_KEY} IN (SELECT value FROM json_each(:budgets)) AND key = :key",
}
_POSTGRESQL = {
    # Rows are read after the lock is there, in a moment of their own.
    "lock_one": (
        "SELECT * FROM dosimeter_locked(ARRAY[CAST(:name AS TEXT)], ARRAY[CAST(:seen AS BIGINT)])"
    ),
    "lock": "SELECT * FROM dosimeter_locked(CAST(:names AS TEXT[]), CAST(:seen AS BIGINT[]))",
    "several": f"{_BALANCES} WHERE b.name = ANY (:names)",
    "by_key": f"{_BY_KEY} = ANY (:budgets) AND key = :key",
    # Both in one statement, a trip to the server less; it appends nothing if it moved nothing.
    "record": (
        f"WITH moved AS ({_MOVE_ON} RETURNING id) {_APPEND} SELECT CAST(? AS BIGINT), "
        "CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT) FROM moved"
    ),
}


def place(budget_id: int, sequence: int) -> int:
    """Where a line of a budget's journal stands among all lines."""
    return (budget_id << ROOM) + sequence


def require_room(budget_id: int) -> None:
    """Raises unless the places of a budget, and the one after them, fit in 64 bits."""
    if not budget_id < (1 << 63 - ROOM) - 1:
        raise LedgerError(
            f"ledger must hold fewer than 2**{63 - ROOM} budgets, got number {budget_id}; "
            "begin another ledger for new data sets"
        )


def statements(backend: str) -> dict[str, str]:
    """Every statement, in the words of one database's driver."""
    if backend == "sqlite":
        return {**_STATEMENTS, **_SQLITE}
    theirs = {**_STATEMENTS, **_POSTGRESQL}
    return {
        name: re.sub(r":(\w+)", r"%(\1)s", text).replace("?", "%s") for name, text in theirs.items()
    }
