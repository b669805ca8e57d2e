# SPDX-License-Identifier: Apache-2.0
"""The adaptive policies of Lécuyer (2021), section 5: save budget while learning is easy.

5.1 starts from a baseline and spends less per step while the count of correct records rises,
coming back when it does not. 5.2 starts cheap and spends more whenever it does not rise.
"""

from __future__ import annotations

from abc import abstractmethod

from dosimeter import arguments
from dosimeter.decisions.controls import Controls
from dosimeter.decisions.policy import Policy
from dosimeter.decisions.readings import Reading
from dosimeter.rdp import Cost


class _Adapt(Policy):
    """One level cheaper after a rise, one level back after none, never past the baseline."""

    def __init__(self, *, every: int, horizon: int) -> None:
        super().__init__(every=every)
        self.horizon = arguments.count("horizon", horizon)
        self._level = 0
        self._baseline: float | None = None

    def begin(self, engine: Controls) -> None:
        """Takes the engine's present setting as the baseline."""
        if self._baseline is None:
            self._baseline = self._setting(engine)

    def update(self, engine: Controls, reading: Reading) -> None:
        """Lowers the budget of a step after a rise, if time allows; else brings it back.

        After a rise with less than the horizon ahead it stays where it is.
        """
        self.begin(engine)
        if self._rose(reading):
            steps = self.horizon * engine.steps_per_epoch
            if self._level < self._levels(engine) and engine.admits(engine.step_cost(), steps + 1):
                self._level += 1
        else:
            self._level = max(0, self._level - 1)
        self._apply(engine)

    @abstractmethod
    def _setting(self, engine: Controls) -> float:
        """What is adapted."""

    @abstractmethod
    def _levels(self, engine: Controls) -> int:
        """How many levels below the baseline there are."""

    @abstractmethod
    def _apply(self, engine: Controls) -> None:
        """Sets the engine to the level."""

    def _base(self, engine: Controls) -> float:
        return self._setting(engine) if self._baseline is None else self._baseline


class AdaptNoise(_Adapt):
    """Section 5.1 with noise: more of it while the signal rises.

    Args:
        step: How much noise is added or removed.
        every: How many epochs lie between two readings.
        horizon: Noise is added only while the gate would allow more epochs than this.
        levels: How many times noise can be added above the baseline.
    """

    def __init__(
        self, step: float = 0.1, *, every: int = 10, horizon: int = 50, levels: int = 20
    ) -> None:
        super().__init__(every=every, horizon=horizon)
        self.step = arguments.positive("step", step)
        self.levels = arguments.count("levels", levels)

    def costs(self, engine: Controls) -> tuple[Cost, ...]:
        """A step at each level of noise."""
        base = self._base(engine)
        return tuple(
            engine.step_cost(noise_multiplier=self._noise(base, level))
            for level in range(self.levels + 1)
        )

    def _setting(self, engine: Controls) -> float:
        return engine.noise_multiplier

    def _levels(self, engine: Controls) -> int:
        return self.levels

    def _apply(self, engine: Controls) -> None:
        engine.noise_multiplier = self._noise(self._base(engine), self._level)

    def _noise(self, base: float, level: int) -> float:
        return base + level * self.step


class AdaptBatch(_Adapt):
    """Section 5.1 with batches: smaller ones while the signal rises.

    Args:
        step: How many records are removed or added.
        minimum: The smallest batch.
        every: How many epochs lie between two readings.
        horizon: Batches shrink only while the gate would allow more epochs than this.
    """

    def __init__(
        self, step: int = 128, *, minimum: int = 256, every: int = 10, horizon: int = 50
    ) -> None:
        super().__init__(every=every, horizon=horizon)
        self.step = arguments.count("step", step)
        self.minimum = arguments.count("minimum", minimum)

    def costs(self, engine: Controls) -> tuple[Cost, ...]:
        """A step at each size of batch."""
        base = int(self._base(engine))
        return tuple(
            engine.step_cost(batch_size=base - level * self.step)
            for level in range(self._levels(engine) + 1)
        )

    def _setting(self, engine: Controls) -> float:
        return engine.batch_size

    def _levels(self, engine: Controls) -> int:
        return max(0, (int(self._base(engine)) - self.minimum) // self.step)

    def _apply(self, engine: Controls) -> None:
        engine.batch_size = int(self._base(engine)) - self._level * self.step


class LowerNoise(Policy):
    """Section 5.2, for fine-tuning: much noise at first, less whenever the signal stalls.

    Args:
        start: The noise to begin with.
        step: How much noise is removed at a time.
        minimum: The noise never to go below.
        every: How many epochs lie between two readings.
    """

    def __init__(
        self, start: float = 2.0, step: float = 0.1, minimum: float = 1.0, *, every: int = 1
    ) -> None:
        super().__init__(every=every)
        self.start = arguments.positive("start", start)
        self.step = arguments.positive("step", step)
        self.minimum = arguments.positive("minimum", minimum)
        if not self.minimum <= self.start:
            raise ValueError(f"minimum must be at most start={start!r}, got {minimum!r}")
        self._level = 0

    def begin(self, engine: Controls) -> None:
        """Sets the noise to begin with."""
        engine.noise_multiplier = self._noise(self._level)

    def update(self, engine: Controls, reading: Reading) -> None:
        """Lowers the noise unless the signal rose."""
        if not self._rose(reading) and self._noise(self._level) > self.minimum:
            self._level += 1
        engine.noise_multiplier = self._noise(self._level)

    def costs(self, engine: Controls) -> tuple[Cost, ...]:
        """A step at each level of noise."""
        levels = [0]
        while self._noise(levels[-1]) > self.minimum:
            levels.append(levels[-1] + 1)
        return tuple(engine.step_cost(noise_multiplier=self._noise(level)) for level in levels)

    def _noise(self, level: int) -> float:
        return max(self.minimum, self.start - level * self.step)
