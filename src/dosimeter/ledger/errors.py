# SPDX-License-Identifier: Apache-2.0
"""What the ledger raises.

DosimeterError
├── BudgetExceeded
│   └── LedgerRefusal       a budget refused a spend; nothing changed, in any budget
└── LedgerError
    ├── BudgetNotFound      no budget of that name (also a KeyError)
    ├── BudgetExists        the name is taken
    ├── BudgetClosed        the budget spends no more; it stays readable
    ├── KeyConflict         an idempotency key was used for something else
    ├── ReservationError    a reservation is used up, over, or of another process
    ├── JournalError        what is stored is not what was written
    ├── AccessDenied        a service does not accept the token, or not for this
    ├── AwaitingApproval    a service has reserved the spend, and someone must approve it
    ├── SchemaTooNew        a newer release wrote this database
    └── LedgerUnavailable   the database cannot be used now
        ├── LedgerBusy      someone else held the lock for too long
        └── ConnectionLost  the server went away
"""

from __future__ import annotations

from typing import Any

from dosimeter.errors import BudgetExceeded
from dosimeter.ledger.stores.errors import (
    ConnectionLost,
    LedgerBusy,
    LedgerError,
    LedgerUnavailable,
    SchemaTooNew,
)

__all__ = [
    "AccessDenied",
    "AwaitingApproval",
    "BudgetClosed",
    "BudgetExists",
    "BudgetNotFound",
    "ConnectionLost",
    "JournalError",
    "KeyConflict",
    "LedgerBusy",
    "LedgerError",
    "LedgerRefusal",
    "LedgerUnavailable",
    "ReservationError",
    "SchemaTooNew",
]


class LedgerRefusal(BudgetExceeded):
    """A budget of the ledger refused a spend; nothing changed, in any budget.

    Attributes:
        budget: The name of the budget that refused.
    """

    def __init__(self, budget: str, refusal: BudgetExceeded) -> None:
        self.budget = budget
        self._refusal = refusal
        super().__init__(
            cost=refusal.cost,
            count=refusal.count,
            spent=refusal.spent,
            limit=refusal.limit,
            affordable=refusal.affordable,
            reason=f"in budget {budget!r} {refusal.reason}",
        )

    def __reduce__(self) -> Any:
        # A worker's error reaches its parent as a pickle.
        asked = {name: getattr(self._refusal, name) for name in _REFUSAL}
        return _refused, (self.budget, asked)


_REFUSAL = ("cost", "count", "spent", "limit", "affordable", "reason")


def _refused(budget: str, asked: dict[str, Any]) -> LedgerRefusal:
    return LedgerRefusal(budget, BudgetExceeded(**asked))


class BudgetNotFound(LedgerError, KeyError):
    """The ledger has no budget of that name."""

    def __str__(self) -> str:
        return f"name must be that of a budget in this ledger, got {self.args[0]!r}"


class BudgetExists(LedgerError):
    """The name is taken; budgets are never deleted, so choose another."""


class BudgetClosed(LedgerError):
    """The budget was closed and spends no more; it stays readable."""


class KeyConflict(LedgerError):
    """An idempotency key names one spend and was given for another."""


class ReservationError(LedgerError):
    """A reservation is used up, over, or was made by another process."""


class JournalError(LedgerError):
    """What is stored is not what was written: a row was edited or is missing."""


class AccessDenied(LedgerError):
    """A service does not accept the token, or the token does not allow this."""


class AwaitingApproval(LedgerError):
    """A service has reserved the spend; once it is approved, the same key is given its receipt."""
