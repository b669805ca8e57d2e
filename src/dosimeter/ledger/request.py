# SPDX-License-Identifier: Apache-2.0
"""Request: a spend as it is asked for, checked before any transaction begins.

Names and keys are what every database can store and index exactly; purposes and actors
are any text of a reasonable length. Costs must be ones that can be written down, because
a spend that cannot be audited is not recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache

from dosimeter import arguments
from dosimeter.ledger.errors import KeyConflict
from dosimeter.ledger.records import Entry, Kind, Note, written
from dosimeter.rdp import Cost

_LONGEST_NAME = 500
_LONGEST_TEXT = 100_000


class Request:
    """A count of runs, with a cost in each of some budgets, and a note for the journal."""

    def __init__(
        self,
        costs: Mapping[str, Cost],
        count: int,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
        kind: Kind = Kind.SPEND,
    ) -> None:
        self.costs = {identifier("name", name): cost for name, cost in costs.items()}
        self.names = sorted(self.costs)
        self.count = arguments.count("count", count)
        self.key = None if key is None else identifier("key", key)
        self.kind = kind
        self._said = (named(actor), text("purpose", purpose))
        # Thousands of blocks may share one cost: it is written down once.
        lines = {id(cost): _in_writing(cost) for cost in _distinct(self.costs.values())}
        alike = {line: Note(kind, line, self.count, *self._said) for line in {*lines.values()}}
        self._notes = {name: alike[lines[id(cost)]] for name, cost in self.costs.items()}

    def note(self, name: str) -> Note:
        """What the entry in one budget says of it."""
        return self._notes[name]

    def refused(self, name: str) -> Note:
        """What an entry says that notes its refusal."""
        return Note(Kind.REFUSE, self._notes[name].cost, self.count, *self._said)

    def keyed(self, key: str) -> Request:
        """The same under a key."""
        request = Request.__new__(Request)
        request.__dict__ = {**self.__dict__, "key": identifier("key", key)}
        return request

    def require_same(self, name: str, entry: Entry | None) -> Entry:
        """The entry that was recorded under this key, if it is for the same spend.

        Raises:
            KeyConflict: It is for another one.
        """
        if entry is None or not self._is(entry, name):
            raise KeyConflict(
                f"key must name one spend, got {self.key!r} again for another cost, count or "
                f"budget ({name!r}); choose a new key for a new spend"
            )
        return entry

    def _is(self, entry: Entry, name: str) -> bool:
        if (entry.kind, entry.count) != (Kind.SPEND, self.count):
            return False
        # Equal costs may be written in two ways: an event with a whole number, and with a float.
        return entry.cost == self._notes[name].cost or entry.priced() == self.costs[name]


def request(
    name: str, cost: Cost, count: int, key: str | None, purpose: str, actor: str
) -> Request:
    """A spend in one budget; the same one asked again, under whatever key, is not checked anew."""
    try:
        asked = _request(name, cost, count, purpose, actor or named(actor))
    except TypeError:
        # What cannot be kept is refused in words there.
        asked = Request({name: cost}, count, purpose=purpose, actor=actor)
    return asked if key is None else asked.keyed(key)


@lru_cache(maxsize=1024, typed=True)
def _request(name: str, cost: Cost, count: int, purpose: str, actor: str) -> Request:
    return Request({name: cost}, count, purpose=purpose, actor=actor)


def _distinct(costs: Iterable[Cost]) -> Iterable[Cost]:
    """Each object once; some costs cannot be hashed."""
    return {id(cost): cost for cost in costs}.values()


def _in_writing(cost: Cost) -> str:
    """A cost as an entry carries it, if it is of a size that is written with every spend."""
    line = written(cost)
    if not len(line) <= _LONGEST_TEXT:
        raise ValueError(
            f"cost must be written in at most {_LONGEST_TEXT} characters, got {len(line)} of them; "
            "spend its parts one by one, or a Curve that bounds it"
        )
    return line


def identifier(what: str, value: object) -> str:
    """Text that every database can store and index exactly."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {value!r}")
    if not 0 < len(value) <= _LONGEST_NAME:
        raise ValueError(
            f"{what} must have 1 to {_LONGEST_NAME} characters, got {len(value)} of them"
        )
    if "\0" in value or not _encodable(value):
        raise ValueError(f"{what} must be Unicode text without NUL, got {value!r}")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def named(actor: object) -> str:
    """Who, for the journal; by default whom the environment names, as the command line does."""
    given = text("actor", actor)
    return given or os.environ.get("DOSIMETER_ACTOR") or os.environ.get("USER") or ""


def text(what: str, value: object) -> str:
    """Any text that is not unreasonably long."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {value!r}")
    if not len(value) <= _LONGEST_TEXT:
        raise ValueError(
            f"{what} must have at most {_LONGEST_TEXT} characters, got {len(value)} of them"
        )
    return value
