# SPDX-License-Identifier: Apache-2.0
"""Draws docs/prices.png: the value of the worst adversary, and the exchange rates of a menu."""

from __future__ import annotations

import pathlib
import sys

from matplotlib.figure import Figure

import dosimeter as dm
from dosimeter.accounting.priced.items import Direction
from dosimeter.accounting.priced.menu import Losses, lattice_level, make_menu
from dosimeter.palette import dress, of_rule

RATE, EPSILON, DELTA = 512 / 50000, 7.096, 0.9e-6
NOISES = [1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0]
PICTURE = pathlib.Path(__file__).parent.parent / "prices.png"


def main(picture: pathlib.Path = PICTURE) -> None:
    """Price a menu of seven noises and draw both panels."""
    costs = [dm.SampledGaussian(RATE, noise) for noise in NOISES]
    menu = make_menu(costs, EPSILON, DELTA)
    losses = Losses(EPSILON, DELTA, lattice_level(EPSILON))
    table = losses.table(menu.items, Direction.REMOVE, EPSILON)
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    loss = table.losses_above + EPSILON
    shades = ("#a9d5da", "#5aa9b3", of_rule("filter with a menu"), "#04383e")
    for part, shade in zip((0, 0.1, 0.4, 1), shades, strict=True):
        quanta = round(part * menu.quanta)
        left.semilogy(loss, table.level(quanta).clip(1e-30), color=shade, linewidth=2)
        left.plot([], [], color=shade, linewidth=2, label=f"{quanta} quanta left")
    left.axhline(DELTA, color="0.5", linewidth=0.8, linestyle="--")
    left.annotate("0.9 δ", (-1.3, DELTA * 1.6), color="0.35", fontsize=9)
    left.plot([0], [table.value(menu.quanta, EPSILON)], "o", color=shades[-1])
    left.annotate("start", (0.2, DELTA / 6), fontsize=9)
    left.axvline(EPSILON, color="0.8", linewidth=0.8)
    left.annotate("ε*", (EPSILON + 0.1, 2e-9), color="0.35")
    left.set(xlim=(-1.5, 9), ylim=(1e-9, 1.5), xlabel="privacy loss so far")
    left.set_ylabel("V: what the adversary can still reach")
    left.legend(frameon=False, fontsize=8.5, loc="upper left")
    per_quantum = [item.steps / item.price for item in menu.items]
    right.plot(NOISES, per_quantum, "o-", color=of_rule("filter with a menu"))
    for noise, steps in zip(NOISES, per_quantum, strict=True):
        right.annotate(
            f"{steps:.0f}", (noise, steps), (-5, 4), textcoords="offset points", ha="right"
        )
    right.set(xlabel="noise multiplier", ylabel="steps for one quantum")
    right.set(xlim=(0.88, 2.04), ylim=(0, 1.1 * max(per_quantum)))
    for axes in (left, right):
        dress(axes)
    figure.savefig(picture, dpi=160)
    print(f"{menu.quanta} quanta; written to {picture.name}")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
