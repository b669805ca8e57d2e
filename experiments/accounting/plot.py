# SPDX-License-Identifier: Apache-2.0
"""Draws figure.svg from results.json: python -m experiments.accounting.plot"""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from dosimeter.palette import INK, dress, of_rule
from experiments.record import load, save_figure

FOLDER = pathlib.Path(__file__).parent
STYLES = {
    "odometer, text": ("Lécuyer's odometer", ":", "Lécuyer's odometer, orders of the text"),
    "odometer, published": (
        "Lécuyer's odometer",
        "-.",
        "Lécuyer's odometer, as in the published runs",
    ),
    "our odometer": ("odometer", "-", "our odometer (any stopping time)"),
    "our filter": ("filter", "-", "our filter (least limit that admits the run)"),
    "fixed, tight": ("Rényi", "--", "Rényi, number of epochs fixed beforehand"),
    "fixed, PLD": ("PLD", "--", "PLD, number of epochs fixed beforehand"),
}


def main() -> None:
    """Draws epsilon against epochs, with the paper's own figures as marks."""
    document = load(FOLDER)
    config, results = document["config"], document["results"]
    figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
    for name, (rule, style, label) in STYLES.items():
        # The dots are what was computed.
        look = {"color": of_rule(rule), "label": label, "marker": ".", "markersize": 5}
        axes.plot(config["epochs"], results[name], style, linewidth=1.6, **look)
    paper = config["paper"]
    marks = [
        (6, paper["odometer_6_epochs"], "3.24", (-4, 8), "right"),
        (20, paper["odometer_20_epochs"], "4.7", (6, -14), "left"),
        (50, paper["fixed_50_epochs"], "5.76", (-2, 10), "right"),
    ]
    for x, y, text, place, side in marks:
        axes.plot(x, y, "*", color=INK, markersize=10, zorder=3)
        axes.annotate(text, (x, y), place, textcoords="offset points", ha=side, color=INK)
    axes.plot([], [], "*", color=INK, markersize=10, linestyle="none", label="said in the paper")
    axes.set(xlabel="epochs", ylabel="ε at δ = 1e-6", ylim=(0, None), xlim=(0, 52))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right", labelcolor=INK)
    dress(axes)
    save_figure(figure, FOLDER)


if __name__ == "__main__":
    main()
