# SPDX-License-Identifier: Apache-2.0
"""The plots of a report: what is drawn against what, one line a run."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence

from dosimeter.decisions import Epoch, Reading
from dosimeter.report.runs import Run
from dosimeter.report.svg import Axes, Guide, Point, Trace, coinciding, draw, swatch
from dosimeter.report.words import CLAIMED, STILL, claims
from dosimeter.rounding import at_most, exact, number

Value = Callable[[Epoch], float | None]

_USED = "share of the budget used up, %"

_SETTINGS: tuple[tuple[str, str, Callable[[Epoch], float]], ...] = (
    ("Noise", "noise multiplier", lambda epoch: epoch.noise_multiplier),
    ("Batch size", "expected records a step", lambda epoch: float(epoch.batch_size)),
)


def panels(runs: Sequence[Run]) -> Iterator[str]:
    """Accuracy over epochs and for its price, the budget, signals, and settings that changed."""
    accuracy = "accuracy on public data, %"
    yield _panel(
        "Accuracy over time", runs, Axes("epoch", accuracy, zero=False), (_epoch, _percent)
    )
    share = _comparable(runs)
    price = Axes(_USED if share else "ε spent", accuracy, zero=False, whole=False)
    across = _used if share else _epsilon
    note = "" if share else _stands_still(runs)
    yield _panel("Accuracy for its price", runs, price, (across, _percent), note=note)
    yield from _budget(runs)
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


def _used(epoch: Epoch) -> float | None:
    return None if epoch.spent_share is None else 100 * epoch.spent_share


def _comparable(runs: Sequence[Run]) -> bool:
    """Whether shares of the budget are prices of one kind: all of them shares of one limit."""
    told = all(epoch.spent_share is not None for run in runs for epoch in run.history)
    return told and len({(run.limit, run.delta) for run in runs}) == 1


def _stands_still(runs: Sequence[Run]) -> str:
    """Why epsilon does not move any more, where it does not."""
    still = any(
        run.limit is not None and sum(epoch.epsilon >= run.limit for epoch in run.history) > 1
        for run in runs
    )
    return STILL if still else ""


def _budget(runs: Sequence[Run]) -> Iterator[str]:
    """What is used up of each budget, and the epsilon that can be claimed, with the limits."""
    shares = Axes("epoch", _USED, most=100)
    used = _burning(runs, shares, _used)
    shown = _figure("The budget burned", runs, shares, used, [Guide(100, "all of it")])
    yield shown
    axes = Axes("epoch", "ε spent")
    title, notes = ("Epsilon spent" if shown else "The budget burned"), []
    if shown and all(claims(run) for run in runs):
        title, notes = "Epsilon that can be claimed", [CLAIMED]
    lines = _burning(runs, axes, _epsilon)
    note = " ".join(filter(None, [*notes, _stands_still(runs)]))
    yield _figure(title, runs, axes, lines, _limits(runs), note=note)


def _burning(runs: Sequence[Run], axes: Axes, value: Value) -> list[Trace]:
    """Lines that begin at nothing, where nothing was spent before."""
    lines = []
    for index, run in enumerate(runs):
        line = _line(run, index, axes, (_epoch, value), steps=False)
        # A budget of its own was whole before the first epoch; a shared one may not have been.
        if line.points and run.kind != "ledger":
            line = Trace(index, (Point(0, 0, f"{run.name}, before: {axes.y} 0"), *line.points))
        lines.append(line)
    return lines


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
    note: str = "",
) -> str:
    lines = [_line(run, index, axes, values, steps=steps) for index, run in enumerate(runs)]
    return _figure(title, runs, axes, lines, note=note)


def _figure(
    title: str,
    runs: Sequence[Run],
    axes: Axes,
    lines: Sequence[Trace],
    guides: Sequence[Guide] = (),
    *,
    note: str = "",
) -> str:
    """A figure with its legend and a note below, or nothing where there is nothing to draw."""
    if not any(line.points for line in lines):
        return ""
    keys = "".join(
        f'<span class="key">{swatch(line.style)}{html.escape(runs[line.style].name)}</span>'
        for line in lines
        if line.points
    )
    same = "".join(
        f'<span class="key">The same line: {html.escape(", ".join(names))}.</span>'
        for names in ([runs[line.style].name for line in group] for group in coinciding(lines))
    )
    legend = f"<figcaption>{keys}{same}</figcaption>" if len(runs) > 1 else ""
    below = f'<p class="quiet">{note}</p>' if note else ""
    drawn = draw(axes, lines, guides)
    return f"<figure><h3>{html.escape(title)}</h3>{drawn}{legend}{below}</figure>"


def _line(run: Run, style: int, axes: Axes, values: tuple[Value, Value], *, steps: bool) -> Trace:
    across, up = values
    points = []
    for epoch in run.history:
        x, y = across(epoch), up(epoch)
        if x is not None and y is not None:
            said = at_most(y) if up is _epsilon else number(round(y, 4))
            at = "" if across is _epoch else f" at ε {at_most(epoch.epsilon)}"
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
