# SPDX-License-Identifier: Apache-2.0
"""The Mersenne twister from bits of its outputs (Matsumoto and Nishimura 1998, MT19937).

Every output is a linear function over GF(2) of any 624 words of the generator that follow each
other, so every known bit of an output is an equation. The unknowns are only those bits of the
624 words that were not seen themselves. Outputs are numbered from 0, the first one that matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.noise_recovery import gf2

WORDS, _MIDDLE = 624, 397
_HIGH, _LOW, _ALL = 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF
_TWIST = 0x9908B0DF
_TEMPER = ((-11, _ALL), (7, 0x9D2C5680), (15, 0xEFC60000), (-18, _ALL))
"""Shifts to the left and masks, one after another: y ^= (y << shift) & mask."""

_ROWS = (3, 6)
"""Equations per unknown, and once more where too few of them were independent."""

UInt32s = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Recovered:
    """A state that agrees with as many of the seen bits as are independent.

    Attributes:
        start: The number of the output that the state begins with.
        words: 624 words of the generator, before tempering.
        unknowns: Bits of the state that were not seen themselves.
        rank: How many of the unknowns the equations fix.
        checks: Equations that were not needed to fix them.
        contradictions: How many of the checks fail; about half where there is no twister.
    """

    start: int
    words: UInt32s
    unknowns: int
    rank: int
    checks: int
    contradictions: int

    def outputs(self, count: int) -> UInt32s:
        """The outputs 0 to `count`, also those before the state: the twister runs both ways."""
        x = [0] * max(count, self.start + WORDS)
        x[self.start : self.start + WORDS] = self.words.tolist()
        for k in range(self.start - 1, -1, -1):
            high = _untwist(x[k + WORDS] ^ x[k + _MIDDLE]) & _HIGH
            x[k] = high | _untwist(x[k + WORDS - 1] ^ x[k + _MIDDLE - 1]) & _LOW
        for k in range(self.start, len(x) - WORDS):
            joined = x[k] & _HIGH | x[k + 1] & _LOW
            x[k + WORDS] = x[k + _MIDDLE] ^ joined >> 1 ^ _TWIST * (joined & 1)
        return _temper(np.array(x[:count], np.uint32))


def recover(values: UInt32s, masks: UInt32s) -> Recovered:
    """The state of a twister whose outputs were partly seen.

    Args:
        values: One number for each output.
        masks: Which bits of each number are known; 0 for an output that was not seen.

    Raises:
        ValueError: Fewer bits are known than the state has.
    """
    seen = np.unpackbits(masks.view(np.uint8)).reshape(-1, 32).sum(axis=1, dtype=np.int64)
    if not (len(seen) >= WORDS and seen.sum() >= 32 * WORDS):
        raise ValueError(
            f"outputs must show at least {32 * WORDS} bits, got {seen.sum()}. Look at more of them."
        )
    windows = np.convolve(seen, np.ones(WORDS, np.int64), "valid")
    # The first window that is nearly the best: what comes after it gives the equations.
    start = int(np.argmax(windows >= 0.98 * windows.max()))
    unknowns = 32 * WORDS - int(windows[start])
    state = _symbols(values[start : start + WORDS], masks[start : start + WORDS], unknowns)
    rows, k = _first_word(state), start + WORDS
    for factor in _ROWS:
        while k < len(values) and len(rows) < factor * unknowns:
            _twist(state, k - start)
            word = state[(k - start) % WORDS]
            rows += _equations(word, int(values[k]), int(masks[k]), unknowns)
            k += 1
        solution = gf2.solve(np.array(rows), unknowns)
        if solution.rank == unknowns:
            break
    words = _filled(values[start : start + WORDS], masks[start : start + WORDS], solution.values)
    return Recovered(
        start, words, unknowns, solution.rank, solution.checks, solution.contradictions
    )


def _symbols(values: UInt32s, masks: UInt32s, unknowns: int) -> list[gf2.Words]:
    """Each word as 32 rows: its bits as sums of unknowns; bit `unknowns` stands for 1."""
    state, next_one = [], 0
    for value, mask in zip(values.tolist(), masks.tolist(), strict=True):
        output = np.zeros((32, gf2.width(unknowns)), np.uint64)
        for bit in range(32):
            if not mask >> bit & 1:
                output[bit, next_one >> 6] = 1 << (next_one & 63)
                next_one += 1
            elif value >> bit & 1:
                output[bit, unknowns >> 6] = 1 << (unknowns & 63)
        for shift, kept in reversed(_TEMPER):
            output = _undo(output, shift, kept)
        state.append(output)
    return state


def _twist(state: list[gf2.Words], k: int) -> None:
    """Replaces the oldest word of the ring by word k."""
    here = k % WORDS
    old, following = state[here], state[(here + 1) % WORDS]
    new = state[(here + _MIDDLE) % WORDS].copy()
    new[:30] ^= following[1:31]
    new[30] ^= old[31]
    new[_bits(_TWIST)] ^= following[0]
    state[here] = new


def _first_word(state: list[gf2.Words]) -> list[gf2.Words]:
    """What the last word says about the low bits of the first, which no later word depends on."""
    mixed = state[WORDS - 1] ^ state[_MIDDLE - 1]
    rows = [state[0][0] ^ mixed[31]]
    for bit in range(30):
        row = state[0][bit + 1] ^ mixed[bit]
        rows.append(row ^ mixed[31] if _TWIST >> bit & 1 else row)
    return rows


def _equations(word: gf2.Words, value: int, mask: int, unknowns: int) -> list[gf2.Words]:
    """One equation for each known bit of the output that a word gives."""
    known = _bits(mask)
    if not known:
        return []
    output = word
    for shift, kept in _TEMPER:
        output = output ^ _shifted(output, shift, kept)
    rows = output[known]
    right = [(value >> bit & 1) << (unknowns & 63) for bit in known]
    rows[:, unknowns >> 6] ^= np.array(right, np.uint64)
    return list(rows)


def _filled(values: UInt32s, masks: UInt32s, found: npt.NDArray[np.uint8]) -> UInt32s:
    """The words of the state: seen bits as they were seen, the others as they were found."""
    bits = np.arange(32, dtype=np.uint32)
    open_bits = (masks[:, None] >> bits & np.uint32(1)) == 0
    filled = (values & masks)[:, None] >> bits & np.uint32(1)
    filled[open_bits] = found
    words: UInt32s = (filled << bits).sum(axis=1, dtype=np.uint32)
    for shift, kept in reversed(_TEMPER):
        mended = words
        for _ in range(32 // abs(shift)):
            mended = words ^ _moved(mended, shift, kept)
        words = mended
    return words


def _temper(words: UInt32s) -> UInt32s:
    for shift, kept in _TEMPER:
        words = words ^ _moved(words, shift, kept)
    return words


def _moved(words: UInt32s, shift: int, kept: int) -> UInt32s:
    moved = words << np.uint32(shift) if shift > 0 else words >> np.uint32(-shift)
    return np.asarray(moved & np.uint32(kept), np.uint32)


def _shifted(word: gf2.Words, shift: int, kept: int) -> gf2.Words:
    """The same for a word of symbols."""
    moved = np.zeros_like(word)
    if shift > 0:
        moved[shift:] = word[:-shift]
    else:
        moved[:shift] = word[-shift:]
    moved[_bits(~kept & _ALL)] = 0
    return moved


def _undo(word: gf2.Words, shift: int, kept: int) -> gf2.Words:
    """The word of symbols that `y ^= (y << shift) & kept` made this one from."""
    mended = word
    for _ in range(32 // abs(shift)):
        mended = word ^ _shifted(mended, shift, kept)
    return mended


def _untwist(mixed: int) -> int:
    """The high bit of one word and the low bits of the next, from what they were twisted to."""
    odd = mixed >> 31
    return (mixed ^ _TWIST * odd) << 1 & _ALL | odd


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(32) if mask >> bit & 1]
