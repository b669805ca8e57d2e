# SPDX-License-Identifier: Apache-2.0
"""Usage: who used how much of some budgets and what for, read from their journals.

Epsilons of persons do not add up, so each is given the share of a budget that their spends would
use up alone, which nearly does. A spend in several blocks is counted once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from dosimeter.accounting import Account
from dosimeter.accounting.burned import spent_share
from dosimeter.ledger.accounts import terms_of
from dosimeter.ledger.activity import asked
from dosimeter.ledger.budget import Budget
from dosimeter.ledger.records import Entry, Kind
from dosimeter.rdp import Cost

BY = ("person", "purpose", "budget")
UNKNOWN = "unknown"
"""Who it was, or what for, where nobody said."""

_SIGN = {Kind.SPEND: 1, Kind.RESERVE: 1, Kind.RELEASE: -1}


@dataclass(kw_only=True)
class Use:
    """What one person did, or was done for one purpose or in one budget.

    Attributes:
        names: The person, the purpose or the budget, one for each word that was asked by.
        budgets: In which budgets something was spent or refused.
        spends: How many times something was spent; in several budgets at once, one time.
        steps: How many steps or queries these paid for, each counted once.
        refused: How many times a spend was refused; noted in the budget that refused it.
        first: When it began, by the clients' clocks.
        last: When it was done last.
        epsilon: What it would read alone, in the budget where that is most.
        share: What it would use up alone, in the filter where that is most; 0 for odometers.
    """

    names: tuple[str, ...]
    budgets: set[str] = field(default_factory=set)
    spends: int = 0
    steps: int = 0
    refused: int = 0
    first: str = ""
    last: str = ""
    epsilon: float = 0.0
    share: float = 0.0

    @property
    def who(self) -> str:
        """The names in one text."""
        return " / ".join(self.names)


def usage(budgets: Iterable[Budget], by: str = "person") -> list[Use]:
    """The uses of some budgets by person, purpose or budget, the greatest share first.

    Args:
        budgets: Whose journals to read.
        by: One or more of "person", "purpose" and "budget", with commas between: by
            "person,purpose" each purpose of each person is a use.
    """
    return used([budget.history(budget.statement().entries) for budget in budgets], words(by))


def words(by: str) -> tuple[str, ...]:
    """What uses are told apart by.

    Raises:
        ValueError: It is none of the words, or one of them twice.
    """
    found = tuple(word.strip() for word in by.split(","))
    if not {*found} <= {*BY} or len({*found}) < len(found):
        raise ValueError(f"by must be one or more of {', '.join(BY)}, commas between, got {by!r}")
    return found


def used(journals: Iterable[Sequence[Entry]], by: tuple[str, ...]) -> list[Use]:
    """The uses in some journals, each read from its opening entry on; by nothing, all as one."""
    found: dict[tuple[str, ...], Use] = {}
    times: dict[tuple[tuple[str, ...], Hashable, int], dict[str, int]] = {}
    for entries in journals:
        costs: dict[tuple[str, ...], dict[Cost, int]] = defaultdict(lambda: defaultdict(int))
        # What ends a reservation belongs to whoever made it.
        made = {entry.sequence: entry for entry in entries if entry.kind is Kind.RESERVE}
        for entry in entries:
            if entry.kind not in _SIGN and entry.kind is not Kind.REFUSE:
                continue
            source = made.get(entry.reference or -1, entry)
            names = tuple(_name(source, word) for word in by)
            use = found.setdefault(names, Use(names=names))
            _note(use, entry)
            if entry.kind in _SIGN:
                sign = _SIGN[entry.kind]
                costs[names][entry.priced()] += sign * entry.count
                one = times.setdefault((names, asked(source), source.count), defaultdict(int))
                one[entry.budget] += sign
        for names, spent in costs.items():
            _alone(found[names], entries[0], spent)
    for (names, _, count), each in times.items():
        found[names].spends += max(each.values())
        found[names].steps += max(each.values()) * count
    return sorted(found.values(), key=lambda use: (-use.share, -use.epsilon, use.names))


def _name(entry: Entry, word: str) -> str:
    if word == "budget":
        return entry.budget
    return (entry.actor if word == "person" else entry.purpose) or UNKNOWN


def _note(use: Use, entry: Entry) -> None:
    use.budgets.add(entry.budget)
    use.first = min(use.first or entry.time, entry.time)
    use.last = max(use.last, entry.time)
    use.refused += entry.kind is Kind.REFUSE


def _alone(use: Use, opening: Entry, spent: dict[Cost, int]) -> None:
    """Takes into account what these costs alone come to under the terms of the budget."""
    account = Account.open(terms_of(opening.parameters or {}))
    for cost, count in spent.items():
        if count:
            account = account.after(cost, count)
    use.epsilon = max(use.epsilon, account.epsilon)
    if account.limit < math.inf:
        use.share = max(use.share, spent_share(account))
