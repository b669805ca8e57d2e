# SPDX-License-Identifier: Apache-2.0
"""What a run promises in plain words, where its files agree about it."""

from __future__ import annotations

from dosimeter.decisions.words import in_words
from dosimeter.report.runs import Run
from dosimeter.rounding import at_most, exact


def promised(run: Run) -> str:
    """The guarantee of a run in words; says so where nothing is known, or its files disagree."""
    if run.overspent and run.limit is not None:
        return (
            f"Nothing is claimed here: ε = {at_most(run.history.epsilon)} was spent, more than the "
            f"limit of {exact(run.limit)} that the run names."
        )
    if run.in_words and not run.overspent:
        return run.in_words
    if not run.kind or run.delta is None:
        return "The run says nothing of what is guaranteed, so nothing is claimed here."
    return in_words(run.kind, spent=run.history.epsilon, limit=run.limit, delta=run.delta)
