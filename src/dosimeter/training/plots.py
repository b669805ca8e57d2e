# SPDX-License-Identifier: Apache-2.0
"""Plots of histories: accuracy and epsilon against epochs, noise and batch size as steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dosimeter.rounding import exact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dosimeter.training.history import History

COLOURS = ("#3569b0", "#c4622d", "#3f8f5b", "#8a5aa8", "#b08a2e", "#5f6b7a")
MARKS = ("o", "s", "^", "D", "v", "P")


def plot(histories: Mapping[str, History], *, limit: float | None = None) -> Figure:
    """One figure with four panels, one line a run.

    Args:
        histories: The runs by name.
        limit: An epsilon to mark, such as that of a filter.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.6), layout="constrained")
    panels: Any = figure.subplots(2, 2, sharex=True)
    (accuracy, epsilon), (noise, batch) = panels
    for index, (name, history) in enumerate(histories.items()):
        style = {"color": COLOURS[index % len(COLOURS)], "label": name, "linewidth": 1.6}
        mark = {"marker": MARKS[index % len(MARKS)], "markersize": 3.5, "markevery": 0.12}
        epochs = [record.epoch for record in history]
        known = [(r.epoch, 100 * r.accuracy) for r in history if r.accuracy is not None]
        if known:
            accuracy.plot(*zip(*known, strict=True), **style, **mark)
        epsilon.plot(epochs, [record.epsilon for record in history], **style, **mark)
        steps = {"drawstyle": "steps-post", **style}
        noise.plot(epochs, [record.noise_multiplier for record in history], **steps)
        batch.plot(epochs, [record.batch_size for record in history], **steps)
    if limit is not None:
        epsilon.axhline(limit, color="#888888", linewidth=1, linestyle="--")
        epsilon.text(
            0.01,
            limit,
            f" limit {exact(limit)}",
            va="bottom",
            fontsize=8,
            color="#555555",
            transform=epsilon.get_yaxis_transform(),
        )
    _label(accuracy, "accuracy on public data (%)")
    _label(epsilon, "epsilon spent")
    _label(noise, "noise multiplier")
    _label(batch, "expected batch size")
    epsilon.set_ylim(bottom=0)
    batch.set_ylim(bottom=0)
    for panel in (noise, batch):
        panel.set_xlabel("epoch")
    if len(histories) > 1:
        handles, labels = epsilon.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def _label(panel: Any, title: str) -> None:
    panel.set_title(title, fontsize=10, loc="left")
    panel.grid(True, linewidth=0.4, alpha=0.5)
    panel.margins(y=0.12)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
