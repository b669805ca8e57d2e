# SPDX-License-Identifier: Apache-2.0
"""fit: the whole private training loop in one call; `Trainer` has the pieces."""

from __future__ import annotations

import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from torch import nn
from torch.utils.data import DataLoader

from dosimeter.accounting import Gate
from dosimeter.decisions import Epoch, History, Policy, RateRule
from dosimeter.decisions.menus import patiently
from dosimeter.decisions.steering import listed
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.following import Following
from dosimeter.training.given import given
from dosimeter.training.loader import Records
from dosimeter.training.models import require_trainable
from dosimeter.training.planning import Plan, Rule, chosen_batch, gate_given, records_at_once
from dosimeter.training.postprocessing import AveragedIterate
from dosimeter.training.progress import Bar
from dosimeter.training.resuming import begun, require_same, told_in
from dosimeter.training.signals import Signal
from dosimeter.training.stepping import MakeOptimizer, clipping_for, optimizer_of, stepping, told_of
from dosimeter.training.trainer import Trainer, require_signal
from dosimeter.watching import watched


class Writer(Protocol):
    """What writes scalars, as TensorBoard's SummaryWriter does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


Callback = Callable[[PrivateEngine, Epoch], None]


def fit(
    model: nn.Module,
    dataset: Records | DataLoader[Any],
    gate: Gate | tuple[float, float] | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    epochs: int | Rule | None = None,
    batch_size: int | Rule | None = None,
    noise_multiplier: float | None = None,
    max_grad_norm: float | None = None,
    learning_rate: float | RateRule | Literal["auto"] = "auto",
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
    watch: str | None = None,
    **options: Any,
) -> History:
    """Trains a classifier in place until the epochs, the gate or a policy end it.

    Epsilon and delta are all that it needs: `fit(model, dataset, epsilon=3, delta=1e-6)`. Batch
    size, horizon, noise, clipping and learning rate are chosen without another look at the data,
    and the model is left with the average of its last iterates.

    Args:
        model: What to train.
        dataset: Private (input, label) pairs, or a DataLoader as `make_private` takes it.
        gate: What every step and reading is charged to; or (epsilon, delta).
        epsilon: The budget, in place of a gate: a filter is made of it, priced for what the
            policies and the signal can ask for.
        delta: The budget.
        epochs: How many epochs at most, or a rule like `Horizon`, the default.
        batch_size: The expected batch size of the first step, which policies may change; by
            default a DataLoader's own, or what a rule like `RootBatch` makes of the records.
        noise_multiplier: The noise of the first step; policies may change it. Without it, the
            least with which (epsilon, delta) lasts for the epochs.
        max_grad_norm: What the gradient of each record is clipped to. Without it, all are given
            the same length, which needs no norm.
        learning_rate: That of SGD; or the rule that sets it, by default `AutoRate`, unless an
            optimizer is given.
        optimizer: Makes an optimizer from parameters, in place of SGD.
        loss_fn: A loss module with the mean over records; cross entropy by default.
        policy: As `Trainer` has it.
        signal: As `Trainer` has it.
        public: As `Trainer` has it.
        callbacks: Called with the engine and the record after each epoch.
        progress: Whether to show a live line (needs rich).
        name: What the line is called.
        seed: Makes the run repeatable and its noise predictable.
        checkpoint: A file to write after every epoch, and to go on from if it is there, with the
            same arguments; what was spent until then is charged again.
        watch: The URL of a budget service, whose page shows the run and can stop it at the next
            step.
        **options: Anything else that `PrivateEngine.make_private` takes.

    Raises:
        ValueError: The budget is too small for anything useful, or for one step; it says what it
            would take.
        BudgetExceeded: The gate that was given refused the very first step.
    """
    require_trainable(model)
    require_signal(policy, signal, public)
    _require_loss(loss_fn, options)
    gate = gate_given(gate, epsilon, delta)
    make, rule = stepping(learning_rate, optimizer)
    records = options.get("records")
    batch = chosen_batch(batch_size, dataset, records)  # type: ignore[arg-type]
    dataset, batch, collate = given(dataset, batch, options.pop("collate_fn", None))
    plan = Plan.of(dataset, batch, records, listed(policy), signal, epochs)
    path = None if checkpoint is None else pathlib.Path(checkpoint)
    saved, told = told_in(path), begun(gate, plan.policies, plan.size, batch)
    if noise_multiplier is None:
        told["epochs"] = plan.epochs  # from which the noise follows
    require_same(path, saved, told)
    if isinstance(gate, tuple):
        if noise_multiplier is None and "epochs" in saved:
            noise_multiplier = saved["noise_multiplier"]
        with patiently(_say if progress else lambda _: None):
            noise_multiplier, gate = plan.priced(*gate, noise_multiplier)
    if noise_multiplier is None:
        raise ValueError(
            "noise_multiplier must be given with a gate of your own, got none; fit finds it for "
            "gate=(epsilon, delta), and dosimeter.noise_for for a filter that you make"
        )
    engine = PrivateEngine(gate, seed=seed)
    if batch_size is None or callable(batch_size):
        options.setdefault("physical_batch_size", records_at_once(model, dataset, batch))
    made = optimizer_of(model, make)
    how = clipping_for(max_grad_norm, options)
    engine.make_private(
        model, made, dataset,
        noise_multiplier=noise_multiplier, batch_size=batch, collate_fn=collate, **how,
    )  # fmt: skip
    told |= {"noise_multiplier": float(noise_multiplier), **told_of(made, rule, how)}
    trainer = Trainer(
        engine, policy=policy, signal=signal, public=public, loss_fn=loss_fn, told=told,
        **followers(engine, plan.steps, rule),
    )  # fmt: skip
    if path is not None:
        trainer.resume(path)
        if progress and len(trainer.history) and engine.group.rank == 0:
            done = f"{len(trainer.history)} of {plan.epochs} epochs"
            _say(f"note: going on from {path}, which holds {done}")
    return _finished(
        trainer, plan.epochs, path, callbacks=callbacks, progress=progress, name=name, watch=watch
    )


def _finished(
    trainer: Trainer, epochs: int, path: pathlib.Path | None, *, progress: bool, **how: Any
) -> History:
    """Trains to the end, and says what should be known of it."""
    engine = trainer.engine
    try:
        history = shown(trainer, epochs, path, progress=progress, **how)
    except KeyboardInterrupt as error:
        if path is not None and len(trainer.history):
            error.add_note(
                f"{path} holds the run up to epoch {len(trainer.history)}, and the same call goes "
                "on from there. The model at hand has taken steps beyond it: do not use it."
            )
        raise
    if engine.refusal is not None and not len(history):
        raise engine.refusal  # a model that took no step is no result
    if progress and engine.group.rank == 0 and trainer.trouble is not None:
        _say(f"note: {trainer.trouble}")
    return history


def followers(engine: PrivateEngine, steps: int, rule: RateRule | None) -> dict[str, Any]:
    """What `Trainer` lets follow the steps: an average over their last twelfth, and the rule."""
    decay = max(0.0, 1 - 12 / steps)
    return {
        "average": AveragedIterate(engine, engine.made[0], decay=decay),
        "following": Following(engine, steps=steps, rate=rule),
    }


def shown(
    trainer: Trainer,
    epochs: int,
    checkpoint: pathlib.Path | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    name: str = "training",
    watch: str | None = None,
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
