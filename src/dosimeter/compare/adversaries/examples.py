# SPDX-License-Identifier: Apache-2.0
"""Adversaries that break rules which choose the order after the fact.

Found by local search, then fixed to a few digits and verified in 60 digits by the tests.
All use epsilon = 3, delta = 1e-6 and the orders 8 and 32: after one output order 8 has
budget left and order 32 has not, after the other it is the reverse, so the rule that asks
for *some* order within budget admits both, while no single order pays for both.
"""

from __future__ import annotations

import math

from dosimeter.compare.adversaries.mechanism import FiniteMechanism
from dosimeter.compare.adversaries.play import Step

EPSILON = 3.0
DELTA = 1e-6
ORDERS = (8.0, 32.0)


def _two_stage(
    first: tuple[float, float], yes: tuple[float, float], no: tuple[float, float]
) -> Step:
    """Two-point mechanisms (loss, probability): one, then one of two by its output."""
    return Step(
        FiniteMechanism((first[0],), (first[1],)),
        tuple(Step(FiniteMechanism((loss,), (p,))) for loss, p in (yes, no)),
    )


TIGHT_CONVERSION = _two_stage((0.59, 4e-5), (2.4418, 0.7985), (3.1336, 7.9773e-6))
"""Against the curve rule with the tight conversion: hockey stick 1.9972 delta."""

TAIL_CONVERSION = _two_stage((0.63, 1e-5), (2.3702, 0.099349), (3.0002, 9.9706e-7))
"""Against the curve rule with the paper's conversion: P(loss > 3) is 1.9905 delta."""

TWO_SIDED_ORDER = 277.0
TWO_SIDED = FiniteMechanism(
    (0.1000562, -0.1000562), (9.9999897e-7, 9.9999897e-7 * math.exp(-0.1000562))
)
"""One run, one order: |loss| passes the bound of the paper's Equation 2 with 1.9048 delta."""
