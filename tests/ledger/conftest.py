# SPDX-License-Identifier: Apache-2.0
"""Every store that the contract tests run on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dosimeter.ledger import Ledger
from ledger.servers import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole run."""
    try:
        server = Postgres()
    except Exception as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"PostgreSQL cannot start here: {error}")
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new ledger, on each kind of store in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budgets.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.fresh_url()


@pytest.fixture
def open_ledger(url: str) -> Iterator[Callable[..., Ledger]]:
    """Opens clients of the same ledger, each with connections of its own."""
    opened = []

    def open_one(**options: object) -> Ledger:
        opened.append(Ledger.open(url, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for ledger in opened:
        ledger.disconnect()


@pytest.fixture
def ledger(open_ledger: Callable[..., Ledger]) -> Ledger:
    """A new ledger."""
    return open_ledger()
