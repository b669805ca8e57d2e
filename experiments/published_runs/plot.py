# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.published_runs.plot"""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from dosimeter.palette import INK, dress, of_rule
from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent


def main() -> None:
    """Draws epsilon against epochs of the runs that fine-tune all layers."""
    results = load(FOLDER)["results"]
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.2), sharey=True, layout="constrained")
    titles = {"fixed": "noise 1 throughout", "adaptive": "noise from 2 downwards"}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        colours = {"paper": of_rule("Lécuyer's odometer"), "ours": of_rule("odometer")}
        for name, run in results[kind]["runs"].items():
            if not name.startswith("fine_tune_all"):
                continue
            for rule, colour in colours.items():
                values = run["epsilon"][rule]
                # As in the report, the value of an epoch holds from the end of the one before.
                epochs, steps = range(1, len(values) + 1), {"drawstyle": "steps-pre"}
                axes.plot(epochs, values, color=colour, linewidth=1.1, **steps)
                reached = run["epochs_to_target"]
                axes.plot(reached, values[reached - 1], "o", color=colour, markersize=5)
        axes.plot([], [], color=colours["paper"], label="Lécuyer's odometer")
        axes.plot([], [], color=colours["ours"], label="our odometer")
        axes.plot([], [], "o", color=INK, markersize=5, label="first epoch with 80 % accuracy")
        axes.set(title=title, xlabel="epochs", ylim=(0, None), xlim=(0, None))
    panels[0].set_ylabel("ε if one stops here, δ = 1e-6")
    panels[0].legend(frameon=False, fontsize=8.5, loc="upper left", labelcolor=INK)
    for axes in panels:
        dress(axes)
    save_figure(figure, FOLDER)


if __name__ == "__main__":
    main()
