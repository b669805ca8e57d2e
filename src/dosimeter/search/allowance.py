# SPDX-License-Identifier: Apache-2.0
"""Allowances: what one trial may take from the budget of a whole search.

Without one, the first of several trials that run side by side takes the budget and the others
train on nothing. An allowance only ever refuses more than its gate does, so it needs no proof: the
guarantee is the gate's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from dosimeter import arguments
from dosimeter.accounting import Filter, Gate, Guarantee
from dosimeter.errors import BudgetExceeded
from dosimeter.rdp import Cost


class Measure:
    """How large a share of a budget a run is, in a measure that adds up.

    A run is one over the number of such runs that the budget would pay for if nothing else were
    ever spent. Trials that cost differently are thus compared by what they leave to the others.

    Args:
        gate: A filter, or a budget of a ledger that has a limit.
    """

    def __init__(self, gate: Gate) -> None:
        words = getattr(gate, "guarantee", None)
        promise = words() if callable(words) else None
        if not (isinstance(promise, Guarantee) and promise.kind == "filter"):
            raise TypeError(
                "gate must be a filter, or a budget with a limit in a ledger, so that trials can "
                f"have a share of it, got {gate!r}"
            )
        self.limit = promise.epsilon
        self._whole = Filter(promise.epsilon, promise.delta, neighbours=promise.neighbours)
        self._runs: dict[Cost, int] = {}

    def runs(self, cost: Cost) -> int:
        """How many runs of a cost the whole budget pays for."""
        if cost not in self._runs:
            self._runs[cost] = self._whole.affordable(cost)
        return self._runs[cost]


class Allowance:
    """A gate for one trial: pays from the gate of the search, and never past its share.

    Args:
        gate: What is charged.
        share: The share of the whole budget that the trial may take, above 0 and at most 1.
        measure: What shares are measured by; that of the gate by default.

    Guarantee:
        Every spend that it admits was admitted and is kept by the gate. What a trial leaves of
        its share stays in the budget; what it spent is never handed back, however it ended.

    Example:
        >>> import dosimeter as dm
        >>> from dosimeter.search import Allowance
        >>> budget, step = dm.Filter(epsilon=2, delta=1e-6), dm.Gaussian(20.0)
        >>> trial = Allowance(budget, share=0.25)
        >>> budget.affordable(step), trial.affordable(step)
        (65, 16)
    """

    def __init__(
        self, gate: Gate, share: float | Fraction, *, measure: Measure | None = None
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {share!r}")
        self._gate, self._share = gate, Fraction(share)
        self._measure = measure or Measure(gate)
        self._used = Fraction(0)
        self.spent: Counter[Cost] = Counter()

    @property
    def epsilon(self) -> float:
        """Epsilon spent from the whole budget so far, by all, rounded up."""
        return self._gate.epsilon

    @property
    def limit(self) -> float:
        """The epsilon that the whole budget never passes."""
        return self._measure.limit

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that the share still has room for."""
        return int((self._share - self._used) * self._measure.runs(cost))

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing."""
        fits = arguments.count("count", count) <= self.affordable(cost)
        return fits and self._gate.admits(cost, count)

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Spends from the gate; call it before the data are touched.

        Raises:
            BudgetExceeded: It would pass the share, or the gate refused. Nothing has changed.
        """
        left = self.affordable(cost)
        if arguments.count("count", count) > left:
            raise _refusal(self, cost, count, left, "it would pass the allowance of this trial")
        self._gate.spend(cost, count)
        self._used += Fraction(count, self._measure.runs(cost))
        self.spent[cost] += count

    def renew(self, share: float | Fraction) -> None:
        """Set the share that the trial may take from now on, beside what it has spent."""
        self._share = self._used + Fraction(share)

    def guarantee(self) -> object:
        """What holds for everything spent from the budget, by all trials."""
        return cast(Any, self._gate).guarantee()

    def state(self) -> object:
        """What the gate says of itself; what it holds outlives the trial."""
        state = getattr(self._gate, "state", None)
        return state() if callable(state) else None


class Prepaid:
    """A gate for a trial that was paid for as a whole; it charges nobody and keeps no journal.

    Args:
        runs: What was paid for, and how often.
    """

    epsilon = 0.0

    def __init__(self, runs: Mapping[Cost, int]) -> None:
        self._left = Counter(runs)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether so many runs of this are left of what was paid for."""
        return arguments.count("count", count) <= self._left[cost]

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Takes runs that are paid for, or raises BudgetExceeded and changes nothing."""
        if not self.admits(cost, count):
            raise _refusal(self, cost, count, self._left[cost], "the trial was not charged for it")
        self._left[cost] -= count


def _refusal(gate: Gate, cost: Cost, count: int, left: int, reason: str) -> BudgetExceeded:
    limit = getattr(gate, "limit", 0.0)
    return BudgetExceeded(
        cost=cost, count=count, spent=gate.epsilon, limit=limit, affordable=left, reason=reason
    )


if TYPE_CHECKING:
    _gates: tuple[type[Gate], ...] = (Allowance, Prepaid)
