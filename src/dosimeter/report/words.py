# SPDX-License-Identifier: Apache-2.0
"""What a guarantee means to someone whose record was in the data, in plain words."""

from __future__ import annotations

import math

from dosimeter.report.runs import Run
from dosimeter.rounding import at_most, exact


def in_words(run: Run) -> str:
    """The guarantee of a run in words; says so where nothing is known, or its files disagree."""
    if run.overspent and run.limit is None:
        return "Nothing is guaranteed: a computation without a finite cost was run."
    if run.overspent and run.limit is not None:
        return (
            f"Nothing is claimed here: ε = {at_most(run.history.epsilon)} was spent, more than the "
            f"limit of {exact(run.limit)} that the run names."
        )
    if run.in_words:
        return run.in_words
    if not run.kind or run.delta is None:
        return "The run says nothing of what is guaranteed, so nothing is claimed here."
    epsilon = run.history.epsilon if run.limit is None else run.limit
    return f"{_odds(epsilon, run.delta)} {_when(run)}"


def _odds(epsilon: float, delta: float) -> str:
    factor = f" = {math.ceil(10 * math.exp(epsilon)) / 10:g}" if epsilon < 7 else ""
    return (
        "Whatever anyone concludes from the model and from everything released while it was "
        f"trained, they would conclude it with at most e^{at_most(epsilon)}{factor} times the "
        f"probability (plus {exact(delta)}) had any one record been added or removed, and the "
        "other way round."
    )


def _when(run: Run) -> str:
    if run.kind == "ledger":
        return (
            "This counts everything that was ever spent from the shared budget, not this run alone."
        )
    if run.limit is not None:
        spent = at_most(run.history.epsilon)
        return f"This was certain before training began; by its end ε = {spent} was spent."
    return (
        "The figure is what the odometer read when training stopped; no limit was promised "
        "beforehand. It holds over all outcomes with no larger reading (ex-post)."
    )
