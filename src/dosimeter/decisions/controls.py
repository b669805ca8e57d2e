# SPDX-License-Identifier: Apache-2.0
"""Controls: what a policy may read and change about the steps to come.

Changes hold from the next step on: a step that was paid for keeps the noise and the sample
rate that it was paid for with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.decisions.settings import StepSettings
from dosimeter.rdp import Cost, SampledGaussian


class Controls(ABC):
    """Noise, batch size and the end of training; an engine and its rehearsal share them."""

    def __init__(self, settings: StepSettings | None = None) -> None:
        self._next = settings
        self._stopped: str | None = None

    @abstractmethod
    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether the gate would accept this now; changes nothing."""

    @property
    def stopped(self) -> str | None:
        """Why training was stopped, or None."""
        return self._stopped

    def stop(self, reason: str) -> None:
        """Ends the loader before its next step; what is spent so far stays as it is."""
        self._stopped = reason

    @property
    def noise_multiplier(self) -> float:
        """Noise of the next step; may be set at any time and holds from the next step on."""
        return self._settings.noise_multiplier

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        old = self._settings
        number = arguments.positive("noise_multiplier", value)
        self._next = StepSettings(number, old.batch_size, old.records)

    @property
    def batch_size(self) -> int:
        """Expected size of the next logical batch; may be set at any time, like the noise."""
        return self._settings.batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        old = self._settings
        number = arguments.count("batch_size", value)
        self._next = StepSettings(old.noise_multiplier, number, old.records)

    @property
    def records(self) -> int:
        """The number of records, taken to be public."""
        return self._settings.records

    @property
    def sample_rate(self) -> float:
        """The probability of each record to join the next batch."""
        return self._settings.sample_rate

    @property
    def steps_per_epoch(self) -> int:
        """How many steps of the present batch size make an epoch."""
        return self._settings.steps_per_epoch

    def step_cost(
        self, *, noise_multiplier: float | None = None, batch_size: int | None = None
    ) -> SampledGaussian:
        """What a step costs now, or would cost with another noise or batch size."""
        old = self._settings
        return StepSettings(
            old.noise_multiplier if noise_multiplier is None else noise_multiplier,
            old.batch_size if batch_size is None else batch_size,
            old.records,
        ).cost

    @property
    def _settings(self) -> StepSettings:
        if self._next is None:
            raise ValueError("engine must have a model, got none yet; call make_private first")
        return self._next


class Rehearsal(Controls):
    """An engine without data: it has the settings and the gate, and takes no step."""

    def __init__(self, gate: Gate, settings: StepSettings) -> None:
        super().__init__(settings)
        self.gate = gate

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether the gate would accept this now; changes nothing."""
        return self.gate.admits(cost, count)
