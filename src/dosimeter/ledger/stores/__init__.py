# SPDX-License-Identifier: Apache-2.0
"""Databases that a ledger can be kept in."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from dosimeter import arguments
from dosimeter.ledger.stores.base import Store, Transaction
from dosimeter.ledger.stores.postgresql import PostgresqlStore
from dosimeter.ledger.stores.sqlite import SqliteStore

__all__ = ["PostgresqlStore", "SqliteStore", "Store", "Transaction", "open_store"]


def open_store(url: str, timeout: float) -> Store:
    """The store at a URL, its tables made or brought up to date."""
    if not isinstance(url, str):
        raise TypeError(f"url must be text such as 'sqlite:///budgets.db', got {url!r}")
    seconds = arguments.positive("timeout", timeout)
    try:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    except ArgumentError:
        raise ValueError("url must be a database URL or the path of a file") from None
    match parsed.get_backend_name():
        case "sqlite":
            store: Store = SqliteStore(parsed, seconds)
        case "postgresql" | "postgres":
            store = PostgresqlStore(parsed, seconds)
        case other:
            raise ValueError(f"url must begin with sqlite:// or postgresql://, got {other!r}")
    try:
        store.migrate()
    except BaseException:
        store.dispose()
        raise
    return store
