# SPDX-License-Identifier: Apache-2.0
"""Draws docs/curve-rule.svg: what the curve rule admits, what a filter does, and who keeps delta.

Every figure is computed here: the sums by spending the adversary's mechanisms, the border of
our filter by asking it, and the deltas by enumerating all views of the adversary.
"""

from __future__ import annotations

import pathlib
import sys
import warnings

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

import dosimeter as dm
from dosimeter.accounting.classic import Conversion, CurveFilter, FixedOrderFilter
from dosimeter.compare.adversaries import examples, menu_adversary, play
from dosimeter.palette import QUIET, dress, of_rule
from dosimeter.rdp import Orders

PICTURE = pathlib.Path(__file__).parent.parent / "curve-rule.svg"
EPSILON, DELTA, ORDERS = examples.EPSILON, examples.DELTA, examples.ORDERS
UNSOUND, FILTER, GREY = of_rule("some order within budget"), of_rule("filter"), QUIET
REDDISH, BLUISH = "#f6ddd4", "#d3e3f5"


def ours() -> dm.Filter:
    """The filter under the same orders, with equal weights."""
    return dm.Filter(EPSILON, DELTA, orders=ORDERS, weights=[0.5, 0.5])


def curve_rule() -> dm.Gate:
    """The rule that asks for some order within its budget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dm.UnsoundRuleWarning)
        return CurveFilter(EPSILON, DELTA, orders=ORDERS, conversion=Conversion.TIGHT)


def paths() -> dict[str, np.ndarray]:
    """What the adversary has spent at both orders after each answer to the first question."""
    first = examples.TIGHT_CONVERSION
    orders = Orders(ORDERS)
    start = first.mechanism.rdp(orders)
    yes, no = (start + step.mechanism.rdp(orders) for step in first.then if step is not None)
    return {"yes": yes, "no": no}


def border(low: np.ndarray) -> np.ndarray:
    """The most that our filter admits at the high order, for each amount at the low one."""
    found = []
    for amount in low:
        least, most = float(amount), 6.0
        if not ours().admits(dm.Curve(ORDERS, (amount, least))):
            found.append(np.nan)
            continue
        for _ in range(24):
            middle = (least + most) / 2
            fits = ours().admits(dm.Curve(ORDERS, (amount, middle)))
            least, most = (middle, most) if fits else (least, middle)
        found.append(least)
    return np.array(found)


def regions(axes: matplotlib.axes.Axes) -> None:
    """The plane of what is spent at the two orders, where the rules part."""
    zero = Conversion.TIGHT.epsilon(np.array(ORDERS), np.zeros(2), DELTA)
    first, second = EPSILON - zero
    (left, right), (bottom, top) = (1.0, 2.95), (2.3, 3.45)
    axes.add_patch(Rectangle((0, 0), first, 9, color=REDDISH, linewidth=0))
    axes.add_patch(Rectangle((0, 0), 9, second, color=REDDISH, linewidth=0))
    x = np.linspace(left, second, 150)
    edge = border(x)
    axes.fill_between(x, 0, edge, color=BLUISH, linewidth=0)
    axes.plot(x, edge, color=FILTER, linewidth=2.2)
    axes.plot([first, first, right], [top, second, second], color=UNSOUND, linewidth=1.6)
    axes.add_patch(Polygon([(0, 0), (9, 9), (9, 0)], color="white", linewidth=0))
    axes.plot([0, right], [0, right], color=GREY, linewidth=0.8)
    axes.text(2.5, 2.36, "no Rényi curve\nlies here", color=GREY, fontsize=9)
    axes.text(1.05, 2.36, "our filter admits", color=FILTER, fontsize=9)
    axes.text(2.0, 3.2, "the curve rule refuses\nonly here: past both", color=UNSOUND, fontsize=9)
    for (answer, spent), shift in zip(paths().items(), ((-8, 8), (8, 2)), strict=True):
        axes.plot(*spent, "o", color="black", markersize=6)
        axes.annotate(f"after “{answer}”", spent, shift, textcoords="offset points", fontsize=9)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.set_xlabel(f"spent at order {ORDERS[0]:g}   (its budget: {first:.3f})")
    axes.set_ylabel(f"spent at order {ORDERS[1]:g}   (its budget: {second:.3f})")


def reached(axes: matplotlib.axes.Axes) -> None:
    """The delta that the strongest adversary gets out of each rule."""
    rules = {
        "curve rule": curve_rule,
        "order 8 alone": lambda: FixedOrderFilter(EPSILON, DELTA, order=8.0),
        "order 32 alone": lambda: FixedOrderFilter(EPSILON, DELTA, order=32.0),
        "our filter": ours,
    }
    alone = of_rule("filter at order")
    colours = dict(zip(rules, (UNSOUND, alone, alone, FILTER), strict=True))
    best, _ = menu_adversary(ours, EPSILON, (), depth=0, off_menu=examples.OFF_MENU)
    known = [step for step in (examples.TIGHT_CONVERSION, best) if step is not None]
    for place, (name, rule) in enumerate(reversed(rules.items())):
        share = max(play(step, rule, EPSILON).hockey_stick for step in known) / DELTA
        axes.barh(place, share, height=0.6, color=colours[name], alpha=0.9)
        axes.text(max(share, 1) + 0.04, place, f"{share:.4f}", va="center", fontsize=9)
        axes.text(-0.05, place, name, va="center", ha="right", fontsize=9)
    axes.axvline(1, ymax=0.93, color="black", linewidth=1)
    axes.text(1, 3.68, "claimed", ha="center", fontsize=9)
    axes.set(xlim=(0, 2.35), ylim=(-0.6, 3.9), yticks=[])
    axes.set_xlabel("δ reached, over the δ claimed")


def main(picture: pathlib.Path = PICTURE) -> None:
    """Draws both panels; the same bytes every time."""
    # Names in the file are made from this instead of from chance.
    matplotlib.rcParams["svg.hashsalt"] = "dosimeter"
    figure = Figure(figsize=(9.4, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    regions(left)
    reached(right)
    for axes in (left, right):
        dress(axes, grid="x")
        axes.grid(visible=False)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
