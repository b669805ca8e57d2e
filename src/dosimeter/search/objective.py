# SPDX-License-Identifier: Apache-2.0
"""PrivateObjective: an Optuna search in which every step and every score is charged to one gate.

A sampler that proposes by all scores so far, and a pruner that stops by them, are adaptive choices
of what to compute next. That is what a filter is for, so they need no care of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.errors import BudgetExceeded
from dosimeter.search.allowance import Allowance, Measure

if TYPE_CHECKING:
    import optuna


class PrivateObjective:
    """An objective for `study.optimize` whose trials each have an allowance of one budget.

    Args:
        objective: Called with Optuna's trial and the gate of this trial. It must charge that gate
            for all that touches data, the score that it returns included: `signal.read(…,
            gate=gate)`.
        gate: What all trials are charged to: a filter, or a budget with a limit in a ledger.
        trials: How many trials share it; each may take one over this of the whole budget.

    Guarantee:
        Everything that all trials released together is as private as the gate says, whatever
        sampler and pruner chose, if objectives charge before they touch data. Pruned and failed
        trials stay paid for. A trial that its allowance or the budget refuses is pruned; whatever
        else the objective raises is Optuna's to handle (`study.optimize(…, catch=ValueError)`).

    Example:
        >>> import dosimeter as dm, optuna
        >>> from dosimeter.search import PrivateObjective
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> def objective(trial, gate):
        ...     gate.spend(dm.Gaussian(30.0))  # before the data are touched
        ...     return -((trial.suggest_float("rate", 0, 1) - 0.3) ** 2)
        >>> budget = dm.Filter(epsilon=2, delta=1e-6)
        >>> study = optuna.create_study(direction="maximize")
        >>> study.optimize(PrivateObjective(objective, budget, trials=20), n_trials=20)
        >>> len(study.trials), budget.epsilon < 2
        (20, True)
    """

    def __init__(
        self,
        objective: Callable[[optuna.trial.Trial, Gate], float],
        gate: Gate,
        *,
        trials: int,
    ) -> None:
        self._objective, self._gate = objective, gate
        self._share = Fraction(1, arguments.count("trials", trials))
        self._measure = Measure(gate)

    def __call__(self, trial: optuna.trial.Trial) -> float:
        """Runs a trial; its user attributes say what it was charged, and what was refused."""
        import optuna

        allowance = Allowance(self._gate, self._share, measure=self._measure)
        try:
            return self._objective(trial, allowance)
        except BudgetExceeded as refusal:
            trial.set_user_attr("refused", str(refusal))
            raise optuna.TrialPruned(str(refusal)) from refusal
        finally:
            paid = {repr(cost): count for cost, count in allowance.spent.items()}
            trial.set_user_attr("charged", paid)
