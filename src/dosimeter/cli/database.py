# SPDX-License-Identifier: Apache-2.0
"""Where budgets are kept, as the command line names it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dosimeter.ledger import BudgetNotFound, Ledger
    from dosimeter.service import Office

Db = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="URL",
        envvar="DOSIMETER_DB",
        help="Database URL, or the path of an SQLite file.",
    ),
]
DEFAULT_DB = "sqlite:///budgets.db"


@contextmanager
def opened(db: str, *, make: bool = False) -> Iterator[Ledger]:
    """The ledger; a file that is not there is made only where budgets are put in."""
    from dosimeter.ledger import BudgetClosed, BudgetNotFound, Ledger

    if not make:
        require_there(db, "--db")
    with Ledger.open(db, make=make) as ledger:
        try:
            yield ledger
        except BudgetNotFound as error:
            _point_out(error, list(ledger))
            raise
        except BudgetClosed as error:
            error.add_note(
                "it stays closed, and dosimeter budget history says why; spend from another, whose "
                "epsilon adds to this one, or in the ledger that it was moved to"
            )
            raise


@contextmanager
def office(db: str) -> Iterator[Office]:
    """What a service keeps beside the ledger, for whoever has its database."""
    from dosimeter.service import Office

    require_there(db, "--db")
    with Office(db) as found:
        yield found


def members(ledger: Ledger, name: str, block: str | None = None) -> list[str]:
    """The budget of that name, or the blocks of a group, in the order of their labels.

    Args:
        ledger: Where they are.
        name: A budget, or what stands before the slash in the names of its blocks.
        block: One label, or two with dots between, for all labels from one to the other.

    Raises:
        BudgetNotFound: There is neither, or no such block.
    """
    if block is None and name in ledger:
        return [name]
    return list(ledger.blocks(name, block).names)


def complete_budgets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Budgets and groups that begin as what was typed, for the shell; none if it cannot tell."""
    url = str(ctx.params.get("db") or os.environ.get("DOSIMETER_DB") or DEFAULT_DB)
    try:
        with opened(url) as ledger:
            names = list(ledger)
            groups = dict.fromkeys(name.rpartition("/")[0] for name in names if "/" in name)
            return [name for name in [*groups, *names] if name.startswith(incomplete)][:200]
    except Exception:  # a prompt is no place for errors
        return []


def _point_out(error: BudgetNotFound, names: list[str]) -> None:
    """Adds what to write instead of a name that no budget has."""
    from dosimeter.ledger.rules import LABEL

    group = f"{error.args[0]}/"
    blocks = sorted(one.removeprefix(group) for one in names if one.startswith(group))
    labels = [one for one in blocks if one != LABEL]
    if labels:
        named = shlex.quote(f"{labels[0]}..{labels[-1]}" if labels[1:] else labels[0])
        error.hint = f"it is a group of {len(labels)} blocks, and --block {named} names all of them"
    if not error.hint:
        shows = "list shows those there are" if names else "create makes the first one"
        error.add_note(f"dosimeter budget {shows}")


def require_there(db: str, option: str) -> None:
    """Raises if a URL names a file that is not there: opening it would make it.

    Args:
        db: The URL, or the path of an SQLite file.
        option: What it is named by.
    """
    from dosimeter.ledger import LedgerUnavailable
    from dosimeter.ledger.stores import placed

    if db.startswith(("http://", "https://")):
        return
    file = placed(db).file
    if file and not Path(file).exists():
        given = db.removeprefix("sqlite:///")
        raise LedgerUnavailable(
            f"database must exist, got {given!r}; name it by {option} or DOSIMETER_DB, or make "
            "one with dosimeter budget create"
        )
