# SPDX-License-Identifier: Apache-2.0
"""What a run promises in plain words, where its files agree about it."""

from __future__ import annotations

from dosimeter.decisions.words import in_words
from dosimeter.report.runs import Run
from dosimeter.rounding import at_most, exact

CLAIMED = (
    "Each point is what holds, ex-post, for everything released until then if the run stops there. "
    "A filter's limit holds whatever follows."
)
"""What a reading of a gate is worth."""

STILL = (
    "Where ε stands still at the limit, steps are not free: no more than the limit can be claimed, "
    "because the filter keeps it whatever is spent. What the steps use up is the share of the "
    "budget, and the filter refuses when none is left."
)
"""Why epsilon may stand still while spends go on."""


def claims(run: Run) -> bool:
    """Return whether a run's readings hold: its gate is known and kept, and no seed was given."""
    return bool(run.kind) and run.delta is not None and not run.overspent and not run.seeded


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
    promise = run.history.promise
    relation = {} if promise is None else {"neighbours": promise.neighbours}
    spent = run.history.epsilon
    return in_words(run.kind, spent=spent, limit=run.limit, delta=run.delta, **relation)
