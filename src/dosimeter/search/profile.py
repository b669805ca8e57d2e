# SPDX-License-Identifier: Apache-2.0
"""A search by selection as one (epsilon, delta), from the exact losses of its trials.

A Rényi curve bounds every moment of a trial and pays for that. Whoever publishes one winner and
little else needs one epsilon at one delta, which the trial's own profile bounds far better
(docs/selection.md has the proof).
"""

from __future__ import annotations

import math

import numpy as np

from dosimeter import arguments
from dosimeter.accounting.classic import RdpComposition
from dosimeter.accounting.priced.lattice import Measure
from dosimeter.accounting.priced.menu import Losses, budget_level, least_epsilon
from dosimeter.rdp import ApproxDp, BestOf
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray

_SLACK = 1e-10
"""Covers the rounding of sums over a lattice of at most a million points."""

_CELL = 1e-3
_BELOW = 14.0
_POINTS = 1000

_MOST_EPSILON = 500.0
"""As with a menu. What a trial loses beyond is no longer told apart by doubles of e^loss."""


def approximate(search: BestOf, delta: float) -> ApproxDp:
    """The whole search as one (epsilon, delta), to be spent from a gate's `approx_delta`.

    Args:
        search: The best of a random number of trials, whose losses are known.
        delta: What may fail.

    Raises:
        ValueError: The loss of a trial is not known, or its epsilon is above 500.

    Guarantee:
        The best trial, published alone under the conditions of `BestOf`, is (epsilon, delta)-DP:
        its hockey stick at epsilon is at most E K times that of a trial at epsilon less
        (1 + eta) log r, r the most by which selection can favour an output ("By profiles" in
        docs/selection.md). Rounded upward; the best place to select at is sought cell by cell.

    Example:
        >>> import dosimeter as dm
        >>> from dosimeter.search import approximate
        >>> search = dm.BestOf(dm.Gaussian(5.0), steps=1, mean=16)
        >>> cost = approximate(search, 9e-7)
        >>> budget = dm.Filter(epsilon=1.5, delta=1e-7, approx_delta=9e-7)
        >>> budget.admits(cost), budget.admits(search)
        (True, False)
    """
    if not isinstance(search, BestOf):
        raise TypeError(f"search must be a dosimeter.BestOf, got {search!r}")
    delta = arguments.open_unit("delta", delta)
    share = delta / search.expected * (1 - _SLACK)
    trials = _trials(search, share)
    epsilon = 0.0
    for way, back in (tuple(Direction), tuple(Direction)[::-1]):
        # Doubles have told the trial's profile to twelve digits.
        alone = least_epsilon(trials[way], share)
        one_way = alone + (1 + search.eta) * _favour(trials[back], search.gamma)
        if not one_way < math.inf:  # max() would pass over NaN
            raise _beyond(search)
        epsilon = max(epsilon, one_way)
    epsilon = min(epsilon * (1 + _SLACK) + _SLACK, search.pure_epsilon)
    return ApproxDp(epsilon, delta, neighbours=search.neighbours)


def _trials(search: BestOf, delta: float) -> dict[Direction, Measure]:
    """The loss of one trial in each direction, on a lattice for about its epsilon."""
    rough = RdpComposition(delta=delta)
    rough.spend(search.cost, search.steps)
    if not rough.epsilon <= _MOST_EPSILON:
        raise _beyond(search)
    about = max(float(rough.epsilon), 1e-3)
    losses = Losses(about, delta, budget_level(about, delta))
    trials = {}
    for way in Direction:
        trial, *others = (losses.of(part, search.steps, way) for part in search.cost.parts)
        for part in others:
            trial = trial.plus(part)
        trials[way] = trial
    return trials


def _beyond(search: BestOf) -> ValueError:
    return ValueError(
        f"search must have trials whose epsilon is at most {_MOST_EPSILON:g}, got {search}. Take "
        "more noise or fewer steps, or charge its curve"
    )


def _favour(back: Measure, gamma: float) -> float:
    """log r: by how much more selection in one world may favour an output than in the other.

    Where a trial is beyond an output with probability a in the other world, it is in this one with
    at least b(a) = max over e of exp(-e) (a - HS(e)), HS the profile of the loss `back`. Both rise,
    so that the two ends of a cell bound the ratio within it.
    """
    if gamma == 1:
        return 0.0
    last = max(1, back.lo + len(back.p)) * back.step
    # Beyond, b is below any double; fewer places only lower it.
    epsilons = np.linspace(0.0, min(last, _MOST_EPSILON), _POINTS)
    a = np.append(np.exp(np.arange(math.log(gamma) - _BELOW, 0.0, _CELL)), 1.0)
    b = np.zeros(len(a))
    for epsilon, most in zip(epsilons.tolist(), _profile(back, epsilons).tolist(), strict=True):
        b = np.maximum(b, math.exp(-epsilon) * (a - most))
    beyond = (gamma + (1 - gamma) * a[1:]) / (gamma + (1 - gamma) * b[:-1])
    return math.log(max(float(beyond.max()), 1 + float(a[0]) / gamma)) + _SLACK


def _profile(loss: Measure, epsilons: FloatArray) -> FloatArray:
    """E (1 - e^{epsilon - X})+ at every epsilon, rounded up."""
    x = (loss.lo + np.arange(len(loss.p))) * loss.step
    above = np.append(np.cumsum(loss.p[::-1])[::-1], 0.0) * (1 + _SLACK)
    # Losses below 0 are above no epsilon; e^-loss of the lowest would be no number.
    falls = np.exp(-np.maximum(x, 0.0))
    shrunk = np.append(np.cumsum((loss.p * falls)[::-1])[::-1], 0.0) * (1 - _SLACK)
    start = np.searchsorted(x, epsilons, side="right")
    gain = np.maximum(above[start] - np.exp(epsilons) * shrunk[start], 0.0)
    return np.asarray((gain + loss.inf) * (1 + loss.rel) * (1 + _SLACK))
