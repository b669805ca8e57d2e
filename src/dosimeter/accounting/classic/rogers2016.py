# SPDX-License-Identifier: Apache-2.0
"""Rogers, Roth, Ullman and Vadhan (2016), "Privacy Odometers and Filters".

It adds up (epsilon_i, delta_i). The filter (Theorem 5.1) agrees with the public implementation
in the Sherpa.ai federated learning framework.
"""

from __future__ import annotations

import math
from typing import ClassVar

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
