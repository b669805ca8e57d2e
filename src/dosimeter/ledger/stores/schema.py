# SPDX-License-Identifier: Apache-2.0
"""The tables as they are now, and the statements that the ledger runs on them.

Parameters are stored once under their own hash, so many blocks share a row and an edit
shows. A budget's row is its balance: the running sums and the head of its journal, small
because it is rewritten with every spend. The journal only grows. The statements are
SQLAlchemy's, compiled once for each database and then run by the driver itself.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    exists,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

from dosimeter.ledger.stores.errors import LedgerError

VERSION = 2
_metadata = MetaData()

schema = Table("dosimeter_schema", _metadata, Column("version", Integer), Column("applied", Text))
identity = Table("dosimeter_identity", _metadata, Column("ledger", Text))
parameters = Table("dosimeter_parameters", _metadata, Column("hash", Text), Column("body", Text))
budgets = Table(
    "dosimeter_budgets",
    _metadata,
    Column("id", BigInteger),
    Column("name", Text),
    Column("parameters", Text),
    Column("sequence", BigInteger),
    Column("head", Text),
    Column("epsilon", Double),
    Column("sums", Text),
    Column("closed", Integer),
    Column("checksum", Text),
)
journal = Table(
    "dosimeter_journal",
    _metadata,
    Column("place", BigInteger),
    Column("key", Text),
    Column("reference", BigInteger),
    Column("hash", Text),
    Column("body", Text),
)

_ROOM = 36
"""A line's place is its budget's id, shifted by so many bits, plus its sequence."""

_lines = select(journal)

# Shifts in its own words, which both databases understand.
_start = literal_column(f"(dosimeter_budgets.id << {_ROOM})", BigInteger)
_next = literal_column(f"((dosimeter_budgets.id + 1) << {_ROOM})", BigInteger)
_end = _start + budgets.c.sequence
_seen = journal.alias("seen")
_beyond = journal.alias("beyond")
BALANCE = len(budgets.c)
"""How many columns of a balance that is read are its own; those after are what it must fit."""
_balances = select(
    budgets,
    journal.c.hash.label("head_hash"),
    journal.c.body.label("head_body"),
    exists().where(_beyond.c.place > _end, _beyond.c.place < _next).label("beyond"),
    select(_seen.c.hash)
    .where(_seen.c.place == _start + bindparam("seen", type_=BigInteger))
    .scalar_subquery()
    .label("seen_hash"),
).select_from(budgets.outerjoin(journal, journal.c.place == _end))

_between = (
    _lines.where(
        journal.c.place >= bindparam("start", type_=BigInteger),
        journal.c.place < bindparam("end", type_=BigInteger),
    )
    .limit(bindparam("size", type_=Integer))
    # Else SQLAlchemy gives SQLite an OFFSET with a value of its own.
    .offset(literal_column("0"))
)

_moving = ("sequence", "head", "epsilon", "sums", "closed", "checksum")
_at = {name: f"at_{name}" for name in ("id", *_moving)}
_move_on = (
    update(budgets)
    .where(*(budgets.c[name] == bindparam(value) for name, value in _at.items()))
    .values({name: bindparam(name) for name in _moving})
)
_line = {column.name: bindparam(f"line_{column.name}", type_=column.type) for column in journal.c}

LINE = tuple(value.key for value in _line.values())
"""The values of "append": the columns of the journal."""

RECORD = (*_at.values(), *_moving, *LINE)
"""The values that move a balance and append a line: where it was, where it goes, the line."""

STATEMENTS: dict[str, Executable] = {
    "versions": select(schema.c.version),
    "add_version": insert(schema),
    "names": select(budgets.c.name).order_by(budgets.c.id),
    "identity": select(identity.c.ledger),
    "add_identity": insert(identity),
    "balance": _balances.where(budgets.c.name == bindparam("name", type_=Text)),
    "balances": _balances.where(budgets.c.id > bindparam("after", type_=BigInteger))
    .order_by(budgets.c.id)
    .limit(bindparam("size", type_=Integer))
    .offset(literal_column("0")),
    "number": select(budgets.c.id).where(budgets.c.name == bindparam("name", type_=Text)),
    "open": insert(budgets)
    .values({name: bindparam(name) for name in budgets.c.keys() if name != "id"})
    .returning(budgets.c.id),
    "move_on": _move_on,
    "parameters": select(parameters.c.body).where(
        parameters.c.hash == bindparam("hash", type_=Text)
    ),
    "append": insert(journal).values(_line),
    "by_key": _lines.where(
        # Spelt as in its index, which is found by its words.
        literal_column(f"(place >> {_ROOM})") == bindparam("budget", type_=BigInteger),
        journal.c.key == bindparam("key", type_=Text),
    ),
    "by_place": _lines.where(journal.c.place == bindparam("at", type_=BigInteger)),
    "page": _between.order_by(journal.c.place),
    "latest": _between.order_by(journal.c.place.desc()),
}


def place(budget_id: int, sequence: int) -> int:
    """Where a line of a budget's journal stands among all lines."""
    return (budget_id << _ROOM) + sequence


def require_room(budget_id: int) -> None:
    """Raises unless the places of a budget, and the one after them, fit in 64 bits."""
    if not budget_id < (1 << 63 - _ROOM) - 1:
        raise LedgerError(
            f"ledger must hold fewer than 2**{63 - _ROOM} budgets, got number {budget_id}; "
            "begin another ledger for new data sets"
        )


class Prepared(NamedTuple):
    """A statement in the words of one driver, and the order of its values if it takes no names."""

    text: str
    order: tuple[str, ...] | None


def prepare(dialect: Dialect) -> dict[str, Prepared]:
    """Every statement for one database."""
    ready = {}
    # Two clients may add the same parameters at once; they are the same row.
    wanted = dict(STATEMENTS)
    if dialect.name == "sqlite":
        wanted["add_parameters"] = sqlite.insert(parameters).on_conflict_do_nothing()
        wanted["lock"] = wanted["balance"]  # BEGIN IMMEDIATE has locked everything
    else:
        wanted["add_parameters"] = postgresql.insert(parameters).on_conflict_do_nothing()
        wanted["record"] = _record()
        # Rows are read after the lock is there, in a moment of their own.
        wanted["lock"] = text("SELECT * FROM dosimeter_locked(:name, :seen)").bindparams(
            bindparam("name", type_=Text), bindparam("seen", type_=BigInteger)
        )
    for name, statement in wanted.items():
        compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        order = tuple(compiled.positiontup or ()) if compiled.positional else None
        ready[name] = Prepared(str(compiled), order)
    return ready


def _record() -> Executable:
    """`move_on` and `append` as one statement; it appends nothing if it moved nothing."""
    moved = _move_on.returning(budgets.c.id).cte("moved")
    return insert(journal).from_select(list(journal.c), select(*_line.values()).select_from(moved))
