# SPDX-License-Identifier: Apache-2.0
"""Activities: a journal as people read it, with the thousand steps of a training run as one line.

Nothing is left out: an activity has its entries, and each entry is in one activity.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from dosimeter.ledger.records import Entry, Kind

_SIGN = {Kind.COMMIT: 0, Kind.RELEASE: -1}
"""How the runs of an entry count, where they do not simply count."""


@dataclass
class Activity:
    """Entries that one person made in one budget for one purpose, the oldest first.

    Attributes:
        entries: Them; at least one.
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
    def runs(self) -> int:
        """How many runs of mechanisms these entries paid for; how many were refused."""
        return sum(_SIGN.get(entry.kind, 1) * entry.count for entry in self.entries)

    @property
    def costs(self) -> list[str]:
        """The costs, each once, as entries carry them."""
        return list(dict.fromkeys(entry.cost for entry in self.entries if entry.cost))


def activities(entries: Iterable[Entry]) -> list[Activity]:
    """Entries put together, in the order in which what they belong to began.

    Spends with a purpose belong together wherever they stand; so runs that took turns are a line
    each. Without a purpose, only those in a row with the same cost do. Refusals are put together
    like spends, apart from them; what ends a reservation stands with it; whatever opens, closes
    or moves a budget stands alone.
    """
    found: list[Activity] = []
    known: dict[Hashable, Activity] = {}
    reserved: dict[tuple[str, int], Activity] = {}
    before: dict[str, Hashable] = {}
    for entry in entries:
        made = reserved.get((entry.budget, entry.reference or -1))
        if made is None:
            key = _key(entry)
            if key not in known or not (entry.purpose or before[entry.budget] == key):
                known[key] = Activity()
                found.append(known[key])
            made, before[entry.budget] = known[key], key
        made.entries.append(entry)
        if entry.kind is Kind.RESERVE:
            reserved[entry.budget, entry.sequence] = made
    return found


def _key(entry: Entry) -> Hashable:
    """What entries that belong together have in common."""
    if entry.kind not in (Kind.SPEND, Kind.RESERVE, Kind.REFUSE):
        return entry.budget, entry.sequence
    refused = entry.kind is Kind.REFUSE
    return entry.budget, refused, entry.actor, entry.purpose or (None, entry.cost)
