# SPDX-License-Identifier: Apache-2.0
"""JAX Privacy on one budget: an execution plan whose batches are paid for before they are drawn.

A plan bundles batches, clipping and noise, and says in a DpEvent what they cost together. With one
band (DP-SGD) its steps are independent, so each is paid for by itself and training may end at any
of them. With several bands their noise is correlated, so the plan is paid for whole.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.errors import BudgetExceeded
from dosimeter.integrations.parts import relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost, Event, SampledGaussian

require("jax-privacy", "2.0")

import jax  # noqa: E402  after the check of versions
import numpy as np  # noqa: E402
import optax  # noqa: E402
from dp_accounting import NeighboringRelation  # noqa: E402
from jax_privacy.batch_selection import BatchSelectionStrategy  # noqa: E402
from jax_privacy.experimental.execution_plan import (  # noqa: E402
    BandMFExecutionPlanConfig,
    DPExecutionPlan,
)


class PaidBatches(BatchSelectionStrategy):
    """The batches of a plan, none of which is drawn before it is paid for.

    Attributes:
        refusal: Why the last batches ended before their time, or None.
    """

    def __init__(self, batches: Any, gate: Gate, cost: Cost, *, each: bool) -> None:
        self._batches, self._gate, self._cost, self._each = batches, gate, cost, each
        self.refusal: BudgetExceeded | None = None

    def batch_iterator(self, num_examples: int, rng: Any = None) -> Iterator[Any]:
        """The batches as the plan has them, until they or the budget end.

        Raises:
            BudgetExceeded: There is no budget for even the first. Nothing was spent.
        """
        self.refusal = None
        batches = self._batches.batch_iterator(num_examples, rng)
        for number in range(self._batches.iterations):
            if number == 0 or self._each:
                try:
                    self._gate.spend(self._cost)
                except BudgetExceeded as refusal:
                    if number == 0:
                        raise
                    self.refusal = refusal
                    return
            yield next(batches)


def paid(config: BandMFExecutionPlanConfig, gate: Gate) -> DPExecutionPlan:
    """The plan of a config, paid from a gate: `paid(config, gate)` in the place of `config.plan`.

    Args:
        config: With an accountant for `ADD_OR_REMOVE_ONE`; JAX Privacy's default is
            `REPLACE_SPECIAL`, which no gate has.
        gate: A filter, an odometer or a budget of a ledger, for neighbours that add or remove one
            record.

    Without a `noise_seed`, every `init` of the noise takes 64 bits from the operating system. JAX
    Privacy takes 31 from NumPy's global generator, and the same noise at every `init`.

    Guarantee:
        With one band every batch is paid for before it is drawn, with several the whole plan before
        its first batch, as often as batches are begun anew. That the plan costs what its event
        says, used as JAX Privacy describes, is JAX Privacy's claim. A `noise_seed` is a secret.

    Raises:
        TypeError: Not a config that states its relation, or not a gate with a guarantee.
        ValueError: Another relation, or no noise. Nothing was spent.
    """
    if not isinstance(config, BandMFExecutionPlanConfig):
        raise TypeError(
            "config must be a BandMFExecutionPlanConfig, which states its neighbouring relation, "
            f"got {type(config).__name__}; of other mechanisms spend dosimeter.Event(dp_event)"
        )
    _require_relation(config.accountant.neighboring_relation, relation_of(gate))
    plan = config.plan
    alone = len(config.strategy) == 1
    steps = plan.dp_event.event  # of each band, as often as it comes
    step = SampledGaussian(steps.sampling_probability, steps.event.noise_multiplier)
    batches = PaidBatches(
        plan.batch_selection_strategy, gate, step if alone else Event(plan.dp_event), each=alone
    )
    noise = plan.noise_addition_transform
    return dataclasses.replace(
        plan,
        batch_selection_strategy=batches,
        noise_addition_transform=_fresh(noise) if config.noise_seed is None else noise,
    )


def _require_relation(theirs: NeighboringRelation, ours: Neighbours) -> None:
    if ours is not Neighbours.ADD_REMOVE_RECORD:
        raise ValueError(
            f"gate must be for neighbours that {Neighbours.ADD_REMOVE_RECORD}, got one for {ours}: "
            "a plan samples records, and has no bound here where one is replaced"
        )
    if theirs is not NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise ValueError(
            f"config must be for ADD_OR_REMOVE_ONE, as the gate is, got {theirs.name}. Make it "
            "with accountant=PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE) and "
            "partition_type=PartitionType.INDEPENDENT."
        )


def _fresh(noise: optax.GradientTransformation) -> optax.GradientTransformation:
    """The same noise from a new key at every beginning."""

    def init(model: Any) -> Any:
        _, correlated = noise.init(model)
        entropy = np.frombuffer(os.urandom(8), np.uint32)
        return jax.random.wrap_key_data(entropy, impl="threefry2x32"), correlated

    return optax.GradientTransformation(init, noise.update)
