# SPDX-License-Identifier: Apache-2.0
"""Budgets: what a config asks of its budget, said before the data are touched.

A budget that does not pay for one step is refused here, with the nearest that pays for all
of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

from dosimeter.accounting import Filter, Gate
from dosimeter.accounting.tally import largest
from dosimeter.errors import BudgetExceeded
from dosimeter.rdp import Gaussian, SampledGaussian
from dosimeter.recipe.accounts import Account
from dosimeter.recipe.config import Config, Signal
from dosimeter.rounding import at_most, exact
from dosimeter.training import AdaptBatch, AdaptNoise, LowerNoise, Policy, StopEarly
from dosimeter.training.settings import StepSettings

_MOST_NOISE = 1e4
_MOST_EPSILON = 1e4


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


class Plan:
    """What a config asks of its budget, for a number of private records.

    Raises:
        ValueError: The batch is larger than the data, or no noise makes the epochs fit.
    """

    def __init__(self, config: Config, records: int) -> None:
        batch = config.training.batch_size
        if not batch <= records:
            raise ValueError(
                f"training.batch_size must be at most the {records} private records, got {batch}"
            )
        self._config, self.records = config, records
        self.epochs, self.batch_size = config.training.epochs, batch
        self.steps_per_epoch = -(-records // batch)

    @property
    def steps(self) -> int:
        """How many steps all epochs take."""
        return self.epochs * self.steps_per_epoch

    @property
    def given_noise(self) -> float | None:
        """The noise of the first step if the config says it."""
        begun = next((p.start for p in policies(self._config) if isinstance(p, LowerNoise)), None)
        return begun or self._config.training.noise_multiplier

    @cached_property
    def noise(self) -> float:
        """The noise of the first step: as given, or the least with which a filter lasts."""
        if self.given_noise is not None:
            return self.given_noise
        epsilon, delta = self._config.budget.epsilon, self._config.budget.delta
        assert epsilon is not None
        assert delta is not None
        trial = Filter(epsilon, delta)
        self._pay_readings(trial)
        noise = self._least_noise(trial)
        if noise is None:
            raise ValueError(
                f"budget.epsilon must pay for {self.steps} steps and the readings of the signal, "
                f"got {exact(epsilon)}, which no noise fits into; take fewer epochs, or a signal "
                "with more noise"
            )
        return noise

    def cost(self, noise: float) -> SampledGaussian:
        """What a step costs."""
        return StepSettings(noise, self._config.training.batch_size, self.records).cost

    def lasts(self, account: Account) -> float:
        """How many epochs the budget pays for at the first noise; infinite for an odometer.

        Raises:
            ValueError: Not even one step.
        """
        if account.limit is None:
            return math.inf
        gate, cost = account.gate, self.cost(self.noise)
        if account.closed:
            raise ValueError(
                f"budget.name must pay for one step, got {self._config.budget.name!r}, which is "
                "closed and stays so; name another, or the ledger that it was moved to"
            )
        steps = largest(lambda count: gate.admits(cost, count))
        if steps:
            return steps / self.steps_per_epoch
        key = "budget.name" if account.kind == "ledger" else "budget.epsilon"
        noise, epsilon = self._least_noise(gate), self._least_epsilon(cost, account.delta)
        ways = [f"noise_multiplier {exact(noise)}"] if noise is not None else []
        ways += [f"epsilon {exact(epsilon)}"] if epsilon is not None else []
        raise ValueError(
            f"{key} must pay for one step of noise_multiplier {exact(self.noise)} at sample rate "
            f"{at_most(cost.sample_rate)}, got epsilon {exact(account.limit)}, of which "
            f"{at_most(gate.epsilon)} is spent; {self.epochs} epochs "
            + (f"fit from {' or '.join(ways)} on" if ways else "fit into no budget")
        )

    def _pay_readings(self, gate: Filter) -> None:
        """Puts aside what the readings of a private signal cost.

        Raises:
            ValueError: They alone do not fit.
        """
        signal, every = self._config.signal or Signal(), [p.every for p in policies(self._config)]
        due = sum(self.epochs // gap for gap in every)
        if len(every) > 1:
            due -= self.epochs // math.lcm(*every)
        if signal.public or not due:
            return
        try:
            gate.spend(Gaussian(signal.noise_multiplier), due)
        except BudgetExceeded as error:
            least = _least(lambda noise: gate.admits(Gaussian(noise), due), _MOST_NOISE)
            ways = f"they fit from {exact(least)} on" if least else "no noise makes them fit"
            raise ValueError(
                f"signal.noise_multiplier must leave budget for the steps after {due} readings, "
                f"got {exact(signal.noise_multiplier)}, with which the readings alone pass epsilon "
                f"{exact(gate.limit)}; {ways}, or read less often"
            ) from error

    def _least_noise(self, gate: Gate) -> float | None:
        """The least noise, to about one part in a thousand, with which all steps fit."""
        return _least(lambda noise: gate.admits(self.cost(noise), self.steps), _MOST_NOISE)

    def _least_epsilon(self, cost: SampledGaussian, delta: float) -> float | None:
        """The least epsilon of a filter that all steps fit into."""
        return _least(
            lambda epsilon: Filter(epsilon, delta).admits(cost, self.steps), _MOST_EPSILON
        )


def _least(enough: Callable[[float], bool], most: float) -> float | None:
    """The least number with three digits or so that is enough; None if `most` is not."""
    if not enough(most):
        return None
    low, high = 1e-3, most
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    digits = 3 - math.floor(math.log10(high))
    rounded = math.ceil(high * 10**digits) / 10**digits
    return rounded if enough(rounded) else high
