# SPDX-License-Identifier: Apache-2.0
"""Normal numbers, scaled and rounded to integers: exactly, at the speed of floating point.

The ideal draw takes two uniform numbers of infinitely many bits, makes two normals of them
(Box and Muller 1958), multiplies by the scale and rounds. Here 64 bits of each are drawn and
the normals computed in double precision. Where the result is farther from the border between
two integers than all that the missing bits and the arithmetic can move it, it is the ideal
one whatever the missing bits are. Where it is not, about once in 200,000 at a
scale of 2**23, more bits are drawn and
the number is computed with many digits.
"""

from __future__ import annotations

import math

import torch

from dosimeter.training.entropy import Keystream

MAX_SCALE = 2.0**36
"""Beyond this too many values would need many digits."""

TAIL = 2.0**-21
"""Radii made of uniforms outside of [TAIL, 1 - TAIL] are always computed with many digits."""

ERROR = 2.0**-42
"""More than the error of any other computed value, over the scale (docs/guarantees.md)."""

REACH = 17
"""No draw is more deviations from zero than this, as 192 bits allow."""

_DIGITS = 80


class RoundedNormals:
    """Draws round(scale * N(0, 1)).

    Args:
        most: The largest number of draws asked for at once; memory for them is kept.
    """

    def __init__(self, most: int) -> None:
        pairs = (most + 1) // 2
        self._bits = torch.empty(2 * pairs, dtype=torch.int64)
        self._uniform = torch.empty(2 * pairs, dtype=torch.float64)
        self._values = torch.empty(2 * pairs, dtype=torch.float64)
        self._whole = torch.empty(2 * pairs, dtype=torch.float64)

    def draw(self, keystream: Keystream, scale: float, count: int) -> torch.Tensor:
        """The next draws of a keystream, as doubles that hold whole numbers.

        Args:
            keystream: Where the bits come from.
            scale: The standard deviation before rounding, at most `MAX_SCALE`.
            count: How many.

        Returns:
            A view of memory that the next call overwrites.
        """
        if not 0 < scale <= MAX_SCALE:
            raise ValueError(f"scale must be above 0 and at most {MAX_SCALE}, got {scale!r}")
        pairs = (count + 1) // 2
        bits, uniform, values, whole = (
            kept[: 2 * pairs].view(2, pairs)
            for kept in (self._bits, self._uniform, self._values, self._whole)
        )
        keystream.fill(bits.numpy())
        radius, angle = uniform.copy_(bits)
        radius.add_(0.5).abs_().mul_(2.0**-63)
        unsure = _outside(radius, TAIL, 1 - TAIL)
        radius.log_().mul_(-2 * scale**2).sqrt_()
        angle.mul_(math.pi * 2.0**-63)
        torch.cos(angle, out=values[0]).mul_(radius)
        torch.sin(angle, out=values[1]).mul_(radius)
        torch.round(values, out=whole)
        sure = 0.5 - ERROR * scale
        for near in _outside(values.sub_(whole), -sure, sure):
            unsure.append(near % pairs)
        for index in sorted(set(unsure)):
            first, second = bits[:, index].tolist()
            pair = refined(keystream, first, second, scale)
            whole[:, index] = torch.tensor(pair, dtype=torch.float64)
        return whole.view(-1)[:count]


def _outside(values: torch.Tensor, low: float, high: float) -> list[int]:
    """Where values are not strictly between two bounds; hardly ever anywhere."""
    least, most = values.aminmax()
    if low < float(least) and float(most) < high:
        return []
    inside = (low < values) & (values < high)
    found: list[int] = (~inside).flatten().nonzero().flatten().tolist()
    return found


def refined(keystream: Keystream, first: int, second: int, scale: float) -> tuple[int, int]:
    """Both draws of a pair whose leading bits are given, with more bits and many digits.

    Args:
        keystream: Where the further bits come from.
        first: The 64 leading bits of what the radius is made of, as a signed number.
        second: The 64 leading bits of the angle, likewise.
        scale: The standard deviation before rounding.
    """
    import mpmath  # slow to load, and few draws need it

    words = [int(word) for word in keystream.words(4)]
    with mpmath.workdps(_DIGITS):
        uniform, turn = (
            mpmath.ldexp(mpmath.mpf((leading << 128) | (more << 64) | last) + 0.5, -63 - 128)
            for leading, more, last in ((first, *words[:2]), (second, *words[2:]))
        )
        radius = scale * mpmath.sqrt(-2 * mpmath.log(abs(uniform)))
        one, other = radius * mpmath.cospi(turn), radius * mpmath.sinpi(turn)
        return int(mpmath.floor(one + 0.5)), int(mpmath.floor(other + 0.5))
