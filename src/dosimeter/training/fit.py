# SPDX-License-Identifier: Apache-2.0
"""fit: the whole private training loop in one call; `Trainer` has the pieces."""

from __future__ import annotations

import copy
import math
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import DataLoader

from dosimeter.accounting import Filter, Gate
from dosimeter.accounting.calibrate import calibrated
from dosimeter.decisions import Epoch, History, Policy, StepSettings, costs_of, filter_for
from dosimeter.decisions.menus import patiently, readings_due, without_menu
from dosimeter.decisions.steering import listed
from dosimeter.rdp import Cost
from dosimeter.training.assembly import settings_for
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.given import given
from dosimeter.training.loader import Records
from dosimeter.training.progress import Bar
from dosimeter.training.signals import Signal
from dosimeter.training.trainer import Trainer, require_signal
from dosimeter.watching import watched


class Writer(Protocol):
    """What writes scalars, as TensorBoard's SummaryWriter does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


Callback = Callable[[PrivateEngine, Epoch], None]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def fit(
    model: nn.Module,
    dataset: Records | DataLoader[Any],
    gate: Gate | tuple[float, float],
    *,
    epochs: int,
    batch_size: int | None = None,
    noise_multiplier: float | None = None,
    max_grad_norm: float = 1.0,
    optimizer: MakeOptimizer | None = None,
    loss_fn: nn.Module | None = None,
    policy: Policy | Sequence[Policy] = (),
    signal: Signal | None = None,
    public: Records | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    name: str = "training",
    seed: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    watch: str | os.PathLike[str] | None = None,
    **options: Any,
) -> History:
    """Trains a classifier in place until the epochs, the gate or a policy end it.

    Args:
        model: What to train.
        dataset: Private (input, label) pairs, or a DataLoader as `make_private` takes it.
        gate: What every step and reading is charged to; or (epsilon, delta), for a filter that
            is priced for what the policies and the signal can ask for.
        epochs: How many epochs at most.
        batch_size: The expected batch size of the first step, by default a DataLoader's own;
            policies may change it.
        noise_multiplier: The noise of the first step; policies may change it. Without it, the
            least with which (epsilon, delta) lasts for the epochs.
        max_grad_norm: What the gradient of each record is clipped to.
        optimizer: Makes an optimizer from parameters; SGD at 0.5 by default.
        loss_fn: A loss module with the mean over records; cross entropy by default.
        policy: As `Trainer` has it.
        signal: As `Trainer` has it.
        public: As `Trainer` has it.
        callbacks: Called with the engine and the record after each epoch.
        progress: Whether to show a live line (needs rich).
        name: What the line is called.
        seed: Makes the run repeatable and its noise predictable.
        checkpoint: A file to write after every epoch, and to go on from if it is there; what
            was spent until then is charged again.
        watch: The URL of a budget service, or a folder for `dosimeter watch`, whose page shows the
            run and can stop it at the next step.
        **options: Anything else that `PrivateEngine.make_private` takes.
    """
    require_signal(policy, signal, public)
    _require_loss(loss_fn, options)
    dataset, batch_size, collate = given(dataset, batch_size, options.pop("collate_fn", None))
    if isinstance(gate, tuple):
        run = _Plan(dataset, batch_size, options.get("records"), listed(policy), signal, epochs)
        with patiently(_say if progress else lambda _: None):
            noise_multiplier, gate = run.priced(*gate, noise_multiplier)
    if noise_multiplier is None:
        raise ValueError(
            "noise_multiplier must be given with a gate of your own, got none; fit finds it for "
            "gate=(epsilon, delta), and dosimeter.noise_for for a filter that you make"
        )
    engine = PrivateEngine(gate, seed=seed)
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    engine.make_private(
        model,
        make(p for p in model.parameters() if p.requires_grad),
        dataset,
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
        max_grad_norm=max_grad_norm,
        collate_fn=collate,
        **options,
    )
    trainer = Trainer(engine, policy=policy, signal=signal, public=public, loss_fn=loss_fn)
    path = None if checkpoint is None else pathlib.Path(checkpoint)
    if path is not None:
        trainer.resume(path)
    return shown(
        trainer, epochs, path, callbacks=callbacks, progress=progress, name=name, watch=watch
    )


@dataclass(frozen=True)
class _Plan:
    """What a run will ask for, if nothing ends it early."""

    dataset: Records
    batch_size: int
    records: int | None
    policies: Sequence[Policy]
    signal: Signal | None
    epochs: int

    def priced(self, epsilon: float, delta: float, noise: float | None) -> tuple[float, Filter]:
        """The noise, if need be the least that lasts, and a filter with a menu of it all."""
        if noise is None:
            return calibrated(
                epsilon,
                delta,
                menu=self._costs,
                planned=self._planned,
                note=lambda error: warnings.warn(without_menu(error), stacklevel=4),
            )
        return noise, filter_for(epsilon, delta, lambda: self._costs(noise), note=warnings.warn)

    def _settings(self, noise: float) -> StepSettings:
        return settings_for(self.dataset, noise, self.batch_size, self.records)

    def _costs(self, noise: float) -> tuple[Cost, ...]:
        reading = None if self.signal is None else self.signal.cost
        # Policies remember where they began.
        return costs_of(self._settings(noise), copy.deepcopy(list(self.policies)), reading)

    def _planned(self, noise: float) -> list[tuple[Cost, int]]:
        settings = self._settings(noise)
        reading = None if self.signal is None else self.signal.cost
        planned: list[tuple[Cost, int]] = [(settings.cost, self.epochs * settings.steps_per_epoch)]
        due = readings_due(self.policies, self.epochs)
        return [(reading, due), *planned] if reading is not None and due else planned


def shown(
    trainer: Trainer,
    epochs: int,
    checkpoint: pathlib.Path | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    name: str = "training",
    watch: str | os.PathLike[str] | None = None,
) -> History:
    """Trains to the end with a live line, saving after each epoch before anyone hears of it.

    Args:
        trainer: What trains.
        epochs: How many epochs at most.
        checkpoint: Where to save.
        callbacks: Called with the engine and the record after each epoch.
        progress: Whether to show the line (needs rich).
        name: What the line is called.
        watch: As `fit` has it.
    """
    engine, told = trainer.engine, list(callbacks)

    def save(_: Epoch) -> None:
        # Before anything leaves the process: what was released must stay charged.
        if checkpoint is not None:
            trainer.save(checkpoint)

    limit = float(getattr(engine.gate, "limit", math.inf))
    first = engine.group.rank == 0
    page = watched(
        watch if first else None,
        engine,
        name=name,
        epochs=epochs,
        gate=engine.gate,
        ended=lambda: trainer.history.ended,
    )
    with Bar(name, epochs, limit, show=progress and first) as bar, page as tell:
        for record in trainer.epochs(epochs, save):
            for callback in told:
                callback(engine, record)
            bar.show(record)
            tell(record)
        bar.end()
    return trainer.history


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _require_loss(loss_fn: nn.Module | None, options: Mapping[str, Any]) -> None:
    if getattr(loss_fn, "weight", None) is not None and options.get("loss_reduction") != "sum":
        raise ValueError(
            "loss_fn must not divide by the weights of a batch, for one record would then rescale "
            "the gradients of all others, got class weights. Use reduction='sum' and "
            "loss_reduction='sum'."
        )


def scalars_to(writer: Writer) -> Callback:
    """A callback that writes every epoch to TensorBoard's SummaryWriter, or one like it."""

    def write(engine: PrivateEngine, record: Epoch) -> None:
        scalars = {
            "privacy/epsilon": record.epsilon,
            "privacy/noise_multiplier": record.noise_multiplier,
            "privacy/batch_size": float(record.batch_size),
            "public/accuracy": record.accuracy,
            "public/loss": record.loss,
            "signal": None if record.signal is None else record.signal.value,
        }
        for tag, value in scalars.items():
            if value is not None:
                writer.add_scalar(tag, value, engine.steps)

    return write
