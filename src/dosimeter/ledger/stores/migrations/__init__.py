# SPDX-License-Identifier: Apache-2.0
"""Numbered migrations, forward only, each applied with its own record in one transaction.

A migration holds its own SQL for each database and never imports the present tables:
what it did then must not change with them. A database with a higher number than this
release knows is refused, because its rows may mean something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dosimeter.ledger.stores.migrations import m0001_budgets_and_journal as m0001
from dosimeter.ledger.stores.migrations import m0002_heads as m0002


@dataclass(frozen=True)
class Migration:
    """One step of the schema: its number, its name, and its SQL for each database."""

    number: int
    name: str
    sql: dict[str, Sequence[str]]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "budgets and journal", m0001.SQL),
    Migration(2, "heads", m0002.SQL),
)
