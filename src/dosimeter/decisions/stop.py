# SPDX-License-Identifier: Apache-2.0
"""StopEarly: ends training when the signal is good enough, or no longer gets better.

Under an odometer, stopping early is paid for by what was spent so far; under a filter the
guarantee is the filter's, whenever one stops.
"""

from __future__ import annotations

from dosimeter import arguments
from dosimeter.decisions.controls import Controls
from dosimeter.decisions.policy import Policy
from dosimeter.decisions.readings import Reading
from dosimeter.rdp import Cost


class StopEarly(Policy):
    """Stops at a target, or after some readings without a rise.

    A noisy count on *training* data overstates the accuracy on new data by a point or two:
    aim that much higher, or read a public signal.

    Args:
        target: Stop when the share of correct records is at least this, or the mean loss
            at most this.
        patience: Stop after this many readings in a row that did not rise over the last that
            did. docs/training.md tells how often that stops a run which improves.
        every: How many epochs lie between two readings.
        significance: How many standard deviations of the noise make a rise.
    """

    def __init__(
        self,
        target: float | None = None,
        patience: int | None = None,
        *,
        every: int = 1,
        significance: float = 3.0,
    ) -> None:
        super().__init__(every=every, significance=significance)
        if target is None and patience is None:
            raise ValueError("target or patience must be given, got neither")
        self.target = None if target is None else arguments.real("target", target)
        self.patience = None if patience is None else arguments.count("patience", patience)
        self._misses = 0

    def costs(self, engine: Controls) -> tuple[Cost, ...]:
        """The step as it is: stopping changes none."""
        return (engine.step_cost(),)

    def update(self, engine: Controls, reading: Reading) -> None:
        """Stops the engine if it is time."""
        self._misses = 0 if self._rose(reading) else self._misses + 1
        quality = reading.quality
        if self.target is not None:
            reached = quality >= self.target if reading.rising else quality <= self.target
            if reached:
                engine.stop(f"{reading.name} reached its target {self.target:g}")
        if self.patience is not None and self._misses >= self.patience:
            engine.stop(
                f"{reading.name} did not rise by {self.significance:g} deviations in "
                f"{self._misses} readings"
            )
