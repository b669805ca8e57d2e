# SPDX-License-Identifier: Apache-2.0
"""What the library raises.

    Exception
    └── DosimeterError
        ├── BudgetExceeded      a spend was refused; nothing changed
        ├── TicketError         a training step without a batch paid for (also a RuntimeError)
        └── StateError          a saved state cannot be used (also a ValueError)
    UserWarning
    └── UnsoundRuleWarning      a published rule that does not keep its promise

Wrong arguments raise plain TypeError and ValueError.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dosimeter.rounding import at_most, exact

if TYPE_CHECKING:
    from dosimeter.rdp import Cost


class DosimeterError(Exception):
    """Every error of its own that this library raises."""


class BudgetExceeded(DosimeterError):
    """A spend was refused and nothing changed; the gate stays readable and usable.

    Attributes:
        cost: What was asked for.
        count: How many runs of it were asked for.
        spent: Epsilon spent before the request.
        limit: The epsilon the gate will not pass (infinite for an odometer).
        affordable: The largest count of this cost that the gate would admit now.
        reason: Which limit would be passed, in words.
    """

    def __init__(
        self, *, cost: Cost, count: int, spent: float, limit: float, affordable: int, reason: str
    ) -> None:
        self.cost = cost
        self.count = count
        self.spent = spent
        self.limit = limit
        self.affordable = affordable
        self.reason = reason
        way_out = (
            f"spend at most {affordable} of it" if affordable else "ask for a cheaper computation"
        )
        super().__init__(
            f"{count} x {cost} refused: {reason} (spent {at_most(spent)}, limit {exact(limit)}); "
            f"{way_out}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("cost", "count", "spent", "limit", "affordable", "reason")
        return partial(type(self), **{name: getattr(self, name) for name in names}), ()


class StateError(DosimeterError, ValueError):
    """A saved state is of another kind or version, incomplete, or was edited."""


class TicketError(DosimeterError, RuntimeError):
    """A training step was asked for without a batch that was paid for and not yet used."""


class UnsoundRuleWarning(UserWarning):
    """The rule just made can admit sequences that break the (epsilon, delta) it names."""
