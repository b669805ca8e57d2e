# SPDX-License-Identifier: Apache-2.0
"""Budgets: what a config asks of its budget, said before the data are touched.

A budget that does not pay for one step is refused here, with the nearest that pays for all
of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dosimeter.accounting import Filter, Gate, Odometer
from dosimeter.accounting.calibrate import least
from dosimeter.accounting.tally import largest
from dosimeter.decisions import (
    AdaptBatch,
    AdaptNoise,
    Horizon,
    LowerNoise,
    Policy,
    RootBatch,
    StepSettings,
    StopEarly,
    costs_of,
    filter_for,
    lasting,
)
from dosimeter.decisions.menus import patiently, readings_due, without_menu
from dosimeter.rdp import Cost, Gaussian, SampledGaussian
from dosimeter.rounding import at_most, exact
from dosimeter.runs.config import Config, SignalTable
from dosimeter.runs.purse import Purse


def policies(config: Config) -> list[Policy]:
    """The policy and the stop rule of a config, fresh."""
    made: list[Policy] = []
    if config.policy is not None:
        kinds: dict[str, Callable[..., Policy]] = {
            "adapt_noise": AdaptNoise,
            "adapt_batch": AdaptBatch,
            "lower_noise": LowerNoise,
        }
        try:
            made.append(kinds[config.policy.kind](**config.policy.given))
        except ValueError as error:
            raise ValueError(f"policy.{error}") from error
    if config.stop is not None:
        stop = config.stop
        made.append(StopEarly(stop.target, stop.patience, every=stop.every))
    return made


@dataclass(frozen=True)
class Priced:
    """The noise of the first step, and the gate of a run's own that is priced for the run.

    Attributes:
        noise: As given, or the least with which a filter lasts.
        gate: None where a ledger keeps the budget.
    """

    noise: float
    gate: Filter | Odometer | None


class Needs:
    """What a config asks of its budget, for a number of private records.

    Args:
        config: The run.
        records: How many records it trains on.
        begun: The noise with which the run began, if it is resumed; and
        menu: Whether its gate then had a menu.
        note: Told what takes long.

    Raises:
        ValueError: The batch is larger than the data, or no noise makes the epochs fit.
    """

    def __init__(
        self,
        config: Config,
        records: int,
        *,
        begun: float | None = None,
        menu: bool = True,
        note: Callable[[str], None] = print,
    ) -> None:
        batch = config.training.batch_size or RootBatch()(records)
        if not batch <= records:
            raise ValueError(
                f"training.batch_size must be at most the {records} private records, got {batch}"
            )
        self._config, self.records, self._note = config, records, note
        self.notes: list[str] = []
        self._begun, self._menu = begun, menu and config.budget.menu
        self.batch_size, self.steps_per_epoch = batch, -(-records // batch)
        self.epochs = config.training.epochs or Horizon()(self.steps_per_epoch)

    @property
    def chosen(self) -> bool:
        """Whether batch size or epochs were left out."""
        training = self._config.training
        return training.batch_size is None or training.epochs is None

    @property
    def steps(self) -> int:
        """How many steps all epochs take."""
        return self.epochs * self.steps_per_epoch

    @property
    def given_noise(self) -> float | None:
        """The noise of the first step if the config says it, or the run that is resumed."""
        begun = next((p.start for p in policies(self._config) if isinstance(p, LowerNoise)), None)
        return self._begun or begun or self._config.training.noise_multiplier

    @property
    def noise(self) -> float:
        """The noise of the first step: as given, or the least with which a filter lasts."""
        return self.given_noise or self._priced.noise

    @property
    def gate(self) -> Filter | Odometer | None:
        """The gate of the run's own, with a menu where there can be one; None with a ledger."""
        return self._priced.gate

    def costs(self, noise: float) -> tuple[Cost, ...]:
        """Every cost that the run can ask for, that of the first step first.

        Raises:
            ValueError: That is not known beforehand.
        """
        signal = self._config.signal or SignalTable()
        settings = StepSettings(noise, self.batch_size, self.records)
        reading = None if signal.public else Gaussian(signal.noise_multiplier)
        return costs_of(settings, policies(self._config), reading)

    @cached_property
    def _priced(self) -> Priced:
        noise, budget = self.given_noise, self._config.budget
        with patiently(self._note):
            if budget.kind == "ledger":
                assert noise is not None
                return Priced(noise, None)
            if budget.kind == "odometer":
                assert noise is not None
                return Priced(noise, self._odometer(noise))
            return self._least() if noise is None else Priced(noise, self._filter(noise))

    def _filter(self, noise: float) -> Filter:
        epsilon, delta = self._limits
        if not self._menu:
            return Filter(epsilon, delta)
        return filter_for(epsilon, delta, lambda: self.costs(noise), note=self.notes.append)

    def _odometer(self, noise: float) -> Odometer:
        """An odometer, with a menu where one knows beforehand when the run will end.

        Readings of a ladder are tightest at their plan, and in between no better than others.
        """
        delta = self._config.budget.delta
        assert delta is not None
        if not self._menu or self._config.stop is not None:
            return Odometer(delta)
        try:
            costs = self.costs(noise)
            return Odometer(delta, menu=costs, plan=(costs[0], self.steps))
        except (TypeError, ValueError) as error:
            self.notes.append(without_menu(error))
            return Odometer(delta)

    def _least(self) -> Priced:
        """The least noise with which a filter lasts, and the filter."""
        epsilon, delta = self._limits
        self._require_readings(Filter(epsilon, delta))
        try:
            noise, gate = lasting(
                epsilon,
                delta,
                settings=lambda noise: StepSettings(noise, self.batch_size, self.records),
                steps=self.steps,
                menu=self.costs if self._menu else None,
                planned=self._planned,
                note=lambda error: self.notes.append(without_menu(error)),
            )
        except ValueError as error:
            raise ValueError(f"budget.{error}") from error
        return Priced(noise, gate)

    @property
    def _limits(self) -> tuple[float, float]:
        epsilon, delta = self._config.budget.epsilon, self._config.budget.delta
        assert epsilon is not None
        assert delta is not None
        return epsilon, delta

    def _planned(self, noise: float) -> list[tuple[Cost, int]]:
        """All steps at one noise, and the readings of a private signal."""
        signal, due = self._config.signal or SignalTable(), self._readings
        planned: list[tuple[Cost, int]] = [(self.cost(noise), self.steps)]
        return [(Gaussian(signal.noise_multiplier), due), *planned] if due else planned

    @property
    def _readings(self) -> int:
        """How many readings of a private signal are due."""
        if (self._config.signal or SignalTable()).public:
            return 0
        return readings_due(policies(self._config), self.epochs)

    def cost(self, noise: float) -> SampledGaussian:
        """What a step costs."""
        return StepSettings(noise, self.batch_size, self.records).cost

    def lasts(self, purse: Purse) -> float:
        """How many epochs the budget pays for at the first noise; infinite for an odometer.

        Raises:
            ValueError: Not even one step.
        """
        if purse.limit is None:
            return math.inf
        gate, cost = purse.gate, self.cost(self.noise)
        if purse.closed:
            raise ValueError(
                f"budget.name must pay for one step, got {self._config.budget.name!r}, which is "
                "closed and stays so; name another, or the ledger that it was moved to"
            )
        steps = largest(lambda count: gate.admits(cost, count))
        if steps:
            return steps / self.steps_per_epoch
        key = "budget.name" if purse.kind == "ledger" else "budget.epsilon"
        noise, epsilon = self._least_noise(gate), self._least_epsilon(cost, purse.delta)
        ways = [f"noise_multiplier {exact(noise)}"] if noise is not None else []
        ways += [f"epsilon {exact(epsilon)}"] if epsilon is not None else []
        raise ValueError(
            f"{key} must pay for one step of noise_multiplier {exact(self.noise)} at sample rate "
            f"{at_most(cost.sample_rate)}, got epsilon {exact(purse.limit)}, of which "
            f"{at_most(gate.epsilon)} is spent; {self.epochs} epochs "
            + (f"fit from {' or '.join(ways)} on" if ways else "fit into no budget")
        )

    def _require_readings(self, gate: Filter) -> None:
        """Makes sure that a gate pays for the readings of a private signal.

        Raises:
            ValueError: They alone do not fit.
        """
        signal, due = self._config.signal or SignalTable(), self._readings
        if not due or gate.admits(Gaussian(signal.noise_multiplier), due):
            return
        fits = least(lambda noise: gate.admits(Gaussian(noise), due))
        ways = f"they fit from {exact(fits)} on" if fits else "no noise makes them fit"
        raise ValueError(
            f"signal.noise_multiplier must leave budget for the steps after {due} readings, "
            f"got {exact(signal.noise_multiplier)}, with which the readings alone pass epsilon "
            f"{exact(gate.limit)}; {ways}, or read less often"
        )

    def _least_noise(self, gate: Gate) -> float | None:
        """The least noise, to about one part in a thousand, with which all steps fit."""
        return least(lambda noise: gate.admits(self.cost(noise), self.steps))

    def _least_epsilon(self, cost: SampledGaussian, delta: float) -> float | None:
        """The least epsilon of a filter that all steps fit into."""
        return least(lambda epsilon: Filter(epsilon, delta).admits(cost, self.steps))
