# SPDX-License-Identifier: Apache-2.0
"""A picture of a comparison (extra: plot): PNG, SVG or PDF.

Every rule has its own colour. Ours are drawn thick, the exact limit black, what holds only for a
schedule fixed beforehand dashed and what does not hold dotted. Labels stand at the ends of the
lines, apart from each other, so that the picture needs no legend box and survives black-and-white
print.
"""

from __future__ import annotations

import math
import pathlib
from typing import TYPE_CHECKING, Any

from dosimeter.accounting.classic import Validity
from dosimeter.compare.comparison import Comparison, Line
from dosimeter.palette import dress, of_rule
from dosimeter.rounding import at_most

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")

_STYLES: dict[Validity, Any] = {
    Validity.ANYTIME: "-",
    Validity.FILTER: (0, (7, 1.5)),
    Validity.FIXED: (0, (3, 2)),
    Validity.UNSOUND: (0, (1, 1.4)),
}
_MARKS = {
    Validity.ANYTIME: "any stop",
    Validity.FILTER: "filter",
    Validity.FIXED: "fixed beforehand",
    Validity.UNSOUND: "unsound",
}
_STEPPED = ("Lécuyer's odometer", "stacked filters")
"""Rules whose readings leap; between two moments they are drawn at the later one."""
_TIMES = "\N{MULTIPLICATION SIGN}"


def save_plot(comparison: Comparison, path: str | pathlib.Path) -> None:
    """Writes the picture; the suffix of the name says in which form.

    Raises:
        ValueError: The name has another suffix.
    """
    path = pathlib.Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"plot must end in {', '.join(SUFFIXES)}, got {path.name!r}")
    draw(comparison).savefig(path, dpi=200)


def draw(comparison: Comparison) -> Figure:
    """The picture as a figure of matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    shown = [line for line in comparison.lines if math.isfinite(line.last)]
    colours = {line.name: of_rule(line.name) for line in shown}
    for line in shown:
        asked = [not math.isnan(value) for value in line.epsilons]
        single = sum(asked) == 1
        axes.plot(
            [step for step, known in zip(comparison.steps, asked, strict=True) if known],
            [value for value in line.epsilons if not math.isnan(value)],
            color=colours[line.name],
            linestyle="none" if single else _STYLES[line.validity],
            marker="D" if single else None,
            markersize=6,
            drawstyle="steps-pre" if line.name in _STEPPED else "default",
            linewidth=2.4 if line.ours else 1.4,
            zorder=3 if line.ours else 2,
        )
    top = max(line.last for line in shown)
    axes.set_ylim(0, 1.06 * top)
    axes.set_xlim(0, comparison.steps[-1] * 1.02)
    axes.set_xlabel("steps")
    axes.set_ylabel(f"ε at δ = {_power(comparison.delta)}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    dress(axes)
    _label(axes, shown, colours, comparison, top)
    return figure


def _power(delta: float) -> str:
    """A delta as it is written by hand, if it is a power of ten."""
    exponent = round(math.log10(delta))
    return f"$10^{{{exponent}}}$" if f"{delta:.3g}" == f"{10.0**exponent:.3g}" else f"{delta:.3g}"


def _label(
    axes: Any, shown: list[Line], colours: dict[str, str], comparison: Comparison, top: float
) -> None:
    """Names at the right, pushed apart around where their lines end."""
    ordered = sorted(shown, key=lambda line: line.last)
    places = _apart([line.last for line in ordered], 0.066 * top)
    # Labels that were pushed above the axes come down together.
    over = max(0.0, places[-1] - 1.03 * top)
    places = [place - over for place in places]
    for line, place in zip(ordered, places, strict=True):
        ratio = f"{line.last / comparison.limit.last:.2f}{_TIMES}, {_MARKS[line.validity]}"
        axes.annotate(
            f"{line.name}  {at_most(line.last)}" + ("" if line is shown[0] else f"  ({ratio})"),
            xy=(comparison.steps[-1], line.last),
            xytext=(comparison.steps[-1] * 1.09, place),
            color=colours[line.name],
            fontsize=8.5,
            fontweight="bold" if line.ours else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colours[line.name],
                "linewidth": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 1.0,
                "shrinkB": 2.0,
            },
        )


def _apart(values: list[float], gap: float) -> list[float]:
    """Rising values moved as little as needed so that neighbours are a gap apart."""
    clusters: list[list[float]] = []
    for value in values:
        clusters.append([value])
        # A cluster takes its room around its mean; one that then touches the next joins it.
        while len(clusters) > 1:
            below, above = clusters[-2], clusters[-1]
            room = gap * (len(below) + len(above)) / 2
            if sum(above) / len(above) - sum(below) / len(below) >= room:
                break
            clusters[-2:] = [below + above]
    return [
        sum(cluster) / len(cluster) + gap * (place - (len(cluster) - 1) / 2)
        for cluster in clusters
        for place in range(len(cluster))
    ]
