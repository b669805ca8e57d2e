# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.fine_tuning.plot"""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap

from dosimeter.palette import INK, RUNS, dress
from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
ADAPTIVE = "last adaptive"


def label(arm: str) -> str:
    """What an arm is called in the figure."""
    return "noise from 2 downwards" if arm == ADAPTIVE else f"noise {arm.split()[1]}"


def colours(arms: list[str]) -> dict[str, Any]:
    """The policy as the report has it, and fixed noise from dark to light for more of it."""
    constants = [arm for arm in arms if arm != ADAPTIVE]
    ends = ["#0b2d54", RUNS[0], "#a9cdf2"]
    scale = LinearSegmentedColormap.from_list("fixed noise", ends)
    shades = {arm: scale(i / (len(constants) - 1)) for i, arm in enumerate(constants)}
    return {ADAPTIVE: RUNS[1]} | shades


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
    axes.legend(frameon=False, fontsize=8.5, loc="lower right", labelcolor=INK)
    dress(axes)


def draw_targets(axes: Any, summary: dict[str, Any], shades: dict[str, Any]) -> None:
    """The epsilon at which each arm first met each target: mean, least and most of the seeds."""
    targets = [key for key in summary[ADAPTIVE]["stopped at"] if key[0].isdigit()]
    width = 0.8 / len(shades)
    for place, target in enumerate(targets):
        stops = {arm: summary[arm]["stopped at"][target] for arm in shades}
        met = [arm for arm, stop in stops.items() if stop["reached"] == stop["runs"]]
        for i, arm in enumerate(met):
            mean, least, most = stops[arm]["ours"]
            x = place + (i - (len(met) - 1) / 2) * width  # around the tick, however many there are
            axes.bar(x, mean, 0.9 * width, color=shades[arm])
            axes.plot([x, x], [least, most], color=INK, linewidth=1)
    axes.set_xticks(range(len(targets)), [f"{100 * float(target):g} %" for target in targets])
    axes.set(xlabel="accuracy to stop at", ylabel="ε where it is first met")
    axes.set_xlim(-0.55, len(targets) - 0.45)
    dress(axes)


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
