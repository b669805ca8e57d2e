# SPDX-License-Identifier: Apache-2.0
"""What trainers of several frameworks share: from (epsilon, delta) to a filter and its noise."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence

from dosimeter.accounting import Gate
from dosimeter.accounting.calibrate import calibrated
from dosimeter.decisions import Policy, StepSettings, costs_of, filter_for
from dosimeter.decisions.menus import readings_due, without_menu
from dosimeter.rdp import Cost


def priced(
    gate: Gate | tuple[float, float],
    noise_multiplier: float | None,
    *,
    batch_size: int,
    records: int,
    epochs: float,
    policies: Sequence[Policy] = (),
    reading: Cost | None = None,
) -> tuple[float, Gate]:
    """The noise to train with, and the gate.

    Without a noise multiplier it is the least with which (epsilon, delta) lasts for the epochs.

    Args:
        gate: A gate, or (epsilon, delta) for a filter with a menu of all that may be asked for.
        noise_multiplier: The noise, or None.
        batch_size: Expected size of a logical batch.
        records: The public number of records.
        epochs: How many epochs are planned.
        policies: What may change noise and batch size on the way.
        reading: What a reading for them costs.

    Raises:
        ValueError: There is neither a noise multiplier nor what it could be computed from.
    """

    def settings(noise: float) -> StepSettings:
        return StepSettings(noise, batch_size, records)

    def menu(noise: float) -> tuple[Cost, ...]:
        # Policies remember where they began.
        return costs_of(settings(noise), copy.deepcopy(list(policies)), reading)

    def planned(noise: float) -> list[tuple[Cost, int]]:
        steps = math.ceil(epochs * settings(1.0).steps_per_epoch)
        due = readings_due(policies, int(epochs)) if reading is not None else 0
        readings = [(reading, due)] if reading is not None and due else []
        return [*readings, (settings(noise).cost, steps)]

    if noise_multiplier is not None:
        if isinstance(gate, tuple):
            chosen = noise_multiplier
            gate = filter_for(*gate, lambda: menu(chosen), note=warnings.warn)
        return noise_multiplier, gate
    if not isinstance(gate, tuple) or not 0 < epochs < math.inf:
        raise ValueError(
            "noise_multiplier must be given with a gate of your own or without an end to the "
            "epochs, got none. Pass noise_multiplier=…, or (epsilon, delta) and a number of epochs."
        )
    return calibrated(
        *gate,
        menu=menu,
        planned=planned,
        note=lambda error: warnings.warn(without_menu(error), stacklevel=4),
    )


def shown(epsilon: float) -> float:
    """An epsilon for a progress bar or a plot, rounded up to four decimals."""
    return math.ceil(epsilon * 1e4) / 1e4 if math.isfinite(epsilon) else epsilon
