# SPDX-License-Identifier: Apache-2.0
"""Blocks: several budgets of a ledger named together, as one gate.

A group is whatever has the same words before the slash: `visits/2026-01`, `visits/2026-02`. A spend
is made in all of its blocks or in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dosimeter.accounting import Gate, Guarantee
from dosimeter.ledger.errors import BudgetNotFound, suggesting
from dosimeter.ledger.noted import Noted
from dosimeter.ledger.rules import LABEL
from dosimeter.notebook import card
from dosimeter.rounding import at_most, share_words

if TYPE_CHECKING:
    from dosimeter.ledger.budget import Budget
    from dosimeter.ledger.ledger import Ledger
    from dosimeter.ledger.receipts import Receipt
    from dosimeter.rdp import Cost


class Blocks:
    """Blocks of a ledger; a `Gate`, so whatever takes a `Filter` takes them.

    Guarantee:
        For computations over disjoint parts of the data. Each record lies in one block, by a rule
        that looks at that record alone, so it pays for its own block only: what holds for all is
        what holds for the block with the weakest promise (parallel composition). Under
        replace-one-record neighbours a record is replaced by one of the same block; where users
        are protected, all records of a user lie in one block.
    """

    def __init__(self, ledger: Ledger, names: Iterable[str]) -> None:
        self._ledger = ledger
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the blocks, in the order of their labels."""
        return self._names

    def __iter__(self) -> Iterator[Budget]:
        return (self._ledger[name] for name in self._names)

    def __len__(self) -> int:
        return len(self._names)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether every block would accept a spend of this now; changes nothing."""
        return all([budget.admits(cost, count) for budget in self])

    def spend(
        self,
        cost: Cost,
        count: int = 1,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
    ) -> dict[str, Receipt]:
        """Spends in every block or in none; the receipts by name. See `Budget.spend`."""
        costs = dict.fromkeys(self._names, cost)
        return self._ledger.spend_all(costs, count, key=key, purpose=purpose, actor=actor)

    def noted(self, purpose: str, *, actor: str = "") -> Noted:
        """The same blocks as a gate whose spends all have this purpose in the journals."""
        return Noted(self, purpose, actor)

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that every block would admit now."""
        return min(budget.affordable(cost) for budget in self)

    @property
    def epsilon(self) -> float:
        """Epsilon spent in the block that spent most: what the records in it have paid."""
        return max(budget.epsilon for budget in self)

    @property
    def limit(self) -> float:
        """The largest limit of a block, which no record's epsilon passes."""
        return max(budget.limit for budget in self)

    @property
    def remaining(self) -> float:
        """What is left in the block that has least left, rounded down."""
        return min(budget.remaining for budget in self)

    @property
    def closed(self) -> bool:
        """Whether a block is closed, so that nothing can be spent in all of them."""
        return any(budget.closed for budget in self)

    @property
    def spent_share(self) -> float:
        """The share that is used up of the block that is used up most."""
        return max(budget.spent_share for budget in self)

    def guarantee(self) -> Guarantee:
        """What holds for every record, whichever block it lies in.

        Raises:
            ValueError: The blocks do not speak about the same neighbours.
        """
        found = [budget.guarantee() for budget in self]
        if len({one.neighbours for one in found}) > 1:
            raise ValueError(
                f"blocks must be about the same neighbours, got {found[0]} and others; quote the "
                "guarantee of each"
            )
        return replace(
            found[0],
            kind=max(one.kind for one in found),  # odometer, if one is
            epsilon=max(one.epsilon for one in found),
            delta=max(one.delta for one in found),
            menu=any(one.menu for one in found),
        )

    def __repr__(self) -> str:
        return f"Blocks({', '.join(self._lines())})"

    def _repr_html_(self) -> str:
        return card(self._title(), self._lines(), self.spent_share)

    def _title(self) -> str:
        first, last = self._names[0], self._names[-1]
        return f"{len(self)} blocks, {first} to {last}" if len(self) > 1 else first

    def _lines(self) -> list[str]:
        """Where they stand, in a few words each."""
        spent = f"at most epsilon {at_most(self.epsilon)}"
        return [self._title(), spent, f"{share_words(self.spent_share)} used up"]


if TYPE_CHECKING:
    _gate: type[Gate] = Blocks


def named(names: Iterable[str], group: str, block: str | None) -> list[str]:
    """The blocks of a group, in the order of their labels.

    Args:
        names: Of all budgets.
        group: What stands before the slash.
        block: One label, or two with dots between for all labels from one to the other; all
            blocks if None.

    Raises:
        BudgetNotFound: There is no such block.
    """
    names = list(names)
    labels = sorted(one[len(group) + 1 :] for one in names if one.startswith(f"{group}/"))
    labels = [one for one in labels if one != LABEL]
    if block is not None:
        first, dots, last = block.partition("..")
        labels = [one for one in labels if (first <= one <= last if dots else one == first)]
    if not labels:
        groups = [one.rpartition("/")[0] for one in names if "/" in one] if block is None else []
        with suggesting(dict.fromkeys([*groups, *names])):
            raise BudgetNotFound(group if block is None else f"{group}/{block}")
    return [f"{group}/{label}" for label in labels]


def spans(names: Iterable[str], among: Iterable[str]) -> str:
    """Budgets in few words, blocks in a row as `--block` takes them: "2026-01..2026-03, 2026-05".

    Args:
        names: The budgets.
        among: All that are looked at; where they are blocks of one group, its name is left out.
    """
    order = {one: place for place, one in enumerate(sorted({*among}))}
    groups = {one.rpartition("/")[0] for one in order}
    found: list[list[str]] = []
    for one in sorted({*names}):
        group = one.rpartition("/")[0]
        last = found[-1][-1] if found else ""
        if group and last.rpartition("/")[0] == group and order[one] == order[last] + 1:
            found[-1].append(one)
        else:
            found.append([one])
    alone = len(groups) == 1 and len(order) > 1
    words = [part[0].rpartition("/")[2] if alone else part[0] for part in found]
    return ", ".join(
        first + (f"..{part[-1].rpartition('/')[2]}" if len(part) > 1 else "")
        for first, part in zip(words, found, strict=True)
    )
