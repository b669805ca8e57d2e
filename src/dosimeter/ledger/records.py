# SPDX-License-Identifier: Apache-2.0
"""Entries of the journal as frozen values, their bytes and their hash.

An entry is stored as one line of canonical JSON (sorted names, ASCII, no blanks), and its
hash is the SHA-256 of exactly that line, which holds the hash of the entry before it. So
there is nothing about an entry that the chain does not cover, and nothing to serialise
twice. An entry also carries the hash of the balance that it leads to, so that a balance is
believed only beside the entry that led to it. Reading is strict: a line that would not be written
like this, of another format too, is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from dosimeter.ledger.errors import JournalError
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain, to_plain

FORMAT = 1
"""The format that entries name; a reader refuses any other."""

START = "0" * 64
"""What the first entry of a budget has for the hash of the entry before it."""


class Kind(StrEnum):
    """What an entry records."""

    OPEN = "open"
    SPEND = "spend"
    RESERVE = "reserve"
    COMMIT = "commit"
    RELEASE = "release"
    REFUSE = "refuse"
    CLOSE = "close"
    MOVE = "move"


class Entry(NamedTuple):
    """One line of a budget's journal.

    Attributes:
        budget: The name of the budget.
        sequence: 0 for the opening entry, then 1, 2, 3, without gaps.
        kind: What it records.
        time: When, by the client's clock, in UTC; the order is that of the sequence.
        previous: The hash of the entry before.
        cost: The plain cost of a spend, refusal, reservation, commit or release, as JSON.
        count: How many runs of the cost.
        epsilon: Epsilon spent after this entry, rounded up.
        key: The idempotency key of a spend.
        reference: The sequence of the reservation that a commit or release ends.
        parameters: The parameters of the budget, in the opening entry.
        state: The hash of the balance after this entry.
        actor: Who, as the client says.
        purpose: What for, as the client says.
    """

    budget: str
    sequence: int
    kind: Kind
    time: str
    previous: str
    cost: str | None = None
    count: int = 0  # type: ignore[assignment]  # no one counts the values of an entry
    epsilon: float = 0.0
    key: str | None = None
    reference: int | None = None
    parameters: Mapping[str, Any] | None = None
    actor: str = ""
    purpose: str = ""
    state: str = ""

    def body(self) -> str:
        """The line that is stored and hashed: `canonical` of its fields."""
        note = Note(
            self.kind,
            self.cost,
            self.count,
            self.actor,
            self.purpose,
            reference=self.reference,
            parameters=self.parameters,
        )
        place = (self.budget, self.sequence, self.previous)
        return note.line(place, in_digits(self.epsilon), self.state, self.time, self.key)

    @classmethod
    def parse(cls, body: str) -> Entry:
        """The entry that `body()` wrote.

        Raises:
            JournalError: The line is not one that `body()` writes.
        """
        return _plain(body) or cls._parse(body)

    @classmethod
    def _parse(cls, body: str) -> Entry:
        try:
            values = json.loads(body)
            if (format := values.pop("format")) != FORMAT:
                raise ValueError(f"format must be {FORMAT} for this release, got {format!r}")
            if set(values) != _NAMES:
                raise ValueError("its fields are not those of an entry")
            epsilon, cost = values["epsilon"], values["cost"]
            if not isinstance(cost, dict | None):
                raise TypeError(f"cost must be of another type, got {cost!r}")
            values["epsilon"] = math.inf if epsilon == "inf" else epsilon
            values["cost"] = None if cost is None else _cost_in(body, cost, values["count"])
            entry = cls(**{**values, "kind": Kind(values["kind"])})
            entry._check_types()
            if entry.body() != body:
                raise ValueError("it is not in canonical form")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise JournalError(f"entry must be as the ledger wrote it: {error}") from None
        return entry

    def _check_types(self) -> None:
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TypeError(f"{name} must be of another type, got {value!r}")

    def priced(self) -> Cost:
        """The cost of a spend, a reservation, or what ends one."""
        if self.cost is None:
            raise JournalError(f"entry of kind {self.kind} must carry a cost, got none")
        return _read_cost(self.cost)


class Note:
    """What an entry says apart from where it stands, written once for all spends that are alike.

    Attributes:
        kind: As the entry has it; the others too.
    """

    __slots__ = ("_parts", "cost", "count", "kind", "reference")

    def __init__(
        self,
        kind: Kind,
        cost: str | None = None,
        count: int = 0,
        actor: str = "",
        purpose: str = "",
        *,
        reference: int | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.cost = cost
        self.count = count
        self.reference = reference
        self._parts = (
            f'{{"actor":{quoted(actor)},"budget":',
            f',"cost":{cost or "null"},"count":{count},"epsilon":',
            f',"kind":"{kind.value}","parameters":{_optional(parameters)},"previous":',
            f',"purpose":{quoted(purpose)},"reference":{_optional(reference)},"sequence":',
        )

    def line(
        self,
        place: tuple[str, int, str],
        epsilon: str,
        state: str,
        time: str,
        key: str | None,
    ) -> str:
        """The line of an entry: `canonical` of its fields, spelt out for speed.

        Args:
            place: Its budget, its sequence and the hash of the entry before.
            epsilon: What `in_digits` gives.
            state: The hash of the balance after it.
            time: When.
            key: The idempotency key.
        """
        budget, sequence, previous = place
        start, spent, kind, purpose = self._parts
        digits = epsilon if epsilon != "inf" else '"inf"'
        return (
            f'{start}{quoted(budget)}{spent}{digits},"format":{FORMAT},"key":{_optional(key)}'
            f'{kind}{quoted(previous)}{purpose}{sequence},"state":{quoted(state)},'
            f'"time":{quoted(time)}}}'
        )


def in_digits(epsilon: float) -> str:
    """An epsilon as entries and checksums have it."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon!r}")
    return repr(epsilon)


@lru_cache(maxsize=4096)
def _read_cost(text: str) -> Cost:
    return from_plain(json.loads(text))


_NAMES = set(Entry._fields)
_STATE = ',"state":"'
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("budget", "actor", "purpose", "time", "previous", "state"), (str,)),
    **dict.fromkeys(("sequence", "count"), (int,)),
    "parameters": (dict, type(None)),
    "epsilon": (float,),
    "key": (str, type(None)),
    "reference": (int, type(None)),
}


_TEXT = r'"([ !#-\[\]-~]*)"'
_COUNT = "(0|[1-9][0-9]{0,17})"
_FLOAT = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_LINE = re.compile(
    rf'{{"actor":{_TEXT},"budget":{_TEXT},"cost":(null|{{.*?}}),"count":{_COUNT},'
    rf'"epsilon":{_FLOAT},"format":{FORMAT},"key":(?:null|{_TEXT}),"kind":{_TEXT},"parameters":null,'
    rf'"previous":{_TEXT},"purpose":{_TEXT},"reference":(?:null|{_COUNT}),"sequence":{_COUNT},'
    rf'"state":{_TEXT},"time":{_TEXT}}}'
)
"""An entry as nearly all of them are: no letter of its texts is written as a code."""

_KINDS = {kind.value: kind for kind in Kind}


def _plain(body: str) -> Entry | None:
    """The entry in a line of the usual form; None if it must be read letter by letter."""
    found = _LINE.fullmatch(body)
    if found is None:
        return None
    actor, budget, cost, count, epsilon, key, kind, *rest = found.groups()
    previous, purpose, reference, sequence, state, time = rest
    # It is read as what would be written as this again, or not here.
    spent = float(epsilon)
    known = _KINDS.get(kind)
    if known is None or repr(spent) != epsilon or not (cost == "null" or _is_canonical(cost)):
        return None
    return Entry(
        budget,
        int(sequence),
        known,
        time,
        previous,
        None if cost == "null" else cost,
        int(count),
        spent,
        key,
        None if reference is None else int(reference),
        None,
        actor,
        purpose,
        state,
    )


def stated(body: str) -> str:
    """Return the hash of the balance that an entry leads to, without reading the whole line.

    It is empty for a line that carries none.
    """
    # Quotes inside of texts are escaped, and only a time comes after it.
    _, mark, rest = body.rpartition(_STATE)
    return rest[:64] if mark else ""


def _cost_in(body: str, cost: dict[str, Any], count: object) -> str:
    """The text of a cost as it stands in a line; written anew where that is not its own form."""
    text = body.partition('"cost":')[2].partition(f',"count":{count},"epsilon":')[0]
    # A text that is not all of the cost does not give the same line again.
    return text if _is_canonical(text) else canonical(cost)


@lru_cache(maxsize=4096)
def _is_canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except (ValueError, RecursionError):
        return False


_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(values: Mapping[str, Any]) -> str:
    """Plain JSON values as the one line of text that stands for them."""
    return _encoder.encode(values)


def written(cost: Cost) -> str:
    """A cost as the line of text that stands for it in an entry.

    Raises:
        TypeError: It cannot be written down.
    """
    return canonical(to_plain(cost)) if type(cost).__hash__ is None else _written(cost)


@lru_cache(maxsize=4096)
def _written(cost: Cost) -> str:
    return canonical(to_plain(cost))


def _optional(value: object) -> str:
    if value is None:
        return "null"
    return quoted(value) if isinstance(value, str) else _encoder.encode(value)


def digest(text: str) -> str:
    """The SHA-256 of a line, in hexadecimal."""
    # A row edited by hand may hold anything, lone surrogates too.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
