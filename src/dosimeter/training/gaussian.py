# SPDX-License-Identifier: Apache-2.0
"""Normal numbers, scaled and rounded to integers: exactly, at the speed of floating point.

The ideal draw takes two uniform numbers of infinitely many bits, makes two normals of them
(Box and Muller 1958), multiplies by the scale and rounds. Here 63 and 64 of the bits are drawn
and the normals computed in double precision. Where the result is farther from the border
between two integers than all that the missing bits and the arithmetic can move it, it is
the ideal one whatever the missing bits are. Where it is not, about once in 60,000, more bits are
drawn and the number is computed with hundreds of digits.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import torch

from dosimeter.training.entropy import Keystream

MAX_SCALE = 2.0**25
"""Scales below this are within the bounds on the error."""

TAIL = 2.0**-20
"""Radii from outside of [TAIL, 1 - TAIL] are always computed with many digits."""

MARGIN = 2.0**-17
"""Bound on the error of a computed value in units of the grid, proven below 2**-19."""

REACH = 17
"""No draw is more deviations from zero than this, as 64 + 128 bits allow."""

_PAIRS = 2**15
_MORE_BITS = 128
_DIGITS = 80


class RoundedNormals:
    """Draws round(scale * N(0, 1)) from one keystream.

    Args:
        keystream: Where the bits come from.
        scale: The standard deviation before rounding, at most `MAX_SCALE`.
        count: How many will be asked for in all, at least.
    """

    def __init__(self, keystream: Keystream, scale: float, count: int) -> None:
        if not 0 < scale <= MAX_SCALE:
            raise ValueError(f"scale must be above 0 and at most {MAX_SCALE}, got {scale!r}")
        self._keystream, self._scale = keystream, scale
        pairs = min(_PAIRS, -(-count // 2))
        self._bits = np.empty((2, pairs), dtype=np.int64)
        self._radius, self._angle = torch.empty(2, pairs, dtype=torch.float64)
        self._values = torch.empty(2, pairs, dtype=torch.float64)
        self._drawn = torch.empty(2 * pairs, dtype=torch.int64)
        self._used = 2 * pairs

    def take(self, most: int) -> torch.Tensor:
        """The next draws, between one and `most` of them; a view, good until the next call."""
        if self._used == len(self._drawn):
            self._draw()
        start, self._used = self._used, min(self._used + most, len(self._drawn))
        return self._drawn[start : self._used]

    def _draw(self) -> None:
        self._keystream.fill(self._bits)
        self._bits[0] &= 2**63 - 1
        bits = torch.from_numpy(self._bits)
        radius, angle, values = self._radius, self._angle, self._values
        radius.copy_(bits[0]).add_(0.5).mul_(2.0**-63)
        unsure = (radius - 0.5).abs_() > 0.5 - TAIL
        radius.log_().mul_(-2.0).sqrt_().mul_(self._scale)
        angle.copy_(bits[1]).mul_(math.pi * 2.0**-63)
        torch.cos(angle, out=values[0]).mul_(radius)
        torch.sin(angle, out=values[1]).mul_(radius)
        drawn = self._drawn.view_as(values)
        whole = torch.round(values)
        drawn.copy_(whole)
        near = values.sub_(whole).abs_() > 0.5 - MARGIN
        unsure |= near[0] | near[1]
        for index in unsure.nonzero().flatten().tolist():
            first, second = (int(number) for number in self._bits[:, index])
            pair = refined(self._keystream, first, second, self._scale)
            drawn[:, index] = torch.tensor(pair, dtype=torch.int64)
        self._used = 0


def refined(keystream: Keystream, first: int, second: int, scale: float) -> tuple[int, int]:
    """Both draws of a pair whose leading bits are given, with more bits and many digits.

    Args:
        keystream: Where the further bits come from.
        first: The 63 leading bits of the number that the radius is made of.
        second: The 64 leading bits of the angle, as a signed number.
        scale: The standard deviation before rounding.
    """
    more = [int(word) for word in keystream.words(2 * _MORE_BITS // 64)]
    half = len(more) // 2
    with mpmath.workdps(_DIGITS):
        uniform = mpmath.mpf(_joined(first, more[:half])) + 0.5
        uniform = mpmath.ldexp(uniform, -63 - _MORE_BITS)
        turn = mpmath.ldexp(mpmath.mpf(_joined(second, more[half:])) + 0.5, -63 - _MORE_BITS)
        radius = scale * mpmath.sqrt(-2 * mpmath.log(uniform))
        return _nearest(radius * mpmath.cospi(turn)), _nearest(radius * mpmath.sinpi(turn))


def _joined(leading: int, words: list[int]) -> int:
    for word in words:
        leading = (leading << 64) | word
    return leading


def _nearest(value: Any) -> int:
    return int(mpmath.floor(value + 0.5))
