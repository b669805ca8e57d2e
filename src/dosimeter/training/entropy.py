# SPDX-License-Identifier: Apache-2.0
"""Where noise and batches get their randomness: keys from the operating system, expanded by AES.

Every step and every batch has a key of its own, 32 bytes that the operating system gives when
they are needed and that are dropped with the last number made from them. So there is no state
to copy in a fork, to share between threads or to find in a checkpoint, and the noise of one step
says nothing about that of another. With a seed all of it can be repeated, by an attacker too;
that is a class of its own.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter.errors import StateError

KEY_BYTES = 32
_BLOCK = bytes(2**19)
"""What is encrypted: zeros, so that what comes out is the bare stream of the cipher."""


class Keystream:
    """Random words from one key: AES-256 in counter mode over zeros (NIST SP 800-38A)."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"key must have {KEY_BYTES} bytes, got {len(key)}")
        self._cipher = _cipher(key)

    def fill(self, words: npt.NDArray[Any]) -> None:
        """Overwrites an array with the next random bytes."""
        target = words.data.cast("B")
        for start in range(0, len(target), len(_BLOCK)):
            part = target[start : start + len(_BLOCK)]
            self._cipher.update_into(memoryview(_BLOCK)[: len(part)], part)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """So many uniform numbers of 64 bits."""
        found = np.empty(count, dtype=np.uint64)
        self.fill(found)
        return found


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise ImportError(
            "cryptography must be installed to draw noise that cannot be predicted, got "
            f"{error}; pip install -c constraints.txt '.[torch]' in a clone of dosimeter"
        ) from error
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()


class Entropy(ABC):
    """Gives a keystream for each step or batch, never the same twice."""

    @abstractmethod
    def keystream(self) -> Keystream:
        """The randomness of one step or batch."""

    @abstractmethod
    def state(self) -> dict[str, Any] | None:
        """What repeats the randomness to come; None where nothing does."""

    @abstractmethod
    def restore(self, state: dict[str, Any] | None) -> None:
        """Goes on from a saved state, if it is one of the same seed."""


class SystemEntropy(Entropy):
    """Each keystream has its own key from the operating system; nothing is kept.

    Raises:
        RuntimeError: The operating system has no source of randomness.
    """

    def __init__(self) -> None:
        self.keystream().words(1)  # what is missing shows before any record is read

    def keystream(self) -> Keystream:
        """The randomness of one step or batch, which nothing repeats."""
        try:
            key = os.urandom(KEY_BYTES)
        except (NotImplementedError, OSError) as error:
            raise RuntimeError(
                "the operating system must give random bytes to draw noise that cannot be "
                f"predicted, got {type(error).__name__}: {error}. Make getrandom or "
                "/dev/urandom available to this process."
            ) from error
        return Keystream(key)

    def state(self) -> None:
        """None: there is nothing that a checkpoint could hold."""
        return

    def restore(self, state: dict[str, Any] | None) -> None:
        """Does nothing: randomness never goes on from where it was."""


class SeededEntropy(Entropy):
    """Keystreams that can be repeated, for tests: whoever knows the seed knows all of them.

    Args:
        purpose: What the randomness is for; other purposes have other streams.
        seed: Numbers that tell this stream from others of the same purpose.
    """

    def __init__(self, purpose: str, *seed: int) -> None:
        self._seed = [purpose, *seed]
        self._drawn = 0
        self.keystream().words(1)
        self._drawn = 0

    def keystream(self) -> Keystream:
        """The randomness of the next step or batch."""
        name = repr([*self._seed, self._drawn]).encode()
        self._drawn += 1
        return Keystream(hashlib.sha256(name).digest())

    def state(self) -> dict[str, Any]:
        """The seed, and how many keystreams it has given."""
        return {"seed": list(self._seed), "drawn": self._drawn}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Goes on from a saved state, if it is one of the same seed.

        Two processes on one stream would draw alike, and their records not independently.
        """
        if state is None or state["seed"] != self._seed:
            return
        if not (type(state["drawn"]) is int and state["drawn"] >= 0):
            raise StateError(f"drawn must be a whole number >= 0, got {state['drawn']!r}")
        self._drawn = state["drawn"]


def entropy_for(purpose: str, *seed: int | None) -> Entropy:
    """Randomness from the operating system, or repeatable where a seed is given."""
    numbers = [number for number in seed if number is not None]
    return SystemEntropy() if len(numbers) < len(seed) else SeededEntropy(purpose, *numbers)


class PoissonSampler:
    """Draws batches in which every record is present independently of all others.

    Args:
        count: How many records this process draws from.
        entropy: Where the coins come from.
    """

    def __init__(self, count: int, entropy: Entropy) -> None:
        self._count, self.entropy = count, entropy

    def draw(self, sample_rate: float) -> npt.NDArray[np.intp]:
        """The records of one batch, in order; there may be none.

        A record is in with the probability `sample_rate` rounded down to a multiple of 2**-64.
        """
        bound = int(sample_rate * 2.0**64)  # exact, then rounded down
        if bound >= 2**64:
            return np.arange(self._count)
        return np.flatnonzero(self.entropy.keystream().words(self._count) < np.uint64(bound))
