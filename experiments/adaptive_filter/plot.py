# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.adaptive_filter.plot"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from dosimeter.palette import GRID, INK, QUIET, RUNS, dress
from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
CURVES = {
    "fixed": (RUNS[0], "-"),
    "adaptive noise": (RUNS[1], "-"),
    "adaptive batch": (RUNS[4], "-"),
    "hindsight": (RUNS[5], "--"),
    "tuned": (RUNS[3], "--"),
}
SECTIONS = {
    "paper": "the paper's comparison",
    "tuned": "its policies from a tuned start",
    "hindsight": "fixed, with hindsight",
    "wrong": "wrong starts, ε = 3",
}


def main() -> None:
    """Draws accuracy against epochs in the paper's comparison, and what every arm came to."""
    results = load(FOLDER)["results"]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11.5, 5.2), layout="constrained", width_ratios=(1, 1.15)
    )
    for name, (colour, style) in CURVES.items():
        epochs, low, mean, high = zip(*spread(results[name]["runs"]), strict=True)
        left.plot(epochs, mean, style, color=colour, label=name)
        left.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
    limit = results["fixed"]["settings"]["limit"]
    left.set(
        title=f"one filter, ε = {limit:.2f}: mean and range",
        xlabel="epochs",
        ylabel="test accuracy of the averaged iterate, %",
        ylim=(58, None),
    )
    left.legend(frameon=False, fontsize=8.5, loc="lower right", labelcolor=INK)
    dress(left)
    draw_arms(right, results)
    save_figure(figure, FOLDER)


def spread(runs: list[dict[str, Any]]) -> Iterator[tuple[int, float, float, float]]:
    """Epoch and least, mean and most accuracy, wherever all runs were measured."""
    curves = [{point["epoch"]: 100 * point["average"] for point in run["curve"]} for run in runs]
    for epoch in sorted(set.intersection(*[set(curve) for curve in curves])):
        values = [curve[epoch] for curve in curves]
        yield epoch, min(values), sum(values) / len(values), max(values)


def colour(arm: str) -> str:
    """That of the same policy in the other panel; grey for whatever is not there."""
    if arm in CURVES:
        return CURVES[arm][0]
    named = [one for one in ("fixed", "adaptive noise", "adaptive batch") if arm.endswith(one)]
    return CURVES[named[0]][0] if named else QUIET


def draw_arms(axes: Any, results: dict[str, Any]) -> None:
    """One line an arm: the averaged and the last iterate, each with its range."""
    before = None
    for row, (name, arm) in enumerate(results.items()):
        if arm["section"] != before:
            before = arm["section"]
            axes.axhline(row - 0.5, color=GRID, linewidth=1)
            axes.text(52.6, row, SECTIONS[before], color=QUIET, fontsize=8.5, va="center")
        for key, fill, shift in (("average", colour(name), -0.14), ("last", "white", 0.14)):
            mean, low, high = (100 * value for value in arm["summary"][key])
            axes.plot([low, high], [row + shift] * 2, color=colour(name), linewidth=1.2)
            look = {"color": colour(name), "markerfacecolor": fill, "markersize": 5.5}
            axes.plot(mean, row + shift, "o", **look)
    axes.set_yticks(range(len(results)), list(results))
    axes.invert_yaxis()
    axes.set(title="all arms at the end; hollow: the last iterate", xlabel="test accuracy, %")
    axes.set_xlim(52.4, None)
    dress(axes, grid="x")
    axes.tick_params(axis="y", labelsize=8.5)


if __name__ == "__main__":
    main()
