# SPDX-License-Identifier: Apache-2.0
"""fit: the whole private training loop in one call; `Trainer` has the pieces."""

from __future__ import annotations

import math
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from dosimeter.accounting import Gate
from dosimeter.decisions import Epoch, History, Policy, costs_of, filter_for
from dosimeter.decisions.menus import patiently
from dosimeter.decisions.steering import listed
from dosimeter.training.assembly import settings_for
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.loader import Records
from dosimeter.training.progress import Bar
from dosimeter.training.signals import Signal
from dosimeter.training.trainer import Trainer, require_signal


class Writer(Protocol):
    """What writes scalars, as TensorBoard's SummaryWriter does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


Callback = Callable[[PrivateEngine, Epoch], None]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def fit(
    model: nn.Module,
    dataset: Records,
    gate: Gate | tuple[float, float],
    *,
    epochs: int,
    noise_multiplier: float,
    batch_size: int,
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
    **options: Any,
) -> History:
    """Trains a classifier in place until the epochs, the gate or a policy end it.

    Args:
        model: What to train.
        dataset: Private (input, label) pairs.
        gate: What every step and reading is charged to; or (epsilon, delta), for a filter that
            is priced for what the policies and the signal can ask for.
        epochs: How many epochs at most.
        noise_multiplier: The noise of the first step; policies may change it.
        batch_size: The expected batch size of the first step; policies may change it.
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
        **options: Anything else that `PrivateEngine.make_private` takes.
    """
    require_signal(policy, signal, public)
    _require_loss(loss_fn, options)
    if isinstance(gate, tuple):
        settings = settings_for(dataset, noise_multiplier, batch_size, options.get("records"))
        reading = None if signal is None else signal.cost
        with patiently(_say if progress else lambda _: None):
            gate = filter_for(
                *gate, lambda: costs_of(settings, listed(policy), reading), note=warnings.warn
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
        **options,
    )
    trainer = Trainer(engine, policy=policy, signal=signal, public=public, loss_fn=loss_fn)
    path = None if checkpoint is None else pathlib.Path(checkpoint)
    if path is not None:
        trainer.resume(path)
    return shown(trainer, epochs, path, callbacks=callbacks, progress=progress, name=name)


def shown(
    trainer: Trainer,
    epochs: int,
    checkpoint: pathlib.Path | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    name: str = "training",
) -> History:
    """Trains to the end with a live line, saving after each epoch before anyone hears of it.

    Args:
        trainer: What trains.
        epochs: How many epochs at most.
        checkpoint: Where to save.
        callbacks: Called with the engine and the record after each epoch.
        progress: Whether to show the line (needs rich).
        name: What the line is called.
    """
    engine, told = trainer.engine, list(callbacks)

    def save(_: Epoch) -> None:
        # Before anything leaves the process: what was released must stay charged.
        if checkpoint is not None:
            trainer.save(checkpoint)

    limit = float(getattr(engine.gate, "limit", math.inf))
    with Bar(name, epochs, limit, show=progress and engine.group.rank == 0) as bar:
        for record in trainer.epochs(epochs, save):
            for callback in told:
                callback(engine, record)
            bar.show(record)
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
