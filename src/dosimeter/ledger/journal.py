# SPDX-License-Identifier: Apache-2.0
"""The journal of a budget, line by line: found, read in pages, added, and as exports have them.

A line is a row as it is stored, whatever it may hold; whether it fits is for an audit to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dosimeter.ledger.book import Balance
from dosimeter.ledger.errors import JournalError
from dosimeter.ledger.records import Entry
from dosimeter.ledger.stores import Transaction, schema

_PAGE = 2000


class Line(NamedTuple):
    """A row of the journal as it is stored, whatever it may hold."""

    sequence: int
    key: str | None
    reference: int | None
    hash: str
    body: str

    @classmethod
    def at(cls, balance: Balance, row: Sequence[Any]) -> Line:
        """The line in a row of a budget's journal."""
        place, key, reference, hash, body = row
        sequence = place - schema.place(balance.id, 0)
        # Whatever is no text was not written by the ledger.
        return cls(sequence, key, reference, str(hash), str(body))

    def entry(self) -> Entry:
        """The entry in it.

        Raises:
            JournalError: The body is not one the ledger writes.
        """
        return Entry.parse(self.body)


def write(transaction: Transaction, balance: Balance, lines: Iterable[Line]) -> None:
    """Adds lines to the journal of a balance that ends at the last of them."""
    transaction.each(
        "append", ((schema.place(balance.id, line.sequence), *line[1:]) for line in lines)
    )


def by_key(transaction: Transaction, balances: list[Balance], key: str) -> list[Line | None]:
    """The journal lines with an idempotency key, one for each balance that has one."""
    numbers = transaction.several([balance.id for balance in balances])
    rows = transaction.rows("by_key", budgets=numbers, key=key)
    found = {row[0] >> schema.ROOM: row for row in rows}
    return [
        Line.at(balance, found[balance.id]) if balance.id in found else None for balance in balances
    ]


def by_sequence(transaction: Transaction, balance: Balance, sequence: int) -> Line | None:
    """The journal line with a sequence."""
    found = transaction.rows("by_place", at=schema.place(balance.id, sequence))
    return Line.at(balance, found[0]) if found else None


def lines(transaction: Transaction, balance: Balance, first: int = 0) -> Iterator[Line]:
    """Every line of a journal, from `first` on, without holding them all."""
    start, end = schema.place(balance.id, first), schema.place(balance.id + 1, 0)
    while start < end:
        found = transaction.rows("page", start=start, end=end, size=_PAGE)
        yield from (Line.at(balance, row) for row in found)
        start = found[-1][0] + 1 if len(found) == _PAGE else end


def latest(transaction: Transaction, balance: Balance, size: int) -> list[Line]:
    """The last lines of a journal, the newest first."""
    start, end = schema.place(balance.id, 0), schema.place(balance.id + 1, 0)
    found = transaction.rows("latest", start=start, end=end, size=size)
    return [Line.at(balance, row) for row in found]


def export_line(line: Line) -> str:
    """A journal line as it is exported: the entry with its hash, one line of JSON."""
    return f'{line.body[:-1]},"hash":"{line.hash}"}}'


def import_line(text: str) -> Line:
    """The journal line that `export_line` wrote.

    Raises:
        JournalError: It is not such a line.
    """
    body, mark, rest = text.rpartition(',"hash":"')
    hash, end = rest[:64], rest[64:]
    if not mark or end != '"}':
        raise JournalError("line must end with the hash of its entry, as an export does")
    entry = Entry.parse(body + "}")
    return Line(entry.sequence, entry.key, entry.reference, hash, body + "}")
