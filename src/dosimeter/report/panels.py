# SPDX-License-Identifier: Apache-2.0
"""The plots of a report: what is drawn against what, one line a run."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence

from dosimeter.report.figures import number
from dosimeter.report.runs import Epoch, Run
from dosimeter.report.svg import Axes, Guide, Line, Point, draw, swatch

Value = Callable[[Epoch], float | None]


def panels(runs: Sequence[Run]) -> Iterator[str]:
    """Accuracy over epochs and over epsilon, the budget, signals, noise and batch size."""
    epoch: Value = lambda e: float(e.epoch)  # noqa: E731
    epsilon: Value = lambda e: e.epsilon  # noqa: E731
    percent: Value = lambda e: None if e.accuracy is None else 100 * e.accuracy  # noqa: E731
    yield _panel(
        "Accuracy over time", runs, Axes("epoch", "accuracy on public data, %", zero=False),
        (epoch, percent),
    )  # fmt: skip
    yield _panel(
        "Accuracy for its price", runs,
        Axes("ε spent", "accuracy on public data, %", zero=False, whole=False), (epsilon, percent),
    )  # fmt: skip
    yield _panel("The budget burned", runs, Axes("epoch", "ε spent"), (epoch, epsilon), budget=True)
    yield from _signals(runs)
    yield _panel(
        "Noise", runs, Axes("epoch", "noise multiplier"), (epoch, lambda e: e.noise_multiplier),
        steps=True,
    )  # fmt: skip
    yield _panel(
        "Batch size", runs, Axes("epoch", "expected records a step"),
        (epoch, lambda e: float(e.batch_size)), steps=True,
    )  # fmt: skip


def _signals(runs: Sequence[Run]) -> Iterator[str]:
    """One panel for each kind of signal that was read."""
    read = {e.signal.name: e.signal.rising for run in runs for e in run.epochs if e.signal}
    for name, rising in read.items():
        words = name.replace("_", " ")
        axes = Axes("epoch", f"{words}, % of records" if rising else words, zero=False)

        def value(e: Epoch, name: str = name) -> float | None:
            return e.signal.shown if e.signal is not None and e.signal.name == name else None

        yield _panel("What the policy saw", runs, axes, (lambda e: float(e.epoch), value))


def _panel(
    title: str,
    runs: Sequence[Run],
    axes: Axes,
    values: tuple[Value, Value],
    *,
    budget: bool = False,
    steps: bool = False,
) -> str:
    """A figure with its legend below, or nothing where there is nothing to draw."""
    lines = [_line(run, index, axes, values, steps=steps) for index, run in enumerate(runs)]
    if budget:
        # Nothing was spent before the first epoch.
        lines = [Line(x.style, (Point(0, 0, "start: ε 0"), *x.points)) for x in lines if x.points]
    drawing = draw(axes, lines, _limits(runs) if budget else ())
    if not drawing or not any(line.points for line in lines):
        return ""
    keys = "".join(
        f'<span class="key">{swatch(line.style)}{html.escape(runs[line.style].name)}</span>'
        for line in lines
        if line.points
    )
    legend = f"<figcaption>{keys}</figcaption>" if len(runs) > 1 else ""
    return f"<figure><h3>{html.escape(title)}</h3>{drawing}{legend}</figure>"


def _line(run: Run, style: int, axes: Axes, values: tuple[Value, Value], *, steps: bool) -> Line:
    across, up = values
    points = []
    for epoch in run.epochs:
        x, y = across(epoch), up(epoch)
        if x is not None and y is not None:
            says = f"{run.name}, epoch {epoch.epoch}: {axes.y} {number(round(y, 4))}"
            if axes.x != "epoch":
                says += f" at {axes.x} {number(round(x, 4))}"
            points.append(Point(x, y, says))
    return Line(style, tuple(points), steps)


def _limits(runs: Sequence[Run]) -> list[Guide]:
    """One mark where all limits are the same, else one for each."""
    named = {index: run.limit for index, run in enumerate(runs) if run.limit is not None}
    if len(set(named.values())) == 1:
        limit = next(iter(named.values()))
        return [Guide(limit, f"limit {number(limit)}")]
    return [
        Guide(limit, f"limit {number(limit)}, {runs[index].name}", index)
        for index, limit in named.items()
    ]
