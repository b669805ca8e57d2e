# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on epsilon from one run with many canaries, each named for what it assumes.

A canary is a record that was put into the data by a fair coin. Whoever watched the run gives
each canary a score; the better scores tell those that were in from those that were not, the
larger epsilon must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_GUESSED = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5)
"""Shares of the canaries that are guessed, the clearest ones; the best of these guesses counts."""

_CHOOSING, _CHOICE = 0.2, 0.05
"""Share of the canaries on which a threshold is chosen, and the level at which they do; the others
say what it is worth."""


def one_run(scores: Floats, present: Flags, delta: float, level: float) -> float:
    """Epsilon by Steinke, Nasr and Jagielski (2023), Theorem 5.2: assumes nothing of the engine.

    Args:
        scores: The larger, the more likely a canary was in.
        present: Which canaries were in, each by its own fair coin.
        delta: The delta that epsilon is for.
        level: With which probability the bound may be wrong.
    """
    order, canaries = np.argsort(scores, kind="stable"), len(scores)
    best = 0.0
    for share in _GUESSED:
        half = max(1, int(canaries * share / 2))
        right = present[order[-half:]].sum() + (~present[order[:half]]).sum()

        def too_small(epsilon: float, guesses: int = 2 * half, right: int = int(right)) -> bool:
            chance = _chance_of(guesses, right, epsilon, delta, canaries)
            return chance < level / len(_GUESSED)

        best = max(best, _largest(too_small))
    return best


def _chance_of(guesses: int, right: int, epsilon: float, delta: float, canaries: int) -> float:
    """Bound on the probability of so many right guesses under (epsilon, delta)-DP."""
    from scipy import stats

    each = 1 / (1 + math.exp(-epsilon))
    more = float(stats.binom.sf(right - 1, guesses, each))
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, each))
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, more + 2 * canaries * delta * steepest)


def gaussian(
    scores: Floats, present: Flags, delta: float, level: float, order: npt.NDArray[np.intp]
) -> float:
    """Epsilon read as if the run were one Gaussian mechanism (Nasr et al. 2023).

    Assumes that canaries do not influence each other, and that the trade-off between missed
    canaries and false alarms is that of a Gaussian: epsilon at a small delta is then told by
    errors that are common enough to be counted.

    Args:
        scores: The larger, the more likely a canary was in.
        present: Which canaries were in.
        delta: The delta that epsilon is for.
        level: With which probability the bound may be wrong.
        order: The canaries shuffled: the first choose the threshold, the others are counted.
    """
    few = order[: int(_CHOOSING * len(order))]
    rest = order[len(few) :]
    thresholds = np.quantile(scores[few], np.linspace(0.05, 0.95, 50))
    best = max(thresholds, key=lambda at: _separation(scores[few], present[few], at, _CHOICE))
    return epsilon_of(_separation(scores[rest], present[rest], best, level), delta)


def _separation(scores: Floats, present: Flags, threshold: float, level: float) -> float:
    """Lower bound on the distance of two normal distributions that err as the threshold does."""
    from scipy import stats

    said = scores > threshold
    errors = []
    for wrong, among in ((~said, present), (said, ~present)):
        trials, failures = int(among.sum()), int((wrong & among).sum())
        # Clopper and Pearson (1934), half of the level for each of the two.
        most = stats.beta.ppf(1 - level / 2, failures + 1, trials - failures)
        errors.append(float(most) if failures < trials else 1.0)
    return -float(stats.norm.ppf(errors).sum())


def epsilon_of(separation: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism whose worlds are so many deviations apart.

    Balle and Wang (2018), Theorem 8.
    """
    from scipy import stats

    if not separation > 0:
        return 0.0

    def too_small(epsilon: float) -> bool:
        ahead, behind = (
            separation / 2 - epsilon / separation,
            -separation / 2 - epsilon / separation,
        )
        other = math.exp(epsilon + float(stats.norm.logcdf(behind)))
        return float(stats.norm.cdf(ahead)) - other > delta

    return _largest(too_small)


def _largest(too_small: Callable[[float], bool]) -> float:
    """The epsilon up to which all are too small, to six digits and rounded down."""
    low, high = 0.0, 1.0
    if not too_small(low):
        return 0.0
    while too_small(high) and high < 500:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return low
