# SPDX-License-Identifier: Apache-2.0
"""What trainers of several frameworks share: from (epsilon, delta) to a filter and its noise."""

from __future__ import annotations

import math
import warnings

from dosimeter.accounting import Gate
from dosimeter.accounting.calibrate import calibrated
from dosimeter.decisions import StepSettings
from dosimeter.decisions.menus import without_menu


def priced(
    gate: Gate | tuple[float, float],
    noise_multiplier: float | None,
    *,
    batch_size: int,
    records: int,
    epochs: float,
) -> tuple[float, Gate | tuple[float, float]]:
    """The noise to train with, and what `PrivateEngine` takes for its gate.

    Without a noise multiplier it is the least with which (epsilon, delta) lasts for the epochs.

    Args:
        gate: A gate, or (epsilon, delta).
        noise_multiplier: The noise, or None.
        batch_size: Expected size of a logical batch.
        records: The public number of records.
        epochs: How many epochs are planned.

    Raises:
        ValueError: There is neither a noise multiplier nor what it could be computed from.
    """
    if noise_multiplier is not None:
        return noise_multiplier, gate
    if not isinstance(gate, tuple) or not 0 < epochs < math.inf:
        raise ValueError(
            "noise_multiplier must be given with a gate of your own or without an end to the "
            "epochs, got none. Pass noise_multiplier=…, or (epsilon, delta) and a number of epochs."
        )

    def settings(noise: float) -> StepSettings:
        return StepSettings(noise, batch_size, records)

    steps = math.ceil(epochs * settings(1.0).steps_per_epoch)
    return calibrated(
        *gate,
        menu=lambda noise: [settings(noise).cost],
        planned=lambda noise: [(settings(noise).cost, steps)],
        note=lambda error: warnings.warn(without_menu(error), stacklevel=4),
    )


def shown(epsilon: float) -> float:
    """An epsilon for a progress bar or a plot, rounded up to four decimals."""
    return math.ceil(epsilon * 1e4) / 1e4 if math.isfinite(epsilon) else epsilon
