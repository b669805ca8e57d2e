# SPDX-License-Identifier: Apache-2.0
"""Cabinet: the service's own tables, beside the ledger's in the same database.

Tokens, sessions of the page, reservations under way, who holds allowances, what waits for an
approval, and runs that report. Several servers on one database share them. What a budget has
spent is in the ledger alone; losing these tables loses no spend.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from dosimeter.ledger import LedgerUnavailable, SchemaMismatch

VERSION = 1
_MAKING_LOCK = 7_346_925_208_432
_metadata = MetaData()

version = Table("dosimeter_office", _metadata, Column("version", BigInteger, primary_key=True))
tokens = Table(
    "dosimeter_tokens",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("grants", Text, nullable=False),
    Column("issued", Double, nullable=False),
    Column("issued_by", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Column("revoked", Double),
    Column("revoked_by", Text),
)
sessions = Table(
    "dosimeter_sessions",
    _metadata,
    Column("hash", Text, primary_key=True),
    Column("token", Text, nullable=False),
    Column("expires", Double, nullable=False),
)
holds = Table(
    "dosimeter_holds",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("asked", Text, nullable=False),
    Column("receipts", Text),
    Column("expires", Double, nullable=False),
    Column("drawn", BigInteger),
    UniqueConstraint("owner", "key"),
)
lines = Table(
    "dosimeter_approval_lines",
    _metadata,
    Column("budget", Text, primary_key=True),
    Column("above", Double, nullable=False),
)
requests = Table(
    "dosimeter_requests",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("costs", Text, nullable=False),
    Column("runs", BigInteger, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("hold", Text, nullable=False),
    Column("asked", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("decided_by", Text),
    Column("taken", Double),
    UniqueConstraint("owner", "key"),
)
runs = Table(
    "dosimeter_runs",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False, index=True),
    Column("budget", Text),
    Column("updated", Double, nullable=False, index=True),
    Column("stop", Text),
    Column("status", Text, nullable=False),
)
allowances = Table(
    "dosimeter_allowances",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("budget", Text, nullable=False, index=True),
    Column("label", Text, nullable=False),
    Column("holders", Text, nullable=False),
)


class Cabinet:
    """The tables of a service, made on first use."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        driver = "sqlite+pysqlite" if self.is_sqlite else "postgresql+psycopg"
        timeout = {"timeout": 30.0} if self.is_sqlite else {"connect_timeout": 10}
        self._engine: Engine = create_engine(
            parsed.set(drivername=driver),
            connect_args=timeout,
            hide_parameters=True,
            pool_pre_ping=not self.is_sqlite,
            pool_size=8,
            max_overflow=32,
        )
        if self.is_sqlite:
            event.listen(self._engine, "connect", _make_durable)
        self._make()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for questions."""
        with _told(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, or leaves nothing behind."""
        with _told(), self._engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def _make(self) -> None:
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MAKING_LOCK})")
            _metadata.create_all(connection)
            found = connection.execute(select(version.c.version)).scalars().all()
            if not found:
                connection.execute(insert(version).values(version=VERSION))
            elif list(found) != [VERSION]:
                raise SchemaMismatch(
                    f"tables of the service must be of version {VERSION} for this release, got "
                    f"{', '.join(map(str, sorted(found)))}; open them with the release that made "
                    "them"
                )


@contextmanager
def _told() -> Iterator[None]:
    """Failures of the database in the ledger's words, without what the driver says."""
    try:
        yield
    except DBAPIError as error:
        raise LedgerUnavailable(
            f"the service's tables cannot be used now ({type(error.orig).__name__}); retry"
        ) from error
    except SQLAlchemyError as error:
        raise LedgerUnavailable(
            f"the service's tables cannot be used now ({type(error).__name__}); retry"
        ) from error


def _make_durable(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun by hand, with the lock
    connection.execute("PRAGMA synchronous = FULL")
