# SPDX-License-Identifier: Apache-2.0
"""Workshop: where a trial is trained and scored, for whatever search asks.

Scores are read on records that no trial trains on, set aside by their own content; steps and
scores are charged to one gate though no record is in both, which is more than they cost.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch.utils.data import TensorDataset

from dosimeter.accounting import Gate
from dosimeter.data import Labelled
from dosimeter.decisions import StepSettings
from dosimeter.errors import DosimeterError
from dosimeter.rdp import SampledGaussian
from dosimeter.runs.config import Config, ModelTable
from dosimeter.runs.datasets import Records, load, set_aside
from dosimeter.runs.networks import Network, build
from dosimeter.runs.run import made_private
from dosimeter.search.allowance import Prepaid
from dosimeter.search.plan import Plan
from dosimeter.search.table import Search, Value, batch_of, epochs_of
from dosimeter.training import (
    AveragedIterate,
    CorrectCount,
    Following,
    PrivateEngine,
    Trainer,
)

_HOLDOUT = 0.2


@dataclass(frozen=True)
class Parts:
    """The records that trials train on, and those that they are scored on."""

    records: Records
    scored: TensorDataset


def parts(search: Search) -> Parts:
    """The records of a config, those to be scored on set aside.

    Raises:
        ValueError: They cannot be read, or nothing is left on one side.
    """
    records = load(search.config.data)
    if search.table.public:
        assert records.public is not None
        return Parts(records, records.public)
    x, y = records.private.tensors
    kept, aside = set_aside(
        Labelled(x.numpy(), y.numpy()),
        search.table.holdout or _HOLDOUT,
        key="search.holdout",
        person=b"search.holdout",
    )
    return Parts(dataclasses.replace(records, private=_tensors(kept)), _tensors(aside))


def _tensors(records: Labelled) -> TensorDataset:
    return TensorDataset(torch.from_numpy(records.x), torch.from_numpy(records.y))


@dataclass(frozen=True)
class Begun:
    """A trial: what is trained, what trains it, and the average of its last iterates."""

    network: Network
    trainer: Trainer
    average: AveragedIterate

    @contextmanager
    def averaged(self) -> Iterator[Network]:
        """Within it the network is as it is scored and published."""
        # A checkpoint of an earlier release has no average.
        with self.average.applied() if self.average.steps else nullcontext():
            yield self.network

    def require_finite(self) -> None:
        """Looks at what is released, which costs nothing.

        Raises:
            Lost: The parameters, or their average, are no longer finite.
        """
        engine = self.trainer.engine
        if engine.stopped is not None:  # by what sets the learning rate
            raise Lost(engine.stopped)
        finite = _finite(self.network)
        with self.averaged() as averaged:
            finite = finite and _finite(averaged)
        if not finite:
            raise Lost(
                f"the parameters were not finite after step {engine.steps}: lower the learning rate"
            )


def _finite(network: Network) -> bool:
    return all(bool(torch.isfinite(values).all()) for values in network.trained.parameters())


class Lost(Exception):
    """A trial came to nothing, in words; the search goes on without it."""


@contextmanager
def blamed() -> Iterator[None]:
    """Takes what a model raises for the trial's fault, but nothing of a gate, a file or a server.

    Raises:
        Lost: The model raised; an interruption is nobody's fault and passes.
    """
    try:
        yield
    except (DosimeterError, OSError, Lost):
        raise
    except Exception as error:  # whatever someone's own layers may raise
        raise Lost(f"it raised {type(error).__name__}: {error}") from error


class Workshop:
    """Trains and scores trials of one search; each begins with weights of its own."""

    def __init__(self, search: Search, parts: Parts, plan: Plan) -> None:
        self._search, self.parts, self._plan = search, parts, plan
        self._prepared: dict[tuple[ModelTable, int], TensorDataset] = {}

    def settled(self, settings: Mapping[str, Value]) -> Config:
        """The run of some settings, tried up to where it would be charged.

        Raises:
            ValueError: There is no such run; nothing was charged.
        """
        config = self._search.with_settings(settings)
        batch = batch_of(config.training)
        if not batch <= self._records:
            raise ValueError(f"training.batch_size must be at most {self._records}, got {batch}")
        try:
            self.begun(config, Prepaid({}))
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise ValueError(f"it cannot be trained privately: {error}") from error
        return config

    def cost(self, config: Config) -> SampledGaussian:
        """What a step of a run costs."""
        noise = self._plan.noise_of(config)
        return StepSettings(noise, batch_of(config.training), self._records).cost

    def begun(self, config: Config, gate: Gate, last: int = 1) -> Begun:
        """A trial with fresh weights under a gate.

        Args:
            config: What is trained.
            gate: What is charged.
            last: After how many steps it is scored. As `fit` has it, the average is over about the
                last twelfth of them, but the learning rate is that of the whole run.
        """
        network = build(config.model, self.parts.records)
        engine = PrivateEngine(gate)
        data = self._data(config, network, self.parts.records.private)
        noise, batch = self._plan.noise_of(config), batch_of(config.training)
        rule = made_private(engine, config, network, data, noise=noise, batch_size=batch)
        steps = epochs_of(config.training) * engine.steps_per_epoch
        average = AveragedIterate(engine, network.trained, decay=max(0.0, 1 - 12 / last))
        following = None if rule is None else Following(engine, steps=steps, rate=rule)
        public = self.parts.records.public
        shown = None if public is None else self._data(config, network, public)
        trainer = Trainer(engine, public=shown, average=average, following=following)
        return Begun(network, trainer, average)

    def score(self, config: Config, network: Network, gate: Gate) -> float:
        """The share of the scored records that a network gets right, as released.

        Raises:
            BudgetExceeded: The gate refused the score; nothing was read.
            Lost: The network raised.
        """
        noise = self._plan.score_noise
        signal = (
            CorrectCount(public=True) if noise is None else CorrectCount(noise_multiplier=noise)
        )
        data = self._data(config, network, self.parts.scored)
        with blamed():
            return signal.read(network.trained, data, gate=gate).value / len(data)

    @property
    def _records(self) -> int:
        return len(self.parts.records.private)

    def _data(self, config: Config, network: Network, data: TensorDataset) -> TensorDataset:
        """Data as the trained part takes them; frozen features are computed once."""
        if network.frozen is None:
            return data
        key = (config.model, id(data))
        if key not in self._prepared:
            self._prepared[key] = network.prepared(data)
        return self._prepared[key]


def trained(trial: Begun, steps: int, checkpoint: pathlib.Path | None = None) -> int:
    """Trains until so many steps were taken in all or the gate refuses; how many they were.

    Args:
        trial: What trains, from where it stands.
        steps: How many steps the gate has room for, with those that are behind.
        checkpoint: Where to save after every epoch.

    Raises:
        Lost: The model raised, or its parameters are no longer finite.
    """
    trainer, engine = trial.trainer, trial.trainer.engine
    while engine.steps < steps:
        with blamed():
            record = trainer.epoch()
        trial.require_finite()
        if record is not None and checkpoint is not None:
            trainer.save(checkpoint)
        if record is None or engine.exhausted:
            break
    return engine.steps
