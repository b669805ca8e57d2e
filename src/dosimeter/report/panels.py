# SPDX-License-Identifier: Apache-2.0
"""The plots of a report: what is drawn against what, one line a run."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence

from dosimeter.decisions import Epoch, Reading
from dosimeter.report.figures import number
from dosimeter.report.runs import Run
from dosimeter.report.svg import Axes, Guide, Point, Trace, draw, swatch
from dosimeter.rounding import at_most, exact

Value = Callable[[Epoch], float | None]

_SETTINGS: tuple[tuple[str, str, Callable[[Epoch], float]], ...] = (
    ("Noise", "noise multiplier", lambda epoch: epoch.noise_multiplier),
    ("Batch size", "expected records a step", lambda epoch: float(epoch.batch_size)),
)


def panels(runs: Sequence[Run]) -> Iterator[str]:
    """Accuracy over epochs and over epsilon, the budget, signals, and settings that changed."""
    accuracy = "accuracy on public data, %"
    yield _panel(
        "Accuracy over time", runs, Axes("epoch", accuracy, zero=False), (_epoch, _percent)
    )
    price = Axes("ε spent", accuracy, zero=False, whole=False)
    yield _panel("Accuracy for its price", runs, price, (_epsilon, _percent))
    yield _budget(runs)
    yield from _signals(runs)
    for title, words, value in _SETTINGS:
        if not _constant(runs, value):
            yield _panel(title, runs, Axes("epoch", words), (_epoch, value), steps=True)


def unchanged(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each setting that no run ever changed, instead of a plot of level lines."""
    for title, words, value in _SETTINGS:
        shown = [(run.name, number(value(run.history[0]))) for run in runs if run.history]
        if not shown or not _constant(runs, value):
            continue
        if len({figure for _, figure in shown}) == 1:
            said = shown[0][1]
        else:
            said = ", ".join(f"{html.escape(name)} {figure}" for name, figure in shown)
        yield f"{title} ({words}), the same at every epoch: {said}."


def _constant(runs: Sequence[Run], value: Callable[[Epoch], float]) -> bool:
    return all(
        math.isfinite(value(epoch)) and value(epoch) == value(run.history[0])
        for run in runs
        for epoch in run.history
    )


def _epoch(epoch: Epoch) -> float:
    return float(epoch.epoch)


def _epsilon(epoch: Epoch) -> float:
    return epoch.epsilon


def _percent(epoch: Epoch) -> float | None:
    return None if epoch.accuracy is None else 100 * epoch.accuracy


def _budget(runs: Sequence[Run]) -> str:
    """Epsilon spent, and the limits."""
    axes = Axes("epoch", "ε spent")
    lines = []
    for index, run in enumerate(runs):
        line = _line(run, index, axes, (_epoch, _epsilon), steps=False)
        # A budget of its own was whole before the first epoch; a shared one may not have been.
        if line.points and run.kind != "ledger":
            line = Trace(index, (Point(0, 0, f"{run.name}, before: ε spent 0"), *line.points))
        lines.append(line)
    return _figure("The budget burned", runs, axes, lines, _limits(runs))


def _signals(runs: Sequence[Run]) -> Iterator[str]:
    """One panel for each kind of signal that was read."""
    read = {e.signal.name: e.signal.rising for run in runs for e in run.history if e.signal}
    for name, rising in read.items():
        words = name.replace("_", " ")
        axes = Axes("epoch", f"{words}, % of records" if rising else words, zero=False)

        def value(e: Epoch, name: str = name) -> float | None:
            return _shown(e.signal) if e.signal is not None and e.signal.name == name else None

        yield _panel("What the policy saw", runs, axes, (_epoch, value))


def _shown(reading: Reading) -> float:
    """The share of records in percent, or the value itself where less is better."""
    return 100 * reading.value / reading.records if reading.rising else reading.value


def _panel(
    title: str,
    runs: Sequence[Run],
    axes: Axes,
    values: tuple[Value, Value],
    *,
    steps: bool = False,
) -> str:
    lines = [_line(run, index, axes, values, steps=steps) for index, run in enumerate(runs)]
    return _figure(title, runs, axes, lines)


def _figure(
    title: str,
    runs: Sequence[Run],
    axes: Axes,
    lines: Sequence[Trace],
    guides: Sequence[Guide] = (),
) -> str:
    """A figure with its legend below, or nothing where there is nothing to draw."""
    if not any(line.points for line in lines):
        return ""
    keys = "".join(
        f'<span class="key">{swatch(line.style)}{html.escape(runs[line.style].name)}</span>'
        for line in lines
        if line.points
    )
    legend = f"<figcaption>{keys}</figcaption>" if len(runs) > 1 else ""
    return f"<figure><h3>{html.escape(title)}</h3>{draw(axes, lines, guides)}{legend}</figure>"


def _line(run: Run, style: int, axes: Axes, values: tuple[Value, Value], *, steps: bool) -> Trace:
    across, up = values
    points = []
    for epoch in run.history:
        x, y = across(epoch), up(epoch)
        if x is not None and y is not None:
            said = at_most(y) if up is _epsilon else number(round(y, 4))
            at = f" at ε {at_most(x)}" if across is _epsilon else ""
            points.append(Point(x, y, f"{run.name}, epoch {epoch.epoch}: {axes.y} {said}{at}"))
    return Trace(style, tuple(points), steps)


def _limits(runs: Sequence[Run]) -> list[Guide]:
    """One mark where all limits are the same, else one for each."""
    named = {index: run.limit for index, run in enumerate(runs) if run.limit is not None}
    if len(set(named.values())) == 1:
        limit = next(iter(named.values()))
        return [Guide(limit, f"limit {exact(limit)}")]
    return [
        Guide(limit, f"limit {exact(limit)}, {_clipped(runs[index].name)}", index)
        for index, limit in named.items()
    ]


def _clipped(name: str) -> str:
    return name if len(name) <= 30 else name[:29] + "…"
