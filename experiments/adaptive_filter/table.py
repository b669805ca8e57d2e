# SPDX-License-Identifier: Apache-2.0
"""Prints the table of the README from results.json: python -m experiments.adaptive_filter.table"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from experiments.record import load

FOLDER = pathlib.Path(__file__).parent
HEAD = (
    "| arm | noise, batch, rate at the start | epochs | ε | last iterate | averaged iterate |",
    "|---|---|---|---|---|---|",
)


def rows(results: dict[str, Any]) -> Iterator[str]:
    """One row an arm: mean (least to most) over the seeds."""
    for name, arm in results.items():
        start, facts = arm["settings"], arm["summary"]
        cells = [
            name,
            f"{start['noise_multiplier']:g}, {start['batch_size']}, {start['lr']:g}",
            f"{facts['epochs'][0]:g}",
            f"{facts['epsilon'][0]:.2f}",
            *(_percent(facts[key]) for key in ("last", "average")),
        ]
        yield f"| {' | '.join(cells)} |"


def _percent(values: list[float]) -> str:
    mean, low, high = (f"{100 * value:.2f}" for value in values)
    return f"{mean} ({low} to {high})"


def main() -> None:
    """Prints the table."""
    print("\n".join([*HEAD, *rows(load(FOLDER)["results"])]))


if __name__ == "__main__":
    main()
