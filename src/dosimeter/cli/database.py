# SPDX-License-Identifier: Apache-2.0
"""Where budgets are kept, as the command line names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dosimeter.ledger import Ledger

Db = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="DOSIMETER_DB",
        help="Database URL, or the path of an SQLite file.",
    ),
]
DEFAULT_DB = "sqlite:///budgets.db"


@contextmanager
def opened(db: str, *, make: bool = False) -> Iterator[Ledger]:
    """The ledger; a file that is not there is made only where budgets are put in."""
    from dosimeter.ledger import Ledger

    if not make:
        require_there(db, "--db")
    with Ledger.open(db) as ledger:
        yield ledger


def require_there(db: str, option: str) -> None:
    """Raises if a URL names a file that is not there: opening it would make it.

    Args:
        db: The URL, or the path of an SQLite file.
        option: What it is named by.
    """
    from dosimeter.ledger import LedgerUnavailable

    file = _file(db)
    if file is not None and not file.exists():
        raise LedgerUnavailable(
            f"database must exist, got {str(file)!r}; name it by {option} or DOSIMETER_DB, or make "
            "one with dosimeter budget create"
        )


def _file(db: str) -> Path | None:
    """The SQLite file that a URL names, if it names one."""
    if "://" not in db:
        return Path(db)
    name = db.partition(":///")[2].partition("?")[0]
    return Path(name) if db.startswith("sqlite") and name not in ("", ":memory:") else None
