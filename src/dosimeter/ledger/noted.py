# SPDX-License-Identifier: Apache-2.0
"""Noted: a budget, or several blocks, whose journal says what all spends through it are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dosimeter.accounting import Gate
from dosimeter.ledger.request import text

if TYPE_CHECKING:
    from dosimeter.ledger.blocks import Blocks
    from dosimeter.ledger.budget import Budget
    from dosimeter.rdp import Cost


class Noted:
    """A gate for code that knows no purposes: training loops, other libraries.

    What else a budget has, such as `limit` and `guarantee`, it has as well.

    Guarantee:
        That of the budget: each spend is one of its own.
    """

    def __init__(self, budget: Budget | Blocks, purpose: str, actor: str = "") -> None:
        self._budget = budget
        self._note = {"purpose": text("purpose", purpose), "actor": text("actor", actor)}

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing."""
        return self._budget.admits(cost, count)

    def spend(self, cost: Cost, count: int = 1) -> object:
        """The receipt, or the receipts by name; see `Budget.spend`."""
        return self._budget.spend(cost, count, **self._note)

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up."""
        return self._budget.epsilon

    def __getattr__(self, name: str) -> Any:
        if name == "_budget":  # a copy in the making has none yet
            raise AttributeError(name)
        return getattr(self._budget, name)

    def __repr__(self) -> str:
        return f"Noted({self._budget!r}, {self._note['purpose']!r})"


if TYPE_CHECKING:
    _gate: type[Gate] = Noted
