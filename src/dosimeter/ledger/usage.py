# SPDX-License-Identifier: Apache-2.0
"""Usage: who used how much of some budgets and what for, read from their journals.

Epsilons of persons do not add up, so each is given the share of a budget that their spends would
use up alone, which nearly does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from dosimeter.accounting import Account
from dosimeter.accounting.burned import spent_share
from dosimeter.ledger.accounts import terms_of
from dosimeter.ledger.budget import Budget
from dosimeter.ledger.records import Entry, Kind
from dosimeter.rdp import Cost

BY = ("person", "purpose", "budget")
_SIGN = {Kind.SPEND: 1, Kind.RESERVE: 1, Kind.RELEASE: -1}


@dataclass(kw_only=True)
class Use:
    """What one person did, or was done for one purpose or in one budget.

    Attributes:
        who: The person, the purpose, or the budget.
        budgets: In which budgets something was spent or refused.
        spends: How many entries of the journals spent something.
        runs: How many runs of mechanisms these paid for.
        refused: How many times a spend was refused.
        first: When it began, by the clients' clocks.
        last: When it was done last.
        epsilon: What it would read alone, in the budget where that is most.
        share: What it would use up alone, in the filter where that is most; 0 for odometers.
    """

    who: str
    budgets: set[str] = field(default_factory=set)
    spends: int = 0
    runs: int = 0
    refused: int = 0
    first: str = ""
    last: str = ""
    epsilon: float = 0.0
    share: float = 0.0


def usage(budgets: Iterable[Budget], by: str = "person") -> list[Use]:
    """The uses of some budgets by person, purpose or budget, the greatest share first.

    Args:
        budgets: Whose journals to read.
        by: One of "person", "purpose" and "budget".
    """
    if by not in BY:
        raise ValueError(f"by must be one of {', '.join(BY)}, got {by!r}")
    found: dict[str, Use] = {}
    for budget in budgets:
        entries = budget.history(budget.statement().entries)
        costs: dict[str, dict[Cost, int]] = defaultdict(lambda: defaultdict(int))
        # What ends a reservation belongs to whoever made it.
        made = {entry.sequence: entry for entry in entries if entry.kind is Kind.RESERVE}
        for entry in entries:
            if entry.kind in _SIGN or entry.kind is Kind.REFUSE:
                source = made.get(entry.reference or -1, entry)
                who = {"person": source.actor, "purpose": source.purpose}.get(by, entry.budget)
                _count(found.setdefault(who, Use(who=who)), entry)
                if entry.kind in _SIGN:
                    costs[who][entry.priced()] += _SIGN[entry.kind] * entry.count
        for who, spent in costs.items():
            _alone(found[who], entries[0], spent)
    return sorted(found.values(), key=lambda use: (-use.share, -use.epsilon, use.who))


def _count(use: Use, entry: Entry) -> None:
    use.budgets.add(entry.budget)
    use.first = min(use.first or entry.time, entry.time)
    use.last = max(use.last, entry.time)
    if entry.kind is Kind.REFUSE:
        use.refused += 1
    else:
        use.spends += _SIGN[entry.kind]
        use.runs += _SIGN[entry.kind] * entry.count


def _alone(use: Use, opening: Entry, spent: dict[Cost, int]) -> None:
    """Takes into account what these costs alone come to under the terms of the budget."""
    account = Account.open(terms_of(opening.parameters or {}))
    for cost, count in spent.items():
        if count:
            account = account.after(cost, count)
    use.epsilon = max(use.epsilon, account.epsilon)
    if account.limit < math.inf:
        use.share = max(use.share, spent_share(account))
