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
    ├── SchemaMismatch      another release made this database
    └── LedgerUnavailable   the database cannot be used now
        ├── LedgerBusy      someone else held the lock for too long
        └── ConnectionLost  the server went away
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dosimeter.errors import BudgetExceeded
from dosimeter.ledger.stores.errors import (
    ConnectionLost,
    LedgerBusy,
    LedgerError,
    LedgerUnavailable,
    SchemaMismatch,
)
from dosimeter.nearest import nearest

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
    "SchemaMismatch",
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
    """The ledger has no budget of that name.

    Attributes:
        hint: What may have been meant, where whoever asks may know what there is.
    """

    hint = ""

    def __str__(self) -> str:
        meant = f"; nothing was spent; {self.hint}" if self.hint else ""
        return f"name must be that of a budget in this ledger, got {self.args[0]!r}{meant}"


@contextmanager
def suggesting(names: Iterable[str]) -> Iterator[None]:
    """Suggests what may have been meant, if no budget has the name that is asked for."""
    try:
        yield
    except BudgetNotFound as error:
        with suppress(LedgerError):  # the names cannot be read, or not by this caller
            error.hint = _meant(str(error.args[0]), list(itertools.islice(names, _SUGGESTED)))
        raise


def _meant(name: str, known: list[str]) -> str:
    blocks = sum(one.startswith(f"{name}/") for one in known)
    if blocks:
        return f"it is a group of {blocks} blocks, which ledger.blocks({name!r}) spends from"
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else ""


_SUGGESTED = 10_000
"""Names are compared one by one, so that only so many are."""


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
