# SPDX-License-Identifier: Apache-2.0
"""The attack: from two iterates to all noise of the step between them.

torch draws float32 normals on a CPU by the formula of Box and Muller from 24 bits of the
Mersenne twister each. Where a coordinate is known to hold no gradient, the step shows the noise
itself; its leading bits are bits of the twister, and some 1,300 of them give the whole state, so
all other noise of the step too. Noise that is no twister's gives equations that contradict each
other, and a state that predicts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from experiments.noise_recovery.mt19937 import Recovered, UInt32s, recover

Floats = npt.NDArray[np.float64]
Kind = TypeVar("Kind", bound=np.generic)

_HALF = 8
"""torch pairs coordinates 8 apart in blocks of 16: cosines first, then sines."""

_UNIT = 2.0**24
_ROUNDING = 8e-7
"""Bound on the rounding of a float32 normal over its length: log, root, cosine, product, mean."""

_PREDICTS = 0.9
"""Correlation with noise that was held out from which on the state counts as recovered: it is 1
to five digits where the generator is a twister, and within 6 / sqrt(held out) of 0 elsewhere."""


@dataclass(frozen=True)
class View:
    """What an attacker sees of one step of SGD: two iterates, and what is public about it.

    Attributes:
        before: All parameters before the step, in the order in which they get their noise.
        after: The same after it.
        scale: Learning rate times clipping norm times noise multiplier over batch size.
        silent: Where the gradient of every record is known to be 0.
        held_out: Which of the silent coordinates are kept to see whether noise was predicted.
    """

    before: npt.NDArray[np.float32]
    after: npt.NDArray[np.float32]
    scale: float
    silent: npt.NDArray[np.bool_]
    held_out: npt.NDArray[np.bool_]

    @property
    def released(self) -> Floats:
        """The noisy gradient sum, in standard deviations of its noise."""
        return (self.before.astype(np.float64) - self.after) / self.scale

    @property
    def error(self) -> Floats:
        """Bound on what rounding the parameters did to the sum."""
        largest = np.maximum(np.abs(self.before), np.abs(self.after))
        return np.asarray(np.spacing(largest), np.float64) / self.scale


@dataclass(frozen=True)
class Attempt:
    """What the attack made of a view.

    Attributes:
        bits: How many bits of the generator the silent coordinates would show.
        recovered: The state that agrees best with them.
        noise: What that state says the noise was, in standard deviations.
        correlation: Of that with the noise seen at the coordinates held out.
    """

    bits: int
    recovered: Recovered
    noise: Floats
    correlation: float

    @property
    def succeeded(self) -> bool:
        """Whether the state predicts noise that it was not computed from."""
        return self.correlation > _PREDICTS


def attack(view: View) -> Attempt:
    """Looks for the Mersenne twister behind the noise of one step.

    Raises:
        ValueError: Too few coordinates are silent to show a state.
    """
    released = view.released
    shown = view.silent & ~view.held_out
    values, masks = _read(released, view.error, shown)
    recovered = recover(values, masks)
    noise = _normals(recovered.outputs(len(values)))
    correlation = np.corrcoef(noise[view.held_out], released[view.held_out])[0, 1]
    bits = int(np.unpackbits(masks.view(np.uint8)).sum())
    return Attempt(bits, recovered, noise, float(correlation))


def _read(normals: Floats, error: Floats, shown: npt.NDArray[np.bool_]) -> tuple[UInt32s, UInt32s]:
    """The bits of the twister's outputs that normals of known precision show: values, masks."""
    x, y = _pairs(normals)
    both = np.logical_and(*_pairs(shown))
    length = np.where(both, np.hypot(x, y), 1.0)
    wrong = np.maximum(*_pairs(error)) + _ROUNDING * length
    u = np.exp(-(length**2) / 2)
    # The first of a pair is 1 - u; its error is that of the length times the slope of u.
    first = _agreed((1 - u) * _UNIT, 2 + 1.5 * u * length * wrong * _UNIT, both)
    angle = np.arctan2(y, x) / (2 * np.pi) % 1.0
    second = _agreed(angle * _UNIT, 2 + 1.5 * wrong / length / (2 * np.pi) * _UNIT, both)
    values, masks = (
        np.stack(sides, axis=1).reshape(-1).astype(np.uint32)
        for sides in zip(first, second, strict=True)
    )
    return values, masks


def _agreed(
    number: Floats, error: Floats, known: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The leading of 24 bits that all whole numbers within an error share, and which these are."""
    low, high = np.floor(number - error).astype(np.int64), np.ceil(number + error).astype(np.int64)
    known = known & (low >= 0) & (high < _UNIT)
    differing = low ^ high
    for shift in (1, 2, 4, 8, 16):
        differing |= differing >> shift
    masks = np.where(known, ~differing & 0xFFFFFF, 0)
    return low & masks, masks


def _normals(outputs: UInt32s) -> Floats:
    """What torch makes of the twister's outputs, without its rounding."""
    first, second = _pairs((outputs & np.uint32(0xFFFFFF)) / _UNIT)
    length, angle = np.sqrt(-2 * np.log1p(-first)), 2 * np.pi * second
    return np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1).reshape(-1)


def _pairs(each: npt.NDArray[Kind]) -> tuple[npt.NDArray[Kind], npt.NDArray[Kind]]:
    """The two halves of every block of 16, each as rows of 8."""
    blocks = each.reshape(-1, 2, _HALF)
    return blocks[:, 0], blocks[:, 1]
