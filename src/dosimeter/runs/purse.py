# SPDX-License-Identifier: Apache-2.0
"""Accounts: the gate that a config names, of the run's own or in a ledger, and what it promises."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dosimeter.accounting import Gate
from dosimeter.decisions.words import in_words
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.rdp import Cost
from dosimeter.rounding import at_most
from dosimeter.runs.config import BudgetTable, Config

if TYPE_CHECKING:
    from dosimeter.ledger import Budget as SharedBudget

_MOST_BETWEEN = 1000


@dataclass(frozen=True)
class Purse:
    """An open gate and what it promises.

    Attributes:
        gate: What every step is charged to.
        kind: "filter", "odometer" or "ledger".
        limit: The epsilon never to be passed; None for an odometer.
        delta: The delta of the guarantee.
    """

    gate: Gate
    kind: str
    limit: float | None
    delta: float

    @property
    def in_words(self) -> str:
        """What one may conclude from the results of a run that spent from it."""
        return in_words(self.kind, spent=self.gate.epsilon, limit=self.limit, delta=self.delta)

    @property
    def closed(self) -> bool:
        """Whether it is a budget of a ledger that spends no more."""
        return isinstance(self.gate, Noted) and self.gate.closed

    @property
    def found_closed(self) -> bool:
        """Whether a spend was refused because someone had closed the budget."""
        return isinstance(self.gate, Noted) and self.gate.found_closed

    def require_spent_from(self, position: object, epsilon: float) -> None:
        """Raises unless a ledger's journal holds what the checkpoint says it held.

        Args:
            position: What the gate's `state()` gave when the checkpoint was written.
            epsilon: What had been spent by then.

        Raises:
            StateError: It is another budget, or one that forgot the spends of the run.
        """
        if isinstance(self.gate, Noted) and not self.gate.holds(position):
            raise StateError(
                f"budget.name must be the budget that the run spent epsilon {at_most(epsilon)} "
                "from, got one whose journal does not hold the entry that the checkpoint names; "
                "give the database that the run began with as it was last, or begin another run"
            )


@contextmanager
def opened(config: Config, gate: Gate | None) -> Iterator[Purse]:
    """The purse that [budget] describes: of the run's own gate, or in a ledger if it has none."""
    budget = config.budget
    if gate is None:
        with _ledger(budget, f"dosimeter train: {config.output.folder}") as purse:
            yield purse
        return
    assert budget.delta is not None
    yield Purse(gate, budget.kind, budget.epsilon, budget.delta)


@contextmanager
def _ledger(budget: BudgetTable, purpose: str) -> Iterator[Purse]:
    """The budget of a ledger that [budget] names.

    Raises:
        ValueError: No ledger is named, or what it needs is not installed.
        BudgetNotFound: It has no such budget; the nearest is named.
    """
    try:
        from dosimeter.ledger import BudgetNotFound, Ledger
    except ModuleNotFoundError as error:
        raise ValueError(
            f"budget.ledger must have {error.name}; "
            "pip install -c constraints.txt '.[ledger]' in a clone of dosimeter"
        ) from error
    url = budget.ledger or os.environ.get("DOSIMETER_DB")
    if not url:
        raise ValueError("budget.ledger must be given, or DOSIMETER_DB set in the environment")
    with Ledger.open(url) as ledger:
        try:
            found = ledger[budget.name or ""]
        except BudgetNotFound as error:
            if not error.hint:
                error.add_note("dosimeter budget list shows those there are")
            raise
        standing = found.statement()
        limit = standing.limit if standing.limit < math.inf else None
        delta = standing.delta + standing.approx_delta
        yield Purse(Noted(found, purpose), "ledger", limit, delta)


class Noted:
    """A budget of a ledger whose journal says what each spend was for, and who made it."""

    def __init__(self, budget: SharedBudget, purpose: str) -> None:
        self._budget, self._purpose = budget, purpose
        self.name = budget.name
        self.found_closed = False

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing."""
        return self._budget.admits(cost, count)

    def spend(self, cost: Cost, count: int = 1) -> object:
        """Spends, or raises BudgetExceeded and changes nothing; also if it was closed."""
        from dosimeter.ledger import BudgetClosed

        try:
            return self._budget.spend(cost, count, purpose=self._purpose)
        except BudgetClosed as error:
            self.found_closed = True
            standing = self._budget.statement()
            raise BudgetExceeded(
                cost=cost,
                count=count,
                spent=standing.epsilon,
                limit=standing.limit,
                affordable=0,
                reason=str(error),
            ) from error

    @property
    def closed(self) -> bool:
        """Whether someone has closed the budget."""
        return self._budget.statement().closed

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far by all, rounded up."""
        return self._budget.epsilon

    @property
    def limit(self) -> float:
        """The epsilon never to be passed; infinite for an odometer."""
        return self._budget.limit

    @property
    def spent_share(self) -> float:
        """The share that all have used up, by the budget's own measure."""
        return self._budget.spent_share

    def state(self) -> dict[str, object]:
        """The last entry of the journal; a checkpoint keeps it, to know the journal again."""
        standing = self._budget.statement()
        return {"sequence": standing.entries - 1, "hash": standing.head}

    def holds(self, position: object) -> bool:
        """Whether the journal has the entry that `state` gave at some time."""
        from dosimeter.ledger.records import digest

        match position:
            case {"sequence": int(sequence), "hash": str(expected)}:
                since = self._budget.statement().entries - sequence
            case _:
                return False
        # Others may spend between the two questions, which moves the entry further back.
        entries = self._budget.history(since + _MOST_BETWEEN) if since > 0 else []
        found = [entry for entry in entries if entry.sequence == sequence]
        return [digest(entry.body()) for entry in found] == [expected]

    def guarantee(self) -> object:
        """What holds for everything spent from the budget."""
        return self._budget.guarantee()
