# SPDX-License-Identifier: Apache-2.0
"""Where noise and batches get their randomness.

Without a seed every draw starts from the operating system's entropy. PyTorch's CPU
generator keeps only 32 bits of a seed (`manual_seed(5)` and `manual_seed(5 + 2**32)` give
the same noise), which can be searched through, so its whole state is filled instead, anew
before every step. With a seed everything can be repeated, by an attacker too.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_WORDS = 624
_HEAD = 3
"""A CPU generator's saved state: seed, (left, seeded), next, then 624 words of 64 bits."""


class NoiseSource:
    """The generator that Opacus draws noise from."""

    def __init__(self, device: torch.device, seed: int | None) -> None:
        self.generator = torch.Generator(device)
        self._seeded = seed is not None
        self._blank = _blank_state()
        if seed is not None:
            self.generator.manual_seed(seed)

    def refresh(self) -> None:
        """Fills the generator from the operating system's entropy, unless it was seeded."""
        if self._seeded:
            return
        if self.generator.device.type != "cpu":
            self.generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
            return
        state = self._blank.clone()
        words = np.frombuffer(os.urandom(4 * _WORDS), dtype=np.uint32)
        view = state.numpy().view(np.uint64)
        view[_HEAD : _HEAD + _WORDS] = words
        self.generator.set_state(state)

    def state(self) -> torch.Tensor | None:
        """What repeats the noise to come; None without a seed, for then nothing should."""
        return self.generator.get_state() if self._seeded else None

    def restore(self, state: torch.Tensor | None) -> None:
        """Goes on from a saved state, if both runs are seeded."""
        if self._seeded and state is not None:
            self.generator.set_state(state)


def _blank_state() -> torch.Tensor:
    """The state of a fresh CPU generator, if it is laid out as this module believes.

    A Mersenne twister seeded with 0 begins with the words 0, 1, 1812433255 (Matsumoto and
    Nishimura 1998, initialisation of 2002). Were they elsewhere, entropy would go astray.
    """
    state = torch.Generator().manual_seed(0).get_state()
    words = state.numpy().view(np.uint64)
    if len(words) < _HEAD + _WORDS or words[_HEAD : _HEAD + 3].tolist() != [0, 1, 1812433255]:
        raise RuntimeError(
            f"torch must keep its CPU generator as known to this version, got {torch.__version__} "
            "with another layout. Use a version of torch that dosimeter was tested with."
        )
    return state


class PoissonSampler:
    """Draws batches in which every record is present independently of all others.

    Args:
        count: How many records this process draws from.
        seed: Numbers that make the batches repeatable, or None.
    """

    def __init__(self, count: int, seed: tuple[int, ...] | None) -> None:
        self._count, self._seed = count, seed
        entropy = list(seed) if seed is not None else int.from_bytes(os.urandom(32), "little")
        self._random = np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(entropy)))

    def draw(self, sample_rate: float) -> npt.NDArray[np.intp]:
        """The records of one batch, in order; there may be none."""
        # Doubles have 53 random bits; the 24 of a float would miss a small rate by percents.
        return np.flatnonzero(self._random.random(self._count) < sample_rate)

    def state(self) -> dict[str, Any] | None:
        """What repeats the batches to come; None without a seed."""
        if self._seed is None:
            return None
        return {"seed": list(self._seed), "generator": dict(self._random.bit_generator.state)}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Goes on from a saved state, if it is of the same seed and the same process.

        Two processes on one stream would draw alike, and their records not independently.
        """
        if self._seed is not None and state is not None and state["seed"] == list(self._seed):
            self._random.bit_generator.state = state["generator"]
