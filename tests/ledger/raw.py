# SPDX-License-Identifier: Apache-2.0
"""A ledger's tables by hand, past the ledger: for looking, and for tampering."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, make_url, text

SEQUENCE = "(place & 255)"
"""The sequence of a journal line, in a journal of a test: they are short."""

TRIGGERS = {
    "sqlite": [
        "DROP TRIGGER dosimeter_journal_no_update",
        "DROP TRIGGER dosimeter_journal_no_delete",
        "DROP TRIGGER dosimeter_parameters_no_update",
        "DROP TRIGGER dosimeter_parameters_no_delete",
        "DROP TRIGGER dosimeter_budgets_no_delete",
        "DROP TRIGGER dosimeter_journal_follows",
    ],
    "postgresql": [
        "DROP TRIGGER dosimeter_journal_kept ON dosimeter_journal",
        "DROP TRIGGER dosimeter_parameters_kept ON dosimeter_parameters",
        "DROP TRIGGER dosimeter_budgets_kept ON dosimeter_budgets",
        "DROP TRIGGER dosimeter_journal_follows ON dosimeter_journal",
    ],
}


@contextmanager
def tables(url: str) -> Iterator[Connection]:
    """A transaction on the tables themselves."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    engine = create_engine(parsed)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def unprotect(url: str) -> None:
    """Drops the triggers that keep rows from being changed."""
    with tables(url) as connection:
        for line in TRIGGERS[connection.dialect.name]:
            connection.execute(text(line))


def query(url: str, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, or nothing of a change."""
    with tables(url) as connection:
        result = connection.execute(text(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else []


def sums(url: str) -> list[tuple[Any, ...]]:
    """What every budget has spent, as it is stored."""
    return query(url, "SELECT name, epsilon, sums, closed FROM dosimeter_budgets ORDER BY name")


def everything(url: str) -> list[list[tuple[Any, ...]]]:
    """All rows of the ledger, to see that something changed nothing."""
    return [
        query(url, "SELECT * FROM dosimeter_budgets ORDER BY id"),
        query(url, "SELECT * FROM dosimeter_journal ORDER BY place"),
        query(url, "SELECT * FROM dosimeter_parameters ORDER BY hash"),
    ]
