# SPDX-License-Identifier: Apache-2.0
"""Activities: a journal as people read it, with the thousand steps of a training run as one line.

So are the entries of a group of blocks that one spend made, or one person for one purpose. Nothing
is left out: an activity has its entries, and each entry is in one activity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from dosimeter.ledger.records import Entry, Kind

_SIGN = {Kind.COMMIT: 0, Kind.RELEASE: -1}
"""How the steps of an entry count, where they do not simply count."""
_SPENDS = (Kind.SPEND, Kind.RESERVE, Kind.REFUSE)


@dataclass
class Activity:
    """Entries that one person made for one purpose, the oldest first.

    Attributes:
        entries: Them; at least one. They may be of several blocks.
    """

    entries: list[Entry] = field(default_factory=list)

    @property
    def first(self) -> Entry:
        """The entry that it began with."""
        return self.entries[0]

    @property
    def last(self) -> Entry:
        """The entry that it came to."""
        return self.entries[-1]

    @property
    def budgets(self) -> list[str]:
        """The budgets that they are of, each once."""
        return list(dict.fromkeys(entry.budget for entry in self.entries))

    @property
    def steps(self) -> int:
        """How many steps or queries were paid for, or refused, in the block with most of them."""
        found: Counter[str] = Counter()
        for entry in self.entries:
            found[entry.budget] += _SIGN.get(entry.kind, 1) * entry.count
        return max(found.values())

    @property
    def epsilon(self) -> float:
        """Epsilon spent after the last entry, in the block where that is most."""
        return max({entry.budget: entry.epsilon for entry in self.entries}.values())

    @property
    def costs(self) -> list[str]:
        """The costs, each once, as entries carry them."""
        return list(dict.fromkeys(entry.cost for entry in self.entries if entry.cost))


def asked(entry: Entry) -> Hashable:
    """What the entries that one request made in several budgets have in common."""
    return entry.kind, entry.time, entry.actor, entry.purpose, entry.key


def activities(entries: Iterable[Entry]) -> list[Activity]:
    """Entries put together, in the order in which what they belong to began.

    Spends with a purpose belong together wherever they stand; so training runs that took turns are
    a line each. Without a purpose, those in a row with the same cost do, and those of one request
    in several blocks. Refusals are put together like spends, apart from them; what ends a
    reservation stands with it; whatever opens, closes or moves a budget stands with what the same
    request did in other blocks.
    """
    found: list[Activity] = []
    known: dict[Hashable, Activity] = {}
    reserved: dict[tuple[str, int], Activity] = {}
    before: dict[str, Hashable] = {}
    for entry in entries:
        made = reserved.get((entry.budget, entry.reference or -1))
        if made is None:
            key = _key(entry)
            made = known.get(key)
            if made is None or not _continues(entry, made, before.get(entry.budget) == key):
                made = known[key] = Activity()
                found.append(made)
            before[entry.budget] = key
        made.entries.append(entry)
        if entry.kind is Kind.RESERVE:
            reserved[entry.budget, entry.sequence] = made
    return found


def _continues(entry: Entry, made: Activity, in_a_row: bool) -> bool:
    return bool(entry.purpose) or in_a_row or asked(made.last) == asked(entry)


def _key(entry: Entry) -> Hashable:
    """What entries that belong together have in common."""
    if entry.kind not in _SPENDS:
        return asked(entry)
    refused = entry.kind is Kind.REFUSE
    return refused, entry.actor, entry.purpose or (None, entry.cost)
