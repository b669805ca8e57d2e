# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.fine_tuning.plot"""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
ADAPTIVE = "last adaptive"


def label(arm: str) -> str:
    """What an arm is called in the figure."""
    return "noise from 2 downwards" if arm == ADAPTIVE else f"noise {arm.split()[1]}"


def colours(arms: list[str]) -> dict[str, Any]:
    """Orange for the policy, and from dark to light for more constant noise."""
    constants = [arm for arm in arms if arm != ADAPTIVE]
    scale = matplotlib.colormaps["viridis"]
    shades = {arm: scale(i / len(constants)) for i, arm in enumerate(constants)}
    return {ADAPTIVE: "tab:orange"} | shades


def means(runs: list[dict[str, Any]], *path: str) -> list[float]:
    """The mean over runs, epoch by epoch, of what lies at this path in each."""

    def values(run: Any) -> Any:
        for key in path:
            run = run[key]
        return run

    return [statistics.mean(column) for column in zip(*map(values, runs), strict=True)]


def draw_accuracy(axes: Any, runs: dict[str, Any], shades: dict[str, Any]) -> None:
    """Accuracy against the epsilon of stopping there, mean of the seeds."""
    for arm, colour in shades.items():
        front = {"zorder": 3, "linewidth": 2.2} if arm == ADAPTIVE else {"linewidth": 1.2}
        x, y = means(runs[arm], "epsilon", "ours"), means(runs[arm], "accuracy")
        axes.plot(x, [100 * value for value in y], color=colour, label=label(arm), **front)
    axes.set(xlabel="ε if one stops here, δ = 1e-6", ylabel="test accuracy, %", xlim=(0, None))
    axes.legend(frameon=False, loc="lower right")


def draw_targets(axes: Any, summary: dict[str, Any], shades: dict[str, Any]) -> None:
    """The epsilon at which each arm first met each target: mean, least and most of the seeds."""
    targets = [key for key in summary[ADAPTIVE]["stopped at"] if key[0].isdigit()]
    width = 0.8 / len(shades)
    for i, (arm, colour) in enumerate(shades.items()):
        for place, target in enumerate(targets):
            stop = summary[arm]["stopped at"][target]
            if stop["reached"] < stop["runs"]:
                continue
            mean, least, most = stop["ours"]
            x = place + (i - (len(shades) - 1) / 2) * width
            axes.bar(x, mean, 0.9 * width, color=colour)
            axes.plot([x, x], [least, most], color="black", linewidth=0.8)
    axes.set_xticks(range(len(targets)), [f"{100 * float(target):g} %" for target in targets])
    axes.set(xlabel="accuracy to stop at", ylabel="ε where it is first met")


def main() -> None:
    """Draws both panels."""
    results = load(FOLDER)["results"]
    shades = colours(list(results["runs"]))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    draw_accuracy(left, results["runs"], shades)
    draw_targets(right, results["summary"], shades)
    save_figure(figure, FOLDER)


if __name__ == "__main__":
    main()
