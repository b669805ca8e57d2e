# SPDX-License-Identifier: Apache-2.0
"""Grid: the public multiples of a power of two on which sums and noise meet.

The clipped sum is rounded to the grid and noise is added in integers, so the result is that of
the ideal Gaussian mechanism, rounded: what floating-point numbers look like cannot tell anything
(docs/guarantees.md, Theorem 7). What rounding may add to the distance of two neighbours is taken
off the norm that records are clipped to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dosimeter.training import gaussian

FINE = 2.0**-22
"""A step of the grid is at most this share of the noise's standard deviation."""

ROUNDING = 2.0**-11
"""The share of the clipping norm by which rounding may take neighbours apart."""

ARITHMETIC = 2.0**-12
"""The share of the clipping norm that is kept for errors of single-precision arithmetic."""


@dataclass(frozen=True)
class Grid:
    """Where one release happens.

    Attributes:
        step: The distance of neighbouring points, a power of two.
        scale: Standard deviation of the noise in steps.
        norm: What records are clipped to, so that neighbours stay within `max_grad_norm`.
    """

    step: float
    scale: float
    norm: float

    @classmethod
    def of(
        cls, noise_multiplier: float, max_grad_norm: float, *, values: int, records: int
    ) -> Grid:
        """The grid for a noise and a clipping norm, both public.

        Args:
            noise_multiplier: Standard deviation of the noise over `max_grad_norm`.
            max_grad_norm: How far the sums of neighbours may be apart.
            values: How many numbers are released at once.
            records: The most records that a sum can be of.

        Raises:
            ValueError: There is no grid on which doubles hold every sum exactly.
        """
        deviation = math.nextafter(noise_multiplier * max_grad_norm, math.inf)
        if not 2.0**-900 < deviation < 2.0**900:
            raise ValueError(
                "noise_multiplier * max_grad_norm must lie in (2**-900, 2**900), got "
                f"{noise_multiplier!r} * {max_grad_norm!r}. Scale the loss instead."
            )
        # Rounded down, to a power of two, so that going to the grid and back is exact.
        finest = max_grad_norm * ROUNDING / math.sqrt(values) * (1 - 2.0**-50)
        step = 2.0 ** (math.frexp(min(deviation * FINE, finest))[1] - 1)
        scale = deviation / step
        if not scale <= gaussian.MAX_SCALE:
            raise ValueError(
                "noise_multiplier must be small enough for a grid that is finer than the data, "
                f"got {noise_multiplier!r} with {values} parameters. Lower it, or train fewer."
            )
        most = records * (max_grad_norm / step) + gaussian.REACH * scale + 1
        if not most < 2.0**53:
            raise ValueError(
                "noise_multiplier must be large enough for sums that are whole numbers below "
                f"2**53, got {noise_multiplier!r} with {records} records and {values} parameters. "
                "Raise it, or train fewer parameters."
            )
        share = 1 - ROUNDING - ARITHMETIC
        return cls(step, scale, math.nextafter(max_grad_norm * share, 0.0))

    def round(self, values: torch.Tensor) -> None:
        """Replaces doubles by the nearest points of the grid, counted in steps."""
        # Multiplying by a power of two is exact, and so is every sum of whole numbers below 2**53.
        values.mul_(1 / self.step).round_()
