# SPDX-License-Identifier: Apache-2.0
"""Gate: the one seam through which outer layers ask for privacy budget."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dosimeter.rdp import Cost


@runtime_checkable
class Gate(Protocol):
    """What stands between a computation and the data: ask, spend, then compute.

    Spend before the data are touched, and never hand back what was spent: a computation
    that crashed or was thrown away has still been run.
    """

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing."""
        ...

    def spend(self, cost: Cost, count: int = 1) -> object:
        """Spends, or raises BudgetExceeded and changes nothing; may return a receipt."""
        ...

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up."""
        ...
