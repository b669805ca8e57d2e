# SPDX-License-Identifier: Apache-2.0
"""Epsilon over time under every rule, for one schedule."""

from __future__ import annotations

import csv
import math
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dosimeter import arguments
from dosimeter.accounting.classic import Validity
from dosimeter.compare.exact import ExactTotal
from dosimeter.compare.rules import (
    LIMITED,
    Reader,
    least_limit,
    menu_limit,
    planned_odometer,
    readers,
)
from dosimeter.compare.schedule import Schedule, checked_schedule, checkpoints, upto
from dosimeter.errors import BudgetExceeded
from dosimeter.rdp import Cost

Progress = Callable[[str, float], None]
"""Is told what is being done, and how much of everything is done."""


@dataclass(frozen=True)
class Line:
    """One rule: its epsilon at every checkpoint, and when that epsilon holds.

    Attributes:
        name: The rule.
        validity: When its epsilon holds.
        epsilons: One per checkpoint; NaN where the rule was not asked, infinity where it has
            no bound.
        ours: Whether it is a rule of this library.
    """

    name: str
    validity: Validity
    epsilons: tuple[float, ...]
    ours: bool = False

    @property
    def last(self) -> float:
        """Epsilon of the whole schedule."""
        return self.epsilons[-1]


@dataclass(frozen=True)
class Comparison:
    """Epsilon over time of one schedule under many rules.

    Attributes:
        delta: The delta of every epsilon.
        steps: The numbers of steps at which epsilon was read.
        lines: One per rule; the exact limit, fixed beforehand, comes first.
    """

    delta: float
    steps: tuple[int, ...]
    lines: tuple[Line, ...]

    @property
    def limit(self) -> Line:
        """The exact accountant for a schedule fixed beforehand, to which the others compare."""
        return self.lines[0]

    def write_csv(self, path: str | pathlib.Path) -> None:
        """One row per checkpoint and rule."""
        with pathlib.Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["rule", "validity", "steps", "epsilon"])
            for line in self.lines:
                for steps, epsilon in zip(self.steps, line.epsilons, strict=True):
                    if not math.isnan(epsilon):
                        writer.writerow([line.name, line.validity.name.lower(), steps, epsilon])


def compare(
    schedule: Iterable[tuple[Cost, int]],
    delta: float,
    *,
    points: int = 40,
    menu: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Epsilon of a schedule over time under the published rules, ours, and the exact limit.

    Args:
        schedule: Pairs (cost, count), in the order in which they are run.
        delta: The delta of every epsilon.
        points: At how many moments to read.
        menu: Whether to price menus as well, which takes seconds.
        progress: Is told how far the work is.
    """
    rows = checked_schedule(schedule)
    delta = arguments.open_unit("delta", delta)
    steps = checkpoints(rows, arguments.count("points", points))
    tell = progress or (lambda what, share: None)
    tell("the exact limit", 0.0)
    exact = _exact(rows, delta, steps)
    lines = [exact]
    made = readers(rows, delta)
    for number, reader in enumerate(made):
        tell(reader.name, 0.1 + 0.3 * number / len(made))
        lines.append(_read(reader, rows, steps))
    tell("filter", 0.4)
    lines += [_filter(name, rows, delta, steps) for name in LIMITED]
    if menu:
        tell("filter with a menu", 0.5)
        limit, _ = menu_limit(rows, delta, exact=exact.last)
        tell("odometer with a menu", 0.8)
        name = "odometer with a menu, planned"
        climber = Reader(name, Validity.ANYTIME, lambda: planned_odometer(rows, delta), ours=True)
        lines.append(_read(climber, rows, steps))
        flat = [math.nan] * (len(steps) - 1) + [limit]
        lines.append(Line("filter with a menu", Validity.FILTER, tuple(flat), ours=True))
    tell("done", 1.0)
    order = sorted(lines[1:], key=lambda line: (line.last, line.name))
    return Comparison(delta, tuple(steps), (lines[0], *order))


def _exact(rows: Schedule, delta: float, steps: list[int]) -> Line:
    total = ExactTotal(rows, delta)
    values, seen = [], 0
    for stop in steps:
        for cost, count in upto(rows, seen, stop):
            total.add(cost, count)
        values.append(total.epsilon)
        seen = stop
    return Line("PLD, fixed beforehand", Validity.FIXED, tuple(values))


def _read(reader: Reader, rows: Schedule, steps: list[int]) -> Line:
    gate = reader.make()
    values: list[float] = []
    seen = 0
    for stop in steps:
        try:
            for cost, count in upto(rows, seen, stop):
                gate.spend(cost, count)
            values.append(float(gate.epsilon))
        except BudgetExceeded:
            # A rule for pure epsilons has no bound for what has none.
            values += [math.inf] * (len(steps) - len(values))
            break
        seen = stop
    return Line(reader.name, reader.validity, tuple(values), reader.ours)


def _filter(name: str, rows: Schedule, delta: float, steps: list[int]) -> Line:
    """The least limit that would have admitted everything so far."""
    values: list[float] = []
    for stop in steps:
        start = values[-1] if values else 1.0
        if start < math.inf:
            start = least_limit(LIMITED[name], upto(rows, 0, stop), delta, start=start)
        values.append(start)
    return Line(name, Validity.FILTER, tuple(values), ours=name == "filter")
