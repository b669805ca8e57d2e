# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.accounting.plot"""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
STYLES = {
    "odometer, text": ("tab:blue", ":", "Lécuyer's odometer, orders of the text"),
    "odometer, published": ("tab:blue", "-.", "Lécuyer's odometer, as in the published runs"),
    "our odometer": ("tab:orange", "-", "our odometer (any stopping time)"),
    "our filter": ("tab:green", "-", "our filter (least limit that admits the run)"),
    "fixed, tight": ("tab:red", "--", "Rényi, number of epochs fixed beforehand"),
    "fixed, PLD": ("tab:gray", "--", "PLD, number of epochs fixed beforehand"),
}


def main() -> None:
    """Draws epsilon against epochs, with the paper's own figures as marks."""
    document = load(FOLDER)
    config, results = document["config"], document["results"]
    figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
    for name, (colour, style, label) in STYLES.items():
        axes.plot(config["epochs"], results[name], style, color=colour, label=label)
    paper = config["paper"]
    marks = [
        (6, paper["odometer_6_epochs"], "3.24"),
        (20, paper["odometer_20_epochs"], "4.7"),
        (50, paper["fixed_50_epochs"], "5.76"),
    ]
    for x, y, text in marks:
        axes.plot(x, y, "k*", markersize=9)
        axes.annotate(text, (x, y), xytext=(4, 6), textcoords="offset points")
    axes.plot([], [], "k*", label="said in the paper")
    axes.set(xlabel="epochs", ylabel="ε at δ = 1e-6", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    save_figure(figure, FOLDER)


if __name__ == "__main__":
    main()
