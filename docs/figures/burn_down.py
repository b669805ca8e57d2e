# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/burn-down.svg: one budget, spent by queries that depend on what was seen.

Epsilon leaps at the first query and creeps afterwards; the share that is used up, by the filter's
own measure, adds up. Both come from spending from a filter here.
"""

from __future__ import annotations

import pathlib
import sys

import matplotlib
from matplotlib.figure import Figure

import dosimeter as dm
from dosimeter.palette import GRID, INK, QUIET, RUNS, WARN, of_rule

PICTURE = pathlib.Path(__file__).parent.parent / "images" / "burn-down.svg"
BLUE, ORANGE = of_rule("filter"), RUNS[1]

QUERIES = [20.0] * 4 + [10.0] * 2 + [5.0] * 2 + [20.0] * 3 + [5.0] * 2 + [10.0] * 4 + [20.0] * 4
"""The noise of each query, as an analyst came to choose it."""


def burned(budget: dm.Filter) -> tuple[list[float], list[float], list[int]]:
    """Epsilon over its limit and the share used up after each query, and those refused."""
    epsilon, share, refused = [0.0], [0.0], []
    for number, noise in enumerate(QUERIES, 1):
        try:
            budget.spend(dm.Gaussian(noise_multiplier=noise))
        except dm.BudgetExceeded:
            refused.append(number)
        epsilon.append(100 * budget.epsilon / budget.limit)
        share.append(100 * budget.spent_share)
    return epsilon, share, refused


def draw(path: pathlib.Path) -> None:
    """Writes the picture."""
    budget = dm.Filter(epsilon=2.0, delta=1e-6)
    epsilon, share, refused = burned(budget)
    matplotlib.rcParams |= {"svg.hashsalt": "dosimeter", "svg.fonttype": "none", "font.size": 10}
    figure = Figure(figsize=(7.2, 3.3), layout="constrained")
    axes = figure.subplots()
    places = range(len(epsilon))
    axes.step(places, epsilon, where="post", color=BLUE, linewidth=2)
    axes.step(places, share, where="post", color=ORANGE, linewidth=2, linestyle=(0, (4, 1.5)))
    axes.axhline(100, color=QUIET, linewidth=1)
    axes.text(0, 102, "the limit, ε = 2", color=QUIET, va="bottom")
    axes.text(4.2, epsilon[4] + 5, "ε spent", color=BLUE, va="bottom", ha="right")
    axes.text(7.6, share[7] - 6, "used up, by the filter's own measure", color=ORANGE, va="top")
    axes.plot(refused, [100] * len(refused), "x", color=WARN, markersize=7, clip_on=False)
    if refused:
        axes.text(refused[0], 90, "refused", color=WARN, va="top", ha="left")
    axes.set(xlim=(0, len(QUERIES)), ylim=(0, 112), yticks=range(0, 101, 25))
    axes.set_xticks(range(0, len(QUERIES) + 1, 5))
    axes.set_xlabel("queries asked, each chosen after seeing the answers before it", color=INK)
    axes.set_ylabel("% of the budget", color=INK)
    axes.grid(axis="y", color=GRID)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=QUIET, length=0)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
