# SPDX-License-Identifier: Apache-2.0
"""Grid: the public multiples of a power of two on which sums and noise meet.

The clipped sum is rounded to the grid and noise is added in integers, so the result is that of
the ideal Gaussian mechanism, rounded: what floating-point numbers look like cannot tell anything
(docs/guarantees.md, theorem 8). What rounding may add to the distance of two neighbours is taken
off the norm that records are clipped to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dosimeter.training import gaussian

BITS = 24
"""A step of the grid is between 2**-25 and 2**-24 of the noise's standard deviation."""

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
            ValueError: There is no grid on which 64 bits hold every sum.
        """
        deviation = math.nextafter(noise_multiplier * max_grad_norm, math.inf)
        if not 2.0**-900 < deviation < 2.0**900:
            raise ValueError(
                "noise_multiplier * max_grad_norm must lie in (2**-900, 2**900), got "
                f"{noise_multiplier!r} * {max_grad_norm!r}. Scale the loss instead."
            )
        step = 2.0 ** (math.frexp(deviation)[1] - 1 - BITS)
        scale = deviation / step
        most = records * (max_grad_norm / step) + gaussian.REACH * scale + 1
        if not most < 2.0**62:
            raise ValueError(
                "noise_multiplier must be large enough for sums on a grid of 64 bits, got "
                f"{noise_multiplier!r} with {records} records. Raise it to "
                f"{noise_multiplier * most / 2**61:.1g} or more."
            )
        rounding = math.sqrt(values) * step / max_grad_norm
        share = 1 - ARITHMETIC - math.nextafter(rounding, math.inf)
        if not share > 0.5:
            raise ValueError(
                "noise_multiplier must be small enough for the grid to leave room to clip, got "
                f"{noise_multiplier!r} with {values} parameters. Lower it, or train fewer."
            )
        return cls(step, scale, max_grad_norm * share)

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """Which points of the grid are nearest, as whole numbers."""
        # Multiplying by a power of two is exact, and so is rounding in double precision.
        return values.double().mul_(1 / self.step).round_().to(torch.int64)
