# SPDX-License-Identifier: Apache-2.0
"""What notebooks show of a budget or a run: a title, a bar, and a few lines.

Colours follow the notebook's text colour, so that they can be read on light and on dark pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

_FRAME = "font:13px/1.5 system-ui,sans-serif;max-width:34em;padding:.3em 0"
_TRACK = (
    "height:10px;border-radius:5px;overflow:hidden;background:rgba(128,128,128,.25);margin:.3em 0"
)
_COLOUR = "#2f7ed8"
_SPENT = "#c43d3d"


def card(title: str, lines: Iterable[str], share: float | None = None) -> str:
    """HTML with a title, a bar that is filled by a share from 0 to 1, and lines of words."""
    bar = "" if share is None else _bar(share)
    words = "".join(f'<div style="opacity:.8">{html.escape(line)}</div>' for line in lines)
    return f'<div style="{_FRAME}"><b>{html.escape(title)}</b>{bar}{words}</div>'


def _bar(share: float) -> str:
    colour = _SPENT if share >= 1 else _COLOUR
    width = 100 * min(1.0, max(0.0, share))
    return (
        f'<div role="meter" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{width:.1f}" '
        f'style="{_TRACK}"><div style="width:{width:.1f}%;height:100%;background:{colour}"></div>'
        "</div>"
    )


def curve(values: list[float], *, width: int = 260, height: int = 56) -> str:
    """A small line through values, each held until the next; nothing for fewer than two."""
    top = max(values, default=0.0)
    if len(values) < 2 or not 0 < top < float("inf"):
        return ""
    across, down = (width - 2) / len(values), (height - 4) / top
    points = []
    for place, value in enumerate(values):
        y = height - 2 - value * down
        points += [f"{1 + place * across:.1f},{y:.1f}", f"{1 + (place + 1) * across:.1f},{y:.1f}"]
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="from {values[0]:.3g} to '
        f'{values[-1]:.3g}"><polyline points="{" ".join(points)}" fill="none" '
        f'stroke="{_COLOUR}" stroke-width="2"/></svg>'
    )
