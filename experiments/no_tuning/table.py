# SPDX-License-Identifier: Apache-2.0
"""Prints the table of the README from results.json: python -m experiments.no_tuning.table"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from experiments.record import load

FOLDER = pathlib.Path(__file__).parent
ARMS = ("readme", "fixed", "searched", "ours")
HEAD = (
    "| task at ε | Opacus' README | best of 30, hindsight | searched privately | ours | ahead |",
    "|---|---|---|---|---|---|",
)


def rows(document: dict[str, Any]) -> Iterator[str]:
    """One row for each task at an epsilon: mean (least to most) over the seeds."""
    held_out = document["config"]["held_out"]
    for name, facts in document["results"].items():
        marked = f"{name}, held out" if name.split(" at ")[0] in held_out else name
        cells = [marked, *(_cell(facts.get(arm)) for arm in ARMS)]
        both = "ours" in facts and "fixed" in facts
        apart = f"{facts['ours'][0] - facts['fixed'][0]:+.1f}" if both else ""
        yield f"| {' | '.join([*cells, apart])} |"


def _cell(values: list[float] | None) -> str:
    if values is None:
        return "not run"
    mean, low, high = (f"{value:.1f}" for value in values)
    return f"{mean} ({low} to {high})"


def main() -> None:
    """Prints the table."""
    print("\n".join([*HEAD, *rows(load(FOLDER))]))


if __name__ == "__main__":
    main()
