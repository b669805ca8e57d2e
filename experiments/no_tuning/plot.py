# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.no_tuning.plot"""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from dosimeter.palette import INK, QUIET, RUNS, dress
from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
ARMS = {
    "readme": (QUIET, "Opacus' README"),
    "fixed": (RUNS[3], "best of 30 settings, with hindsight"),
    "searched": (RUNS[1], "the 30 searched privately (5 % to 95 %)"),
    "ours": (RUNS[0], "ours: epsilon and delta alone"),
}


def main() -> None:
    """One line for each task at an epsilon, a point and a range for each arm."""
    document = load(FOLDER)
    results, held_out = document["results"], document["config"]["held_out"]
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(results) + 1.6), layout="constrained")
    seen: set[str] = set()
    for row, facts in enumerate(results.values()):
        for shift, (arm, (colour, title)) in zip(
            (-0.24, -0.08, 0.08, 0.24), ARMS.items(), strict=True
        ):
            if arm not in facts:
                continue
            mean, low, high = facts[arm]
            axes.plot([low, high], [row + shift] * 2, color=colour, linewidth=1)
            label = None if arm in seen else title
            axes.plot(mean, row + shift, "o", color=colour, markersize=4, label=label)
            seen.add(arm)
    names = [f"{n}, held out" if n.split(" at ")[0] in held_out else n for n in results]
    axes.set_yticks(range(len(results)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(title="mean and range over the seeds", xlabel="test accuracy, %")
    axes.legend(frameon=False, fontsize=8.5, loc="best", labelcolor=INK)
    dress(axes, grid="x")
    save_figure(figure, FOLDER)


if __name__ == "__main__":
    main()
