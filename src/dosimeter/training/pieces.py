# SPDX-License-Identifier: Apache-2.0
"""How logical batches are divided, so that every epoch has the same number of physical ones.

Poisson batches differ in size, so how many physical batches they need is left to chance; training
frameworks want to know beforehand, and stop when they have seen that many. So an epoch is given
more than it will need, and a step that needs fewer than it may have is divided further. Sizes and
numbers depend on the coins and the public number of records, never on a record.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

SHORT = 1e-9
"""How often, at most, an epoch needs more physical batches than were foreseen."""

UNSEEN = 1e-18
"""Batches so large that they are rarer than this are left out of account."""


@lru_cache(maxsize=64)
class Division:
    """What steps of one sample rate need.

    Args:
        records: How many records a process draws from.
        sample_rate: The probability of each to join a batch.
        size: The most records of a physical batch.
    """

    def __init__(self, records: int, sample_rate: float, size: int) -> None:
        from scipy import stats

        self._most = pieces(int(stats.binom.isf(UNSEEN, records, sample_rate)), size)
        self._law = records, sample_rate
        self._size = size

    def needed(self, steps: int) -> int:
        """A number of physical batches that so many steps exceed at most once in 10⁹ times."""
        if not steps:
            return 0
        rates, moments = self._moments
        # Chernoff: P(X > n) <= exp(steps * moment - rate * (n + 1)) for every rate.
        bound = float(((steps * moments - math.log(SHORT)) / rates).min())
        return min(math.ceil(bound) - 1, steps * self._most)

    @cached_property
    def _moments(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The logarithm of E[exp(rate * pieces of a step)], for some rates."""
        from scipy import stats
        from scipy.special import logsumexp

        counts = np.arange(self._most + 1)
        below = stats.binom.cdf(counts * self._size, *self._law)
        with np.errstate(divide="ignore"):
            logs = np.log(np.diff(below, prepend=0.0))
        rates = np.geomspace(1e-4, 60.0, 80)
        return rates, logsumexp(rates[:, None] * counts + logs, axis=1)


def pieces(records: int, size: int) -> int:
    """How many physical batches hold so many records."""
    return -(-records // size)
