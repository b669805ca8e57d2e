# SPDX-License-Identifier: Apache-2.0
"""The tables of a ledger: its version and name, parameters, budgets and the journal.

A line's place is its budget's id times 2^36 plus its sequence: one number, so that SQLite
keeps lines and their order in one tree, and a spend writes a page less.

Triggers refuse to change or remove a row, and to add a line beyond the balance of its budget:
a line that fits nothing would block the budget. They stop accidents; the owner of the database
can drop them, and then the chain of hashes shows what was done.
"""

from __future__ import annotations

from collections.abc import Sequence

_SCHEMA = "CREATE TABLE dosimeter_schema (version INTEGER PRIMARY KEY, applied TEXT NOT NULL)"

_IDENTITY = "CREATE TABLE dosimeter_identity (ledger TEXT NOT NULL)"

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


_SQLITE_FOLLOWS = """
CREATE TRIGGER dosimeter_journal_follows BEFORE INSERT ON dosimeter_journal
WHEN NOT EXISTS (
    SELECT 1 FROM dosimeter_budgets
    WHERE id = NEW.place >> 36 AND sequence >= (NEW.place & 68719476735)
)
BEGIN SELECT RAISE(ABORT, 'a line must not go beyond its balance'); END"""

_REFUSE = """
CREATE FUNCTION dosimeter_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are kept for good', TG_TABLE_NAME;
END $$"""

_FOLLOW = """
CREATE FUNCTION dosimeter_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM dosimeter_budgets
        WHERE id = NEW.place >> 36 AND sequence >= (NEW.place & 68719476735)
    ) THEN
        RAISE EXCEPTION 'a line must not go beyond its balance';
    END IF;
    RETURN NEW;
END $$"""

_POSTGRESQL_FOLLOWS = (
    "CREATE TRIGGER dosimeter_journal_follows BEFORE INSERT ON dosimeter_journal "
    "FOR EACH ROW EXECUTE FUNCTION dosimeter_follow()"
)

# A query that waited for a lock sees other rows as they were before it waited, so the locks are
# taken first, in the order of names.
_LOCKED = """
CREATE FUNCTION dosimeter_locked(wanted TEXT[], seen BIGINT[]) RETURNS TABLE (
    id BIGINT, name TEXT, parameters TEXT, sequence BIGINT, head TEXT, epsilon DOUBLE PRECISION,
    sums TEXT, closed INTEGER, checksum TEXT,
    head_hash TEXT, head_body TEXT, beyond BOOLEAN, seen_hash TEXT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM dosimeter_budgets b WHERE b.name = ANY (wanted) ORDER BY b.name FOR UPDATE;
    RETURN QUERY SELECT
        b.id, b.name, b.parameters, b.sequence, b.head, b.epsilon, b.sums, b.closed, b.checksum,
        j.hash, j.body,
        EXISTS (
            SELECT 1 FROM dosimeter_journal
            WHERE place > (b.id << 36) + b.sequence AND place < (b.id + 1) << 36
        ),
        (SELECT s.hash FROM dosimeter_journal s WHERE s.place = (b.id << 36) + w.last)
    FROM unnest(wanted, seen) AS w (budget, last)
    JOIN dosimeter_budgets b ON b.name = w.budget
    LEFT JOIN dosimeter_journal j ON j.place = (b.id << 36) + b.sequence;
END $$"""

SQL: dict[str, Sequence[str]] = {
    "sqlite": [
        _SCHEMA,
        _IDENTITY,
        _PARAMETERS,
        _BUDGETS.format(identity="INTEGER PRIMARY KEY", storage=""),
        # Only INTEGER makes the key the place in the tree itself.
        _JOURNAL.format(place="INTEGER"),
        *_INDEXES,
        *(_sqlite_trigger(table, change) for table in _KEPT for change in _KEPT[table]),
        _SQLITE_FOLLOWS,
    ],
    "postgresql": [
        _SCHEMA,
        _IDENTITY,
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
        _FOLLOW,
        _POSTGRESQL_FOLLOWS,
        _LOCKED,
    ],
}
"""The statements that make the tables, in order, for each database."""
