# SPDX-License-Identifier: Apache-2.0
"""Choices: batch size, horizon and noise where none is given, and a budget too small for any.

All of them follow from public numbers: how many records there are, and the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dosimeter import arguments
from dosimeter.accounting import Filter
from dosimeter.accounting.calibrate import MOST, Declared, Planned, calibrated, least
from dosimeter.decisions.settings import StepSettings
from dosimeter.rounding import exact


@dataclass(frozen=True)
class RootBatch:
    """A batch of so many times the root of the number of records, at most half of them.

    Noise for a given budget is about proportional to the sample rate times the root of the number
    of steps, unless it falls below 1. So what all steps release together hardly depends on the
    batch, and it may be chosen for speed: few passes over many records, many over few.

    Args:
        scale: What the root is multiplied by.
    """

    scale: float = 18.0

    def __post_init__(self) -> None:
        arguments.positive("scale", self.scale)

    def __call__(self, records: int) -> int:
        """The expected batch size for a public number of records."""
        return max(1, min(records // 2, round(self.scale * math.sqrt(records))))


@dataclass(frozen=True)
class Horizon:
    """As many epochs as make a number of steps, the same for all data.

    Args:
        steps: How many steps at least.
    """

    steps: int = 400

    def __post_init__(self) -> None:
        arguments.count("steps", self.steps)

    def __call__(self, steps_per_epoch: int) -> int:
        """The number of epochs."""
        return -(-self.steps // steps_per_epoch)


def lasting(
    epsilon: float,
    delta: float,
    *,
    settings: Callable[[float], StepSettings],
    steps: int,
    menu: Declared | None,
    planned: Planned,
    note: Callable[[Exception], None],
) -> tuple[float, Filter]:
    """The least noise with which a budget lasts for all steps, and the filter that pays for them.

    Args:
        epsilon: The budget.
        delta: The budget.
        settings: Those of a step, at some noise.
        steps: How many there are.
        menu: As `calibrated` has it.
        planned: As `calibrated` has it.
        note: As `calibrated` has it.

    Raises:
        ValueError: That noise would leave nothing to learn from, or no noise is enough; it says
            what it would take.
    """
    try:
        noise, gate = calibrated(epsilon, delta, menu=menu, planned=planned, note=note)
    except ValueError:
        # No run has more noise. If this leaves nothing to learn from, that is what to mend first.
        require_useful(settings(MOST), steps, epsilon, delta)
        raise
    require_useful(settings(noise), steps, epsilon, delta)
    return noise, gate


def require_useful(settings: StepSettings, steps: int, epsilon: float, delta: float) -> None:
    """Raises if no model can be learned from what such a run releases.

    Where all records agree in one direction, and are clipped to length one, the mean over all steps
    has length one in it; noise has deviation noise / (batch · √steps) in every direction. If that
    is more, not even one bit per run comes through, whatever the model.

    Raises:
        ValueError: It says what epsilon it would take, and how many records unless the noise is
            already the most that there is, and so perhaps not enough.
    """
    share = settings.noise_multiplier / (settings.batch_size * math.sqrt(steps))
    if share < 1:
        return
    bearable = StepSettings(
        settings.batch_size * math.sqrt(steps), settings.batch_size, settings.records
    ).cost
    needed = least(lambda limit: Filter(limit, delta).admits(bearable, steps))
    ways = ["more epsilon" if needed is None else f"epsilon {exact(needed)}"]
    if settings.noise_multiplier < MOST:  # else that is not all that it takes
        ways.append(f"about {_counted(math.ceil(share * settings.records))}")
    raise ValueError(
        f"epsilon must leave more signal than noise for {_counted(settings.records)}, got "
        f"{exact(epsilon)}, with which the noise of all {steps} steps is at least {share:.2g} "
        f"times what all records could add together if they agreed. It takes {', or '.join(ways)}, "
        "for anything at all, and several times that to learn well."
    )


def _counted(records: int) -> str:
    return "1 record" if records == 1 else f"{records} records"
