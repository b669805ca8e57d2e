# SPDX-License-Identifier: Apache-2.0
"""diffprivlib on one budget: an accountant that pays before the data are touched.

diffprivlib asks its accountant whether there is budget left (`check`), computes, and reports the
spend at the end. Here `check` pays, so a refusal comes before the computation and a crash in it
gives nothing back. What diffprivlib says is epsilon-DP is charged as that; it does not say for
which neighbours, so that is written down here, tool by tool, and unknown tools are refused.
"""

from __future__ import annotations

import warnings
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.errors import BudgetExceeded
from dosimeter.integrations.parts import called_from, relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import ApproxDp, Cost

require("diffprivlib", "0.6")

from diffprivlib import BudgetAccountant  # noqa: E402  after the check of its version
from diffprivlib.accountant import Budget  # noqa: E402
from diffprivlib.utils import BudgetError, PrivacyLeakWarning  # noqa: E402

_REPLACE, _ADD_REMOVE = Neighbours.REPLACE_ONE_RECORD, Neighbours.ADD_REMOVE_RECORD

_RUNS = {
    "tools.utils": {_REPLACE: 1},
    "tools.quantiles": {_REPLACE: 1},
    "tools.histograms": {_REPLACE: 2, _ADD_REMOVE: 1},
    "models.standard_scaler": {_REPLACE: 1},
    "models.linear_regression": {_REPLACE: 1},
    "models.logistic_regression": {_REPLACE: 1},
    "models.pca": {_REPLACE: 1},
    "models.naive_bayes": {_REPLACE: 2},
    "models.k_means": {_REPLACE: 2},
    "models.forest": {_REPLACE: 2},
}
"""How many times its epsilon a tool costs for each relation that it has a bound for.

Means, sums, quantiles and most models use the number of records as if it were public, so only
replacing one is bounded. Bins, classes, clusters and leaves are disjoint: replacing a record takes
one out of a part and puts one into another, which is two steps of adding or removing.
"""


class Refused(BudgetExceeded, BudgetError):  # type: ignore[misc]  # it has no types
    """A spend was refused before the data were touched; diffprivlib's error and ours."""


class Accountant(BudgetAccountant):  # type: ignore[misc]
    """A `BudgetAccountant` that spends from a gate, for every tool and model of diffprivlib.

    Args:
        gate: A filter, an odometer or a budget of a ledger, for neighbours that replace one record;
            histograms also have a cost where one is added or removed.

    Making one turns diffprivlib's `PrivacyLeakWarning` into an error: what it warns of (bounds
    read off the data) is not in any epsilon.

    Guarantee:
        Each tool is charged, as an (epsilon, delta)-DP mechanism of the gate's relation, before it
        reads its data. That it is one is diffprivlib's claim.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._neighbours = relation_of(gate)
        self._paid: list[tuple[float, float]] = []
        warnings.simplefilter("error", PrivacyLeakWarning)

    def check(self, epsilon: float, delta: float) -> bool:
        """True once this is paid for; asked by anyone but diffprivlib, whether it could be.

        Raises:
            Refused: It would pass the limit. Nothing was spent.
            ValueError: The tool has no bound for the gate's neighbours. Nothing was spent.
        """
        tool = called_from("diffprivlib")
        cost, count = self._cost(epsilon, delta), 1 if tool is None else self._count(tool)
        if tool is not None:
            self._spend(cost, count)
        elif not self._gate.admits(cost, count):
            raise BudgetError(f"({epsilon}, {delta}) must be within what is left, and it is not")
        return True

    def spend(self, epsilon: float, delta: float) -> Accountant:
        """Nothing for diffprivlib, whose `check` has paid; for anyone else a spend."""
        if called_from("diffprivlib") is None:
            self._spend(self._cost(epsilon, delta), 1)
        return self

    @property
    def epsilon(self) -> float:
        """The epsilon never to be passed; infinite for an odometer."""
        return float(self._gate.limit)  # type: ignore[attr-defined]  # all with a guarantee have it

    @property
    def delta(self) -> float:
        """The delta of the gate's guarantee."""
        return float(self._gate.guarantee().delta)  # type: ignore[attr-defined]

    @property
    def slack(self) -> float:
        """Nothing: the gate composes better than diffprivlib's rule with any slack."""
        return 0.0

    @property
    def spent_budget(self) -> list[tuple[float, float]]:
        """Every (epsilon, delta) that was paid through this accountant, doubled ones twice."""
        return list(self._paid)

    def total(self, spent_budget: object = None, slack: object = None) -> Any:
        """What everything spent from the gate costs together, whoever spent it."""
        if spent_budget is not None or slack is not None:
            raise TypeError("total must be asked without arguments: the gate composes")
        return Budget(self._gate.epsilon, self.delta)

    def remaining(self, k: int = 1) -> Any:
        """The largest epsilon that k more pure queries may have each, rounded down."""
        low, high = 0.0, min(self.epsilon, 1e3)
        for _ in range(40):
            middle = (low + high) / 2
            admitted = self._gate.admits(self._cost(middle, 0), k)
            low, high = (middle, high) if admitted else (low, middle)
        return Budget(low, 0.0)

    def __len__(self) -> int:
        return len(self._paid)

    def __repr__(self) -> str:
        return f"Accountant({self._gate!r})"

    def __deepcopy__(self, memo: object) -> Accountant:
        """Itself: scikit-learn copies what models are made with, and there is one budget."""
        return self

    def _cost(self, epsilon: float, delta: float) -> Cost:
        return ApproxDp(epsilon, delta, neighbours=self._neighbours)

    def _count(self, tool: str) -> int:
        runs = _RUNS.get(tool)
        if runs is None:
            raise ValueError(f"tool must be one that was looked at, got diffprivlib.{tool}")
        if self._neighbours not in runs:
            bounded = " or ".join(str(relation) for relation in runs)
            raise ValueError(
                f"diffprivlib.{tool} must be paid from a gate for neighbours that {bounded}, got "
                f"one for {self._neighbours}: it takes the number of records for public. Make the "
                "gate with neighbours=Neighbours.REPLACE_ONE_RECORD."
            )
        return runs[self._neighbours]

    def _spend(self, cost: Cost, count: int) -> None:
        try:
            self._gate.spend(cost, count)
        except BudgetExceeded as refusal:
            names = ("cost", "count", "spent", "limit", "affordable", "reason")
            raise Refused(**{name: getattr(refusal, name) for name in names}) from None
        assert isinstance(cost, ApproxDp)
        self._paid += [(cost.epsilon, cost.delta)] * count
