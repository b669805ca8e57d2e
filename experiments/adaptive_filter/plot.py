# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.adaptive_filter.plot"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
CURVES = {
    "fixed": ("tab:blue", "-"),
    "adaptive noise": ("tab:orange", "-"),
    "adaptive batch": ("tab:green", "-"),
    "hindsight": ("tab:red", "--"),
    "tuned": ("tab:purple", "--"),
}
SECTIONS = {
    "paper": ("tab:blue", "the paper's comparison"),
    "tuned": ("tab:orange", "its policies from a tuned start"),
    "hindsight": ("tab:purple", "fixed, with hindsight"),
    "wrong": ("tab:gray", "wrong starts, ε = 3"),
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
        title=f"one filter, ε = {limit:.2f}: averaged iterate, mean and range",
        xlabel="epochs",
        ylabel="test accuracy, %",
        ylim=(58, None),
    )
    left.legend(frameon=False, loc="lower right")
    draw_arms(right, results)
    save_figure(figure, FOLDER)


def spread(runs: list[dict[str, Any]]) -> Iterator[tuple[int, float, float, float]]:
    """Epoch and least, mean and most accuracy, wherever all runs were measured."""
    curves = [{point["epoch"]: 100 * point["average"] for point in run["curve"]} for run in runs]
    for epoch in sorted(set.intersection(*[set(curve) for curve in curves])):
        values = [curve[epoch] for curve in curves]
        yield epoch, min(values), sum(values) / len(values), max(values)


def draw_arms(axes: Any, results: dict[str, Any]) -> None:
    """One line an arm: the averaged and the last iterate, each with its range."""
    seen = set()
    for row, arm in enumerate(results.values()):
        colour, title = SECTIONS[arm["section"]]
        for key, fill, shift in (("average", colour, -0.14), ("last", "white", 0.14)):
            mean, low, high = (100 * value for value in arm["summary"][key])
            axes.plot([low, high], [row + shift] * 2, color=colour, linewidth=1)
            axes.plot(
                mean,
                row + shift,
                "o",
                color=colour,
                markerfacecolor=fill,
                markersize=5,
                label=None if title in seen or key == "last" else title,
            )
            seen.add(title)
    axes.plot([], [], "ko", markerfacecolor="white", markersize=5, label="hollow: last iterate")
    axes.set_yticks(range(len(results)), list(results), fontsize=8)
    axes.invert_yaxis()
    axes.set(title="all arms, end of training", xlabel="test accuracy, %")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


if __name__ == "__main__":
    main()
