# SPDX-License-Identifier: Apache-2.0
"""best_of: a random number of independent trials, paid for once, of which only the best is seen.

Nothing here prints, logs, counts aloud or writes: the number of trials and all but the best one
exist only in the memory of this process, until the next better one takes their place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from dosimeter.accounting import Gate
from dosimeter.rdp import BestOf, Cost, Gaussian, Together
from dosimeter.search.allowance import Prepaid
from dosimeter.search.profile import approximate

T = TypeVar("T")


def selection(
    cost: Cost, steps: int, *, mean: float, score: Gaussian | None = None, eta: float = 0.0
) -> BestOf:
    """What `best_of` charges for a search: once, for all its trials.

    Args:
        cost: What one step of a trial costs.
        steps: How many of them a trial may take.
        mean: How many trials are expected.
        score: What the private score of a trial costs; None for one on public records.
        eta: As `BestOf` has it.
    """
    if score is not None:
        # The score once is as dear as one at sqrt(steps) times its noise in every step.
        noise = math.nextafter(score.noise_multiplier * math.sqrt(steps), 0.0)
        cost = Together([cost, Gaussian(noise, neighbours=score.neighbours)])
    return BestOf(cost, steps, mean, eta, neighbours=cost.neighbours)


def best_of(
    trial: Callable[[Gate], tuple[float, T]],
    gate: Gate,
    *,
    cost: Cost,
    steps: int,
    mean: float,
    score: Gaussian | None = None,
    eta: float = 0.0,
    delta: float | None = None,
) -> tuple[float, T]:
    """The score and the result of the best trial of a random number of them.

    Args:
        trial: Runs one trial under the gate that it is given, and returns its score, the larger
            the better, and whatever may be published of it. It draws its settings itself, from
            one law that looks neither at the data nor at other trials, and leaves no other trace:
            no print, no log, no file.
        gate: Charged once, before the first trial.
        cost: What a step of a trial costs at most.
        steps: How many steps a trial may take.
        mean: How many trials are expected, at least 1.
        score: What the private score of a trial costs; None for one on public records.
        eta: The shape of the law of their number: 0 logarithmic, 1 geometric; see `BestOf`.
        delta: What of the gate's `approx_delta` pays for the search as one (epsilon, delta), which
            is cheaper if little else is spent (`approximate`); None to charge its Rényi curve.

    Raises:
        BudgetExceeded: The gate refused the search, or a trial asked for more than its steps and
            its score.

    Guarantee:
        What is returned costs what was charged (`BestOf`, docs/selection.md), if trials keep to
        the above and nobody learns how many there were; the time that the search took tells.

    Example:
        >>> import random, dosimeter as dm
        >>> from dosimeter.search import best_of
        >>> def trial(gate):
        ...     rate = random.SystemRandom().uniform(0, 1)
        ...     gate.spend(dm.Gaussian(50.0))
        ...     return -abs(rate - 0.3), rate
        >>> budget = dm.Filter(epsilon=1, delta=1e-6)
        >>> score, rate = best_of(trial, budget, cost=dm.Gaussian(50.0), steps=1, mean=16)
        >>> 0 < rate < 1, budget.epsilon < 1
        (True, True)
    """
    search = selection(cost, steps, mean=mean, score=score, eta=eta)
    paid = Counter({cost: steps})
    if score is not None:
        paid[score] += 1
    gate.spend(search if delta is None else approximate(search, delta))
    best: tuple[float, T] | None = None
    for _ in range(search.trials()):
        value, result = trial(Prepaid(paid))
        value = -math.inf if math.isnan(value) else value
        if best is None or value > best[0]:
            best = value, result
    assert best is not None  # there is always a first trial
    return best
