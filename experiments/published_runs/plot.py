# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.published_runs.plot"""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent


def main() -> None:
    """Draws epsilon against epochs of the runs that fine-tune all layers."""
    results = load(FOLDER)["results"]
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.2), sharey=True, layout="constrained")
    titles = {"fixed": "noise 1 throughout", "adaptive": "noise from 2 downwards"}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        colours = {"paper": "tab:blue", "ours": "tab:orange"}
        for name, run in results[kind]["runs"].items():
            if not name.startswith("fine_tune_all"):
                continue
            for rule, colour in colours.items():
                values = run["epsilon"][rule]
                axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=0.9)
                reached = run["epochs_to_target"]
                axes.plot(reached, values[reached - 1], "o", color=colour, markersize=4)
        axes.plot([], [], color=colours["paper"], label="the paper's odometer")
        axes.plot([], [], color=colours["ours"], label="our odometer")
        axes.plot([], [], "ko", markersize=4, label="first epoch with 80 % accuracy")
        axes.set(title=title, xlabel="epochs", ylim=(0, None))
    panels[0].set_ylabel("ε if one stops here, δ = 1e-6")
    panels[1].legend(frameon=False, loc="lower right")
    save_figure(figure, FOLDER)


if __name__ == "__main__":
    main()
