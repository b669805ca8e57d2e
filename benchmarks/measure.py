# SPDX-License-Identifier: Apache-2.0
"""Timing: the best of several repeats, so that other load on the machine matters least."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One measured figure and the goal it was measured for."""

    name: str
    value: float
    unit: str
    goal: str
    met: bool

    @classmethod
    def at_most(cls, name: str, value: float, limit: float, unit: str) -> Result:
        """A figure that should not be larger than a limit."""
        return cls(name, value, unit, f"at most {limit:g} {unit}", value <= limit)

    @classmethod
    def at_least(cls, name: str, value: float, limit: float, unit: str) -> Result:
        """A figure that should not be smaller than a limit."""
        return cls(name, value, unit, f"at least {limit:g} {unit}", value >= limit)


@dataclass(frozen=True)
class Table:
    """Figures that belong together and have no goal."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def markdown(self) -> str:
        """The title and the table."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join([self.title, "", *(f"| {' | '.join(line)} |" for line in lines)])


def best_seconds(
    work: Callable[[], object],
    *,
    repeats: int = 7,
    loops: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of one call of `work`: the fastest of `repeats` rounds of `loops` calls."""
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        for _ in range(loops):
            work()
        best = min(best, (clock() - start) / loops)
    return best
