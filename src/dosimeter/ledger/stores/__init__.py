# SPDX-License-Identifier: Apache-2.0
"""Databases that a ledger can be kept in."""

from __future__ import annotations

from dosimeter import arguments
from dosimeter.ledger.stores.base import Store, Transaction
from dosimeter.ledger.stores.url import Place, placed

__all__ = ["Place", "Store", "Transaction", "open_store", "placed"]


def open_store(url: str, timeout: float, *, make: bool = True) -> Store:
    """Open the store at a URL; its tables are made where there are none and `make` allows it."""
    place, seconds = placed(url), arguments.positive("timeout", timeout)
    store: Store
    if place.backend == "sqlite":
        from dosimeter.ledger.stores.sqlite import SqliteStore

        store = SqliteStore(place, seconds)
    else:
        from dosimeter.ledger.stores.postgresql import PostgresqlStore

        store = PostgresqlStore(place, seconds)
    try:
        store.require_tables(make=make)
    except BaseException:
        store.dispose()
        raise
    return store
