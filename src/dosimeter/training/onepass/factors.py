# SPDX-License-Identifier: Apache-2.0
"""Factors: what the gradient of each record is multiplied by, so that none is longer than a bound.

The factor of a record depends on its own norm alone, in one of two ways. A third could be given a
rule that compares records, and one record would then move the factors of others.
"""

from __future__ import annotations

from enum import StrEnum

from torch import Tensor

STABILISER = 0.01
"""Added to norms where gradients are normalised (Bu, Wang, Zha and Karypis 2023)."""


class Clipping(StrEnum):
    """How a gradient is kept within its bound.

    Attributes:
        FLAT: Longer ones are cut to the bound, shorter ones stay. Wants a bound that fits.
        NORMALISED: All get the bound as their length, those far below 0.01 less. Wants no norm:
            another bound is the same as another learning rate.
    """

    FLAT = "flat"
    NORMALISED = "normalised"

    def lengths(self, norms: Tensor, bound: float) -> Tensor:
        """What the bound is divided by to give each record's factor: never less than its norm.

        Args:
            norms: Of the records' gradients, none less than the true one; changed in place.
            bound: What no record may add more than.
        """
        if self is Clipping.FLAT:
            return norms.clamp_(min=bound)
        return norms.add_(STABILISER)
