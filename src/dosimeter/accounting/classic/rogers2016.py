# SPDX-License-Identifier: Apache-2.0
"""Rogers, Roth, Ullman and Vadhan (2016), "Privacy Odometers and Filters".

Both rules add up (epsilon_i, delta_i). Checked: the filter (Theorem 5.1) agrees with the
public implementation in the Sherpa.ai federated learning framework. The odometer
(Theorem 6.3) is written from memory of the paper; where recollections of its constant
differ (a factor 2 inside or outside the root) the larger value is used.
"""

from __future__ import annotations

import math
from typing import ClassVar

from dosimeter import arguments
from dosimeter.accounting.classic.rule import EpsilonRule, Validity
from dosimeter.rdp.orders import FloatArray


class RogersFilter(EpsilonRule):
    """Theorem 5.1: an advanced-composition filter for adaptively chosen parameters.

    Guarantee:
        (epsilon, delta)-DP under full adaptivity; the delta_i may use half of delta.
    """

    validity: ClassVar[Validity] = Validity.FILTER

    def __init__(self, epsilon: float, delta: float) -> None:
        super().__init__(delta=delta, limit=epsilon)

    def _reading(self, sums: FloatArray) -> float:
        _, squares, growth, failures = (float(value) for value in sums)
        if not (failures <= self._delta / 2 and growth < math.inf):
            return math.inf
        offset = self._limit**2 / (28.04 * math.log(1 / self._delta))
        spread = 2 + math.log1p(squares / offset)
        return growth / 2 + math.sqrt((squares + offset) * spread * math.log(2 / self._delta))


class RogersOdometer(EpsilonRule):
    """Theorem 6.3: a running bound on the privacy loss for a data set of known size.

    Guarantee:
        With probability 1 - delta the privacy loss is at most the reading at every time;
        the delta_i may use half of delta.
    """

    validity: ClassVar[Validity] = Validity.ANYTIME

    def __init__(self, delta: float, *, dataset_size: int) -> None:
        super().__init__(delta=delta)
        self._size = arguments.count("dataset_size", dataset_size)
        if not self._size >= 3:
            raise ValueError(f"dataset_size must be at least 3, got {dataset_size!r}")

    def _reading(self, sums: FloatArray) -> float:
        _, squares, growth, failures = (float(value) for value in sums)
        if not (failures <= self._delta / 2 and growth < math.inf):
            return math.inf
        smallest = self._size**-2.0
        if smallest <= squares <= 1:
            factor = math.log(110 * math.e) + 2 * math.log(math.log(self._size) / self._delta)
            return growth / 2 + 2 * math.sqrt(squares * factor)
        spread = 1 + math.log1p(squares / smallest) / 2
        tail = math.log(4 * math.log2(self._size) / self._delta)
        return growth / 2 + math.sqrt(2 * (smallest + squares) * spread * tail)
