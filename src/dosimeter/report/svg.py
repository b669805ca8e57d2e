# SPDX-License-Identifier: Apache-2.0
"""Line plots as SVG, small enough to stand in a page and coloured by its style sheet.

Drawn here rather than by a plotting library, because colours then follow the reader's light or
dark theme, text stays text, and every point can say its figures. Each line has a colour and a
dash pattern of its own; lines that lie on top of each other take turns, a dash of each colour after
the other, so that all can be seen.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dosimeter.rounding import number

WIDTH, HEIGHT = 400.0, 236.0
STYLES = 6
"""How many different lines the style sheet knows."""

_TOP, _RIGHT, _BOTTOM = 24.0, 14.0, 40.0
_LETTER = 6.6
_HITS = 120
_DASH = 9
"""How long a colour is seen before the next one, where lines lie on top of each other."""
_FAR = 1e300
"""Beyond this, and closer than its inverse, axes cannot be drawn."""


@dataclass(frozen=True)
class Point:
    """A point and what it says when one points at it."""

    x: float
    y: float
    says: str


@dataclass(frozen=True)
class Trace:
    """A line through points, in one of the styles."""

    style: int
    points: tuple[Point, ...]
    steps: bool = False
    """Whether a value holds from the point before up to its own, rather than moving there."""


@dataclass(frozen=True)
class Guide:
    """A level to mark, such as a limit; without a style it is grey."""

    y: float
    says: str
    style: int | None = None


@dataclass(frozen=True)
class Axes:
    """What the axes show.

    Attributes:
        x: Words under the horizontal axis, with its unit.
        y: Words over the vertical axis, with its unit.
        zero: Whether the vertical axis begins at zero.
        whole: Whether horizontal ticks are whole numbers.
        most: What the vertical axis shows cannot be more than this, so there are no ticks above.
    """

    x: str
    y: str
    zero: bool = True
    whole: bool = True
    most: float = math.inf


def draw(axes: Axes, lines: Sequence[Trace], guides: Sequence[Guide] = ()) -> str:
    """The plot; points and guides that are not finite, or nearly so, are left out."""
    lines = [_finite(line) for line in lines]
    guides = [guide for guide in guides if abs(guide.y) < _FAR]
    xs = [point.x for line in lines for point in line.points] + [0.0]
    ys = [point.y for line in lines for point in line.points] + [guide.y for guide in guides]
    if not ys:
        return ""
    x_ticks = ticks(0.0, max(xs), whole=axes.whole)
    # A guide has its words over it, so it needs room there.
    top = max([*ys, *(1.15 * guide.y for guide in guides)])
    y_ticks = [
        value
        for value in ticks(0.0 if axes.zero else min(ys), top, whole=False)
        if value <= axes.most
    ]
    left = 12 + _LETTER * max(len(number(value)) for value in y_ticks)
    right = max(xs) if axes.whole else x_ticks[-1]
    frame = _Frame(left, (0.0, right or 1.0), (y_ticks[0], max(top, y_ticks[-1])))
    parts = [
        *_grid(frame, axes, x_ticks, y_ticks),
        *(_guide(frame, guide) for guide in guides),
        *(_line(frame, line, turn) for line, turn in zip(lines, _turns(lines), strict=True)),
        *(_hits(frame, line) for line in lines),
    ]
    label = html.escape(f"{axes.y} against {axes.x}", quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def coinciding(lines: Sequence[Trace]) -> list[list[Trace]]:
    """Lines that are the same wherever both are drawn, put together; those alone left out."""
    found: list[list[Trace]] = []
    for line in lines:
        with_it = next((group for group in found if _same(group[0], line)), None)
        if with_it is None:
            found.append([line])
        else:
            with_it.append(line)
    return [group for group in found if len(group) > 1]


def _same(one: Trace, other: Trace) -> bool:
    """Whether two lines have places in common and no other place between them."""
    ours, theirs = ({point.x: point.y for point in line.points} for line in (one, other))
    common = ours.keys() & theirs.keys()
    short = min(len(ours), len(theirs))
    return len(common) >= max(2, short) and all(ours[x] == theirs[x] for x in common)


def _turns(lines: Sequence[Trace]) -> list[tuple[int, int]]:
    """For each line, which turn it has and of how many."""
    groups = coinciding(lines)
    found = []
    for line in lines:
        group = next((group for group in groups if any(line is one for one in group)), [line])
        found.append((next(i for i, one in enumerate(group) if one is line), len(group)))
    return found


def swatch(style: int) -> str:
    """A short line in a style, for a legend."""
    return (
        f'<svg class="swatch" viewBox="0 0 34 10" aria-hidden="true">'
        f'<path class="line s{style % STYLES}" d="M2 5H32"/></svg>'
    )


def ticks(low: float, high: float, *, whole: bool) -> list[float]:
    """A few round numbers from at or below `low` to at or above `high`."""
    if not high - low > max(1e-9 * max(abs(low), abs(high)), 1 / _FAR):
        low, high = (low - 0.5, low + 0.5) if low else (0.0, 1.0)
    raw = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(m for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    if whole:
        step = max(1.0, step if step != 2.5 else 5.0)
    first = math.floor(low / step + 1e-9)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


@dataclass(frozen=True)
class _Frame:
    """Where numbers lie on the paper."""

    left: float
    xs: tuple[float, float]
    ys: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (value - low) / (high - low) * (WIDTH - _RIGHT - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _BOTTOM - _TOP)


def _finite(line: Trace) -> Trace:
    kept = tuple(p for p in line.points if abs(p.x) < _FAR and abs(p.y) < _FAR)
    return Trace(line.style, kept, line.steps)


def _grid(
    frame: _Frame, axes: Axes, x_ticks: Sequence[float], y_ticks: Sequence[float]
) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = [f'<text class="axis" x="2" y="12">{html.escape(axes.y)}</text>']
    for value in y_ticks:
        x, y = frame.left - 6, frame.y(value)
        parts.append(f'<path class="grid" d="M{frame.left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(f'<text class="tick end" x="{x:.1f}" y="{y + 4:.1f}">{number(value)}</text>')
    for value in x_ticks:
        x = frame.x(value)
        if x > right + 0.5:
            continue
        words = number(value)
        middle = min(x, WIDTH - _LETTER * len(words) / 2)  # the last one ends with the paper
        parts.append(f'<path class="mark" d="M{x:.1f} {bottom:.1f}v4"/>')
        parts.append(
            f'<text class="tick mid" x="{middle:.1f}" y="{bottom + 16:.1f}">{words}</text>'
        )
    parts.append(f'<path class="mark" d="M{frame.left:.1f} {bottom:.1f}H{right:.1f}"/>')
    parts.append(
        f'<text class="axis mid" x="{(frame.left + right) / 2:.1f}" y="{HEIGHT - 5:.1f}">'
        f"{html.escape(axes.x)}</text>"
    )
    return parts


def _guide(frame: _Frame, guide: Guide) -> str:
    y = frame.y(guide.y)
    style = "" if guide.style is None else f" s{guide.style % STYLES}"
    return (
        f'<path class="guide{style}" d="M{frame.left:.1f} {y:.1f}H{WIDTH - _RIGHT:.1f}"/>'
        f'<text class="tick guide-text" x="{frame.left + 4:.1f}" y="{y - 4:.1f}">'
        f"{html.escape(guide.says)}</text>"
    )


def _line(frame: _Frame, line: Trace, turn: tuple[int, int]) -> str:
    if not line.points:
        return ""
    places = [(frame.x(point.x), frame.y(point.y)) for point in line.points]
    if line.steps:
        # The value of an epoch holds from the end of the one before.
        start = frame.x(max(0.0, line.points[0].x - 1))
        path = f"M{start:.1f} {places[0][1]:.1f}" + "".join(f"V{y:.1f}H{x:.1f}" for x, y in places)
        end = ""
    else:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        end = f'<circle class="dot s{line.style % STYLES}" cx="{places[-1][0]:.1f}" '
        end += f'cy="{places[-1][1]:.1f}" r="3.5"/>'
    place, of = turn
    dashes, shared = "", ""
    if of > 1:
        dashes = (
            f' stroke-dasharray="{_DASH} {_DASH * (of - 1)}" stroke-dashoffset="{-_DASH * place}"'
        )
        shared = " shared"
    return f'<path class="line s{line.style % STYLES}{shared}"{dashes} d="{path}"/>{end}'


def _hits(frame: _Frame, line: Trace) -> str:
    """Circles that cannot be seen but say their figures; not more than one can point at."""
    every = max(1, math.ceil(len(line.points) / _HITS))
    return "".join(
        f'<circle class="hit" cx="{frame.x(point.x):.1f}" cy="{frame.y(point.y):.1f}" r="7">'
        f"<title>{html.escape(point.says)}</title></circle>"
        for point in line.points[::every]
    )
