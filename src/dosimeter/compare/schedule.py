# SPDX-License-Identifier: Apache-2.0
"""Schedules: what is run how often, one row after another, from a list or a file."""

from __future__ import annotations

import csv
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dosimeter import arguments
from dosimeter.accounting.calibrate import mechanism
from dosimeter.rdp import Cost

Schedule = tuple[tuple[Cost, int], ...]

_COLUMNS = ("steps", "sample_rate", "noise_multiplier")


def checked_schedule(rows: Iterable[tuple[Cost, int]]) -> Schedule:
    """A schedule of (cost, count) rows; TypeError or ValueError if it is none."""
    schedule = []
    for cost, count in rows:
        if not isinstance(cost, Cost):
            raise TypeError(f"schedule must hold pairs (cost, count), got {cost!r}")
        schedule.append((cost, arguments.count("steps", count)))
    if not schedule:
        raise ValueError("schedule must hold at least one row, got none")
    return tuple(schedule)


def read_schedule(path: str | pathlib.Path) -> Schedule:
    """The schedule in a CSV or JSON file with steps, sample_rate and noise_multiplier per row.

    Raises:
        ValueError: The file is of another form, or a row has numbers that no mechanism has.
        OSError: The file cannot be read.
    """
    path = pathlib.Path(path)
    if path.suffix.lower() == ".json":
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
        except RecursionError:
            raise ValueError("schedule must be a list of rows, got one nested too deeply") from None
        if not isinstance(rows, list):
            raise ValueError(f"schedule must be a list of rows, got {type(rows).__name__}")
    elif path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    else:
        raise ValueError(f"schedule must be a .csv or .json file, got {path.name!r}")
    return checked_schedule(_row(number, row) for number, row in enumerate(rows, 1))


def _row(number: int, row: object) -> tuple[Cost, int]:
    if not (isinstance(row, Mapping) and set(row) == set(_COLUMNS)):
        raise ValueError(f"row {number} must have exactly {', '.join(_COLUMNS)}, got {row!r}")
    try:
        values: dict[str, Any] = {name: float(row[name]) for name in _COLUMNS}
        steps = int(values["steps"])
        if steps != values["steps"]:
            raise ValueError(f"steps must be a whole number, got {row['steps']!r}")
        return mechanism(values["sample_rate"], values["noise_multiplier"]), steps
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"row {number}: {error}") from None


def checkpoints(schedule: Sequence[tuple[Cost, int]], points: int) -> list[int]:
    """Numbers of steps at which to read: about `points`, evenly spread, the last one the end."""
    total = sum(count for _, count in schedule)
    points = min(max(1, points), total)
    return sorted({round(total * (i + 1) / points) for i in range(points)})


def upto(schedule: Sequence[tuple[Cost, int]], start: int, stop: int) -> list[tuple[Cost, int]]:
    """What is run after the first `start` steps and up to the first `stop`."""
    part, seen = [], 0
    for cost, count in schedule:
        low, high = max(seen, start), min(seen + count, stop)
        if high > low:
            part.append((cost, high - low))
        seen += count
    return part
