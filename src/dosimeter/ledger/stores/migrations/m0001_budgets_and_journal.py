# SPDX-License-Identifier: Apache-2.0
"""The first tables: parameters, budgets and the journal.

A line's place is its budget's id times 2^36 plus its sequence: one number, so that SQLite
keeps lines and their order in one tree, and a spend writes a page less.
Triggers refuse to change or remove what was written. They stop accidents; whoever owns
the database can drop them, and then the chain of hashes shows what was done.
"""

from __future__ import annotations

from collections.abc import Sequence

_PARAMETERS = """
CREATE TABLE dosimeter_parameters (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL
)"""

_BUDGETS = """
CREATE TABLE dosimeter_budgets (
    id {identity},
    name TEXT NOT NULL UNIQUE,
    parameters TEXT NOT NULL REFERENCES dosimeter_parameters (hash),
    sequence BIGINT NOT NULL,
    head TEXT NOT NULL,
    epsilon DOUBLE PRECISION NOT NULL,
    sums TEXT NOT NULL,
    closed INTEGER NOT NULL,
    checksum TEXT NOT NULL
){storage}"""

_JOURNAL = """
CREATE TABLE dosimeter_journal (
    place {place} PRIMARY KEY,
    key TEXT,
    reference BIGINT,
    hash TEXT NOT NULL,
    body TEXT NOT NULL
)"""

_INDEXES = [
    "CREATE UNIQUE INDEX dosimeter_journal_key ON dosimeter_journal ((place >> 36), key)"
    " WHERE key IS NOT NULL",
    "CREATE UNIQUE INDEX dosimeter_journal_reference ON dosimeter_journal"
    " ((place >> 36), reference) WHERE reference IS NOT NULL",
]

_KEPT = {
    "dosimeter_journal": ("UPDATE", "DELETE"),
    "dosimeter_parameters": ("UPDATE", "DELETE"),
    "dosimeter_budgets": ("DELETE",),
}


def _sqlite_trigger(table: str, change: str) -> str:
    return (
        f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are kept for good'); END"
    )


def _postgresql_triggers(table: str, changes: Sequence[str]) -> list[str]:
    return [
        f"CREATE TRIGGER {table}_kept BEFORE {' OR '.join(changes)} ON {table} "
        "FOR EACH ROW EXECUTE FUNCTION dosimeter_refuse()",
        f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION dosimeter_refuse()",
    ]


_REFUSE = """
CREATE FUNCTION dosimeter_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are kept for good', TG_TABLE_NAME;
END $$"""

SQL: dict[str, Sequence[str]] = {
    "sqlite": [
        _PARAMETERS,
        _BUDGETS.format(identity="INTEGER PRIMARY KEY", storage=""),
        # Only INTEGER makes the key the place in the tree itself.
        _JOURNAL.format(place="INTEGER"),
        *_INDEXES,
        *(_sqlite_trigger(table, change) for table in _KEPT for change in _KEPT[table]),
    ],
    "postgresql": [
        _PARAMETERS,
        # Room in the page for the next version of a row: updates then touch no index.
        _BUDGETS.format(
            identity="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            storage=" WITH (fillfactor = 50)",
        ),
        _JOURNAL.format(place="BIGINT"),
        *_INDEXES,
        _REFUSE,
        *(line for table in _KEPT for line in _postgresql_triggers(table, _KEPT[table])),
    ],
}
