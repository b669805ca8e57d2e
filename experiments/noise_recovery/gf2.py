# SPDX-License-Identifier: Apache-2.0
"""Linear equations over GF(2), thousands of them, by the method of four Russians.

Rows are packed into 64-bit words. Eight columns are eliminated at once: every row that needs
some of the eight pivots looks up their sum in a table of 256 (Arlazarov, Dinic, Kronrod and
Faradzev 1970).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_CHUNK = 512
"""Rows that are looked up at once; their copy should stay in the cache."""


@dataclass(frozen=True)
class Solution:
    """What a system of equations says about its unknowns.

    Attributes:
        values: One solution of the independent equations; unknowns left free are 0.
        rank: How many equations are independent.
        checks: How many are not: they follow from the others, or contradict them.
        contradictions: How many of the checks do not hold.
    """

    values: npt.NDArray[np.uint8]
    rank: int
    checks: int
    contradictions: int


def width(unknowns: int) -> int:
    """How many 64-bit words a row takes: the unknowns, and the right side in the next bit."""
    return unknowns // 64 + 1


def solve(rows: Words, unknowns: int) -> Solution:
    """Solves the equations; `rows` is overwritten.

    Args:
        rows: One equation a row, `width(unknowns)` words each: bit i of a row, counted through
            its words from the lowest, says whether unknown i is in the sum; bit `unknowns` is
            what the sum is.
        unknowns: How many unknowns there are.
    """
    found: list[int] = []
    as_bytes = rows.view(np.uint8)
    for byte in range(-(-unknowns // 8)):
        columns = min(8, unknowns - 8 * byte)
        _eliminate(rows, as_bytes, byte, columns, found)
        if len(found) == len(rows):
            break
    rank = len(found)
    right = rows[rank:, unknowns >> 6] >> np.uint64(unknowns & 63) & np.uint64(1)
    return Solution(
        _substitute(rows, unknowns, found), rank, len(rows) - rank, int(right.sum(dtype=np.int64))
    )


def _eliminate(
    rows: Words, as_bytes: npt.NDArray[np.uint8], byte: int, columns: int, found: list[int]
) -> None:
    """Finds the pivots of up to eight columns, puts them in place, and clears these columns."""
    top, first = len(found), byte >> 3
    # Few rows have any of the columns, where the equations are sparse.
    having = top + np.flatnonzero(as_bytes[top:, byte])
    lead = as_bytes[having, byte]
    uses = np.zeros(len(having), np.uint8)  # which pivots a row will have to be added
    table = np.zeros((1, rows.shape[1] - first), np.uint64)
    chosen: list[int] = []
    for column in range(columns):
        bit = np.uint8(1 << column)
        able = np.flatnonzero(lead & bit)
        if not len(able):
            continue
        one = int(able[0])
        pivot = rows[having[one], first:] ^ table[uses[one]]
        uses[able] ^= np.uint8(1 << len(chosen))
        lead[able] ^= lead[one]
        table = np.concatenate([table, table ^ pivot])
        chosen.append(one)
        found.append(8 * byte + column)
    others = np.delete(np.arange(len(having)), chosen)
    for start in range(0, len(others), _CHUNK):
        some = others[start : start + _CHUNK]
        rows[having[some], first:] ^= table[uses[some]]
    places, left = range(top, len(found)), having[chosen]
    rows[sorted(set(left.tolist()) - set(places))] = rows[sorted(set(places) - set(left.tolist()))]
    rows[top : len(found)] = 0
    rows[top : len(found), first:] = table[1 << np.arange(len(chosen))]


def _substitute(rows: Words, unknowns: int, found: list[int]) -> npt.NDArray[np.uint8]:
    """The unknowns, from the last pivot to the first."""
    known = np.zeros(rows.shape[1], np.uint64)
    known[unknowns >> 6] = np.uint64(1 << (unknowns & 63))
    for row in range(len(found) - 1, -1, -1):
        column = found[row]
        odd = int(np.bitwise_xor.reduce(rows[row] & known)).bit_count() & 1
        known[column >> 6] |= np.uint64(odd << (column & 63))
    bits = np.unpackbits(known.view(np.uint8), bitorder="little")
    return bits[:unknowns]
