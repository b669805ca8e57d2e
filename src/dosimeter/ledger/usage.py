# SPDX-License-Identifier: Apache-2.0
"""Usage: who used how much of some budgets and what for, read from their journals.

Epsilons of persons do not add up, so each is given the share of a budget that their spends would
use up alone, which nearly does. A spend in several blocks is counted once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dosimeter.accounting import Account, Terms
from dosimeter.accounting.burned import spent_share
from dosimeter.ledger.accounts import terms_of
from dosimeter.ledger.activity import asked
from dosimeter.ledger.budget import Budget
from dosimeter.ledger.records import Entry, Kind
from dosimeter.rdp import Cost

BY = ("person", "purpose", "budget")
UNKNOWN = "unknown"
"""Who it was, or what for, where nobody said."""

_Names = tuple[str, ...]
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


def words(by: str) -> _Names:
    """What uses are told apart by.

    Raises:
        ValueError: It is none of the words, or one of them twice.
    """
    found = tuple(word.strip() for word in by.split(","))
    if not {*found} <= {*BY} or len({*found}) < len(found):
        raise ValueError(f"by must be one or more of {', '.join(BY)}, commas between, got {by!r}")
    return found


def used(journals: Iterable[Sequence[Entry]], by: _Names, most: int | None = None) -> list[Use]:
    """The uses in some journals, the greatest share first; by nothing, all as one.

    Args:
        journals: Each with its opening entry first. Of what comes after it any part may be left
            out at its beginning; so is what that part gives back later.
        by: Words that uses are told apart by.
        most: Of how many the share is worked out, those with the most epsilon; by default of all.
            The others follow without.
    """
    found: dict[_Names, Use] = {}
    accounts: dict[_Names, list[Account]] = defaultdict(list)
    times: dict[tuple[_Names, Hashable, int], dict[str, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for entries in journals:
        costs: dict[_Names, dict[Cost, int]] = defaultdict(lambda: defaultdict(int))
        for entry, source in _counted(entries):
            names = tuple(_name(source, word) for word in by)
            _note(found.setdefault(names, Use(names=names)), entry)
            if entry.kind in _SIGN:
                sign = _SIGN[entry.kind]
                costs[names][entry.priced()] += sign * entry.count
                times[names, asked(source), source.count][entry.budget] += sign
        terms = terms_of(entries[0].parameters or {})
        for names, spent in costs.items():
            accounts[names].append(_alone(terms, spent))
    for (names, _, count), each in times.items():
        found[names].spends += max(each.values())
        found[names].steps += max(each.values()) * count
    for names, alone in accounts.items():
        found[names].epsilon = max(account.epsilon for account in alone)
    dearest = sorted(accounts, key=lambda names: (-found[names].epsilon, names))
    for names in dearest[:most]:
        found[names].share = max(spent_share(account) for account in accounts[names])
    return sorted(found.values(), key=lambda use: (-use.share, -use.epsilon, use.names))


def _counted(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """The entries that spend, give back or refuse, each with the one that says for whom.

    What ends a reservation belongs to whoever made it.
    """
    made = {entry.sequence: entry for entry in entries if entry.kind is Kind.RESERVE}
    for entry in entries:
        if entry.kind in _SIGN or entry.kind is Kind.REFUSE:
            source = entry if entry.reference is None else made.get(entry.reference)
            if source is not None:
                yield entry, source


def _name(entry: Entry, word: str) -> str:
    if word == "budget":
        return entry.budget
    return (entry.actor if word == "person" else entry.purpose) or UNKNOWN


def _note(use: Use, entry: Entry) -> None:
    use.budgets.add(entry.budget)
    use.first = min(use.first or entry.time, entry.time)
    use.last = max(use.last, entry.time)
    use.refused += entry.kind is Kind.REFUSE


def _alone(terms: Terms, spent: dict[Cost, int]) -> Account:
    """Where a budget would stand after these costs alone."""
    account = Account.open(terms)
    for cost, count in spent.items():
        if count:
            account = account.after(cost, count)
    return account
