# SPDX-License-Identifier: Apache-2.0
"""Lines only where their balance leads, balances beside their line, and a name for the ledger.

A line beyond the balance of its budget is refused: whoever may insert could else block a
budget with one that fits nothing. A balance is read with the line at its head, with whether there
are lines beyond it, and with the hash at a place that a client saw before; on PostgreSQL by a
function that first takes the locks, in the order of names, because a query that waited for a lock
sees rows beside it as they were before it waited. The ledger's own name is what moves of budgets
are made out to.
"""

from __future__ import annotations

from collections.abc import Sequence

_IDENTITY = "CREATE TABLE dosimeter_identity (ledger TEXT NOT NULL)"

_SQLITE = [
    _IDENTITY,
    """
CREATE TRIGGER dosimeter_journal_follows BEFORE INSERT ON dosimeter_journal
WHEN NOT EXISTS (
    SELECT 1 FROM dosimeter_budgets
    WHERE id = NEW.place >> 36 AND sequence >= (NEW.place & 68719476735)
)
BEGIN SELECT RAISE(ABORT, 'a line must not go beyond its balance'); END""",
]

_POSTGRESQL = [
    _IDENTITY,
    """
CREATE FUNCTION dosimeter_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM dosimeter_budgets
        WHERE id = NEW.place >> 36 AND sequence >= (NEW.place & 68719476735)
    ) THEN
        RAISE EXCEPTION 'a line must not go beyond its balance';
    END IF;
    RETURN NEW;
END $$""",
    "CREATE TRIGGER dosimeter_journal_follows BEFORE INSERT ON dosimeter_journal "
    "FOR EACH ROW EXECUTE FUNCTION dosimeter_follow()",
    """
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
END $$""",
]

SQL: dict[str, Sequence[str]] = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}
