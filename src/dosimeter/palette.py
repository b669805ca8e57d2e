# SPDX-License-Identifier: Apache-2.0
"""The colours of every figure: those of the report, and one for each rule, wherever it is drawn.

They are dark enough to be read on white, and lines that may meet differ in more than colour.
"""

from __future__ import annotations

from typing import Any

INK, QUIET, GRID, WARN = "#1c2128", "#59626e", "#e6e8ec", "#a4320b"
RUNS = ("#1f66b5", "#c2500a", "#23794b", "#8a3fa8", "#93700a", "#b3245c")
"""Runs in the order in which they are compared, as the report's page has them in light."""

_RULES = {
    "filter": RUNS[0],
    "filter with a menu": "#0b7a86",
    "odometer": RUNS[2],
    "odometer with a menu": "#5b8c00",
    "Lécuyer's odometer": RUNS[1],
    "PLD": INK,
    "Rényi": QUIET,
    "some order within budget": WARN,
    "filter at order": RUNS[3],
    "stacked filters": RUNS[4],
    "Rogers' filter": RUNS[5],
    "advanced composition": "#7a5230",
    "basic composition": "#8b929c",
}


def of_rule(name: str) -> str:
    """The colour of a rule; of its longest known name, where the rest says how it was made."""
    known = [rule for rule in _RULES if name.startswith(rule)]
    return _RULES[max(known, key=len)] if known else QUIET


def dress(axes: Any, *, grid: str = "y") -> None:
    """Gives axes of matplotlib the look of the report: no box, a quiet grid behind the lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, length=0, labelsize=9)
    for label in (axes.xaxis.label, axes.yaxis.label, axes.title):
        label.set_color(INK)
        label.set_fontsize(10)
    axes.title.set_horizontalalignment("left")
    axes.title.set_x(0.0)
