# SPDX-License-Identifier: Apache-2.0
"""Plan: what a run will ask for if nothing ends it early, and the choices nobody made for it.

Batch size, horizon and noise follow from the number of records and the budget, both public; how
many records are held at once, from zeros of the shape that all of them have. No record is read.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from dosimeter import arguments
from dosimeter.accounting import Filter, Gate
from dosimeter.accounting.calibrate import least
from dosimeter.decisions import (
    Horizon,
    Policy,
    Rehearsal,
    RootBatch,
    StepSettings,
    costs_of,
    filter_for,
    lasting,
)
from dosimeter.decisions.menus import readings_due, without_menu
from dosimeter.rdp import Cost
from dosimeter.rounding import at_most, exact
from dosimeter.training.assembly import settings_for
from dosimeter.training.loader import Records
from dosimeter.training.signals import Signal

Rule = Callable[[int], int]
"""Makes a batch size of a number of records, or epochs of the steps in one."""

HELD = 2**28
"""How many bytes the records that are held at once may take, as far as can be foreseen."""


def chosen_batch(
    batch_size: int | Rule | None, dataset: Records, records: int | None
) -> int | None:
    """The batch size where one was given, or what a rule makes of the public number of records.

    A DataLoader's own stays None, as does that of something which is no dataset.
    """
    if batch_size is not None and not callable(batch_size):
        return arguments.count("batch_size", batch_size)
    if not hasattr(dataset, "__getitem__"):
        return None
    rule = RootBatch() if batch_size is None else batch_size
    return arguments.count("batch_size", rule(len(dataset) if records is None else records))


def gate_given(
    gate: Gate | tuple[float, float] | None, epsilon: float | None, delta: float | None
) -> Gate | tuple[float, float]:
    """The gate, or (epsilon, delta), in whichever of the two ways it was given."""
    if gate is not None and epsilon is None and delta is None:
        if isinstance(gate, tuple) and len(gate) != 2:
            raise ValueError(f"gate must be one, or (epsilon, delta), got {gate!r}")
        return gate
    if gate is None and epsilon is not None and delta is not None:
        return epsilon, delta
    raise ValueError(
        "epsilon and delta must be given, both, or a gate in their place, got "
        f"gate={gate!r}, epsilon={epsilon!r}, delta={delta!r}"
    )


@dataclass(frozen=True)
class Plan:
    """What a run will ask for, if nothing ends it early."""

    dataset: Records
    batch_size: int
    records: int | None
    policies: Sequence[Policy]
    signal: Signal | None
    epochs: int

    @classmethod
    def of(
        cls,
        dataset: Records,
        batch_size: int,
        records: int | None,
        policies: Sequence[Policy],
        signal: Signal | None,
        epochs: int | Rule | None,
    ) -> Plan:
        """The plan of a run, with a horizon where none was given."""
        settings = settings_for(dataset, 1.0, batch_size, records)
        if epochs is None or callable(epochs):
            epochs = (Horizon() if epochs is None else epochs)(settings.steps_per_epoch)
        most = arguments.count("epochs", epochs)
        return cls(dataset, batch_size, records, policies, signal, most)

    @property
    def size(self) -> int:
        """The public number of records."""
        return self._settings(1.0).records

    @property
    def steps(self) -> int:
        """How many steps all epochs take."""
        return self.epochs * self._settings(1.0).steps_per_epoch

    def priced(self, epsilon: float, delta: float, noise: float | None) -> tuple[float, Filter]:
        """The noise, if need be the least that lasts, and a filter with a menu of it all.

        Raises:
            ValueError: That noise would leave nothing to learn from, or is not enough for one step.
        """
        if noise is not None:
            given, notes = arguments.positive("noise_multiplier", noise), list[str]()
            gate = filter_for(epsilon, delta, lambda: self._costs(given), note=notes.append)
            self._require_step(epsilon, delta, gate, given)
            for note in notes:
                warnings.warn(note, stacklevel=3)
            return given, gate
        return lasting(
            epsilon,
            delta,
            settings=self._settings,
            steps=self.steps,
            menu=self._costs,
            planned=self._planned,
            note=lambda error: warnings.warn(without_menu(error), stacklevel=5),
        )

    def _require_step(self, epsilon: float, delta: float, gate: Filter, noise: float) -> None:
        """Raises if not even one step fits, in words with what would do for all of them."""
        begun = Rehearsal(gate, self._settings(noise))
        for policy in copy.deepcopy(list(self.policies)):  # one may set another noise
            policy.begin(begun)
        noise, cost = begun.noise_multiplier, begun.step_cost()
        if begun.admits(cost):
            return
        more = least(
            lambda noise: Filter(epsilon, delta).admits(self._settings(noise).cost, self.steps)
        )
        wider = least(lambda limit: Filter(limit, delta).admits(cost, self.steps))
        ways = [f"noise_multiplier {exact(more)}"] if more is not None else []
        ways += [f"epsilon {exact(wider)}"] if wider is not None else []
        fit = f"fit from {' or '.join(ways)} on" if ways else "fit into no budget"
        raise ValueError(
            f"noise_multiplier must be enough for one step in epsilon {exact(epsilon)}, got "
            f"{exact(noise)} at sample rate {at_most(begun.sample_rate)}; {self.epochs} epochs "
            f"{fit}, and fit finds the least noise if noise_multiplier is left out"
        )

    def _settings(self, noise: float) -> StepSettings:
        return settings_for(self.dataset, noise, self.batch_size, self.records)

    def _costs(self, noise: float) -> tuple[Cost, ...]:
        reading = None if self.signal is None else self.signal.cost
        # Policies remember where they began.
        return costs_of(self._settings(noise), copy.deepcopy(list(self.policies)), reading)

    def _planned(self, noise: float) -> list[tuple[Cost, int]]:
        reading = None if self.signal is None else self.signal.cost
        planned: list[tuple[Cost, int]] = [(self._settings(noise).cost, self.steps)]
        due = readings_due(self.policies, self.epochs)
        return [(reading, due), *planned] if reading is not None and due else planned


def records_at_once(model: nn.Module, dataset: Records, batch_size: int) -> int | None:
    """How many records to hold at once so that memory suffices; None for all of a batch.

    A record takes what the model keeps of one for its backward pass, and its gradient. It is tried
    on zeros. Only where records are rows of tensors is their shape known without reading one;
    others, and what cannot be tried, are not bounded.
    """
    if not isinstance(dataset, TensorDataset):
        return None
    kept = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    try:
        blank = torch.zeros_like(dataset.tensors[0][:1])
        with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            model(blank)
    except Exception:  # a model may refuse zeros, or one record, for any reason
        return None
    # Weights are kept too, but once for all records.
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    gradient = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    fits = max(1, int(HELD / (max(0, kept - weights) + gradient + 1)))
    return fits if fits < 1.5 * batch_size else None
