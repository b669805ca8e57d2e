# SPDX-License-Identifier: Apache-2.0
"""fit: the whole private training loop in one call.

Only what was released or is public is ever shown: the loss of training batches is neither,
so loss and accuracy come from public data. Give none and they stay empty.
"""

from __future__ import annotations

import math
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.decisions import Epoch, History, Policy, Reading
from dosimeter.errors import BudgetExceeded
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.loader import PrivateLoader, Records
from dosimeter.training.optimizer import PrivateOptimizer
from dosimeter.training.progress import Bar
from dosimeter.training.signals import CorrectCount, MeanLoss, Signal, pair


class Writer(Protocol):
    """What writes scalars, as TensorBoard's SummaryWriter does."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


Callback = Callable[[PrivateEngine, Epoch], None]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def fit(
    model: nn.Module,
    dataset: Records,
    gate: Gate,
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
    started: Callable[[PrivateEngine], None] | None = None,
    callbacks: Iterable[Callback] = (),
    writer: Writer | None = None,
    progress: bool = True,
    name: str = "training",
    seed: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    spends_kept: bool = False,
    **options: Any,
) -> History:
    """Trains a classifier in place until the epochs, the gate or a policy end it.

    Args:
        model: What to train.
        dataset: Private (input, label) pairs.
        gate: What every step and reading is charged to.
        epochs: How many epochs at most.
        noise_multiplier: The noise of the first step; policies may change it.
        batch_size: The expected batch size of the first step; policies may change it.
        max_grad_norm: What the gradient of each record is clipped to.
        optimizer: Makes an optimizer from parameters; SGD at 0.5 by default.
        loss_fn: A loss module with the mean over records; cross entropy by default.
        policy: One or more policies; they need a `signal`.
        signal: What is read for the policies, on the private data; with `public=True` in it,
            on the public data.
        public: Data known to be public, for the loss and accuracy that are shown.
        started: Called with the engine before the first step; its `stop` ends the run.
        callbacks: Called with the engine and the record after each epoch.
        writer: Gets the scalars of each epoch (TensorBoard).
        progress: Whether to show a live line (needs rich).
        name: What the line is called.
        seed: Makes the run repeatable and its noise predictable.
        checkpoint: A file to write after every epoch, and to go on from if it is there.
        spends_kept: Says that the gate outlived the run that wrote the checkpoint and holds
            its spends; otherwise they are charged again.
        **options: Anything else that `PrivateEngine.make_private` takes.
    """
    policies = [policy] if isinstance(policy, Policy) else list(policy)
    _require_signal(policies, signal, public)
    arguments.count("epochs", epochs)
    if getattr(loss_fn, "weight", None) is not None and options.get("loss_reduction") != "sum":
        raise ValueError(
            "loss_fn must not divide by the weights of a batch, for one record would then rescale "
            "the gradients of all others, got class weights. Use reduction='sum' and "
            "loss_reduction='sum'."
        )
    options = {
        "noise_multiplier": noise_multiplier,
        "batch_size": batch_size,
        "max_grad_norm": max_grad_norm,
        **options,
    }
    run = _Run(
        PrivateEngine(gate, seed=seed), policies, signal, private_data=dataset, public_data=public
    )
    run.prepare(model, optimizer, loss_fn, options)
    history = History(records=run.engine.records)
    # Saved before anything leaves the process: what was released must stay charged.
    told = [*run.keeping(history, checkpoint, spends_kept), *callbacks, *writing(writer)]
    if started is not None:
        started(run.engine)
    limit = float(getattr(gate, "limit", math.inf))
    with Bar(name, epochs, limit, show=progress and run.engine.group.rank == 0) as bar:
        _epochs(run, history, epochs, [*told, bar_callback(bar)])
        bar.end()
    history.guarantee = str(run.engine.guarantee())
    return history


@dataclass
class _Run:
    """What stays the same from epoch to epoch."""

    engine: PrivateEngine
    policies: list[Policy]
    signal: Signal | None
    private_data: Records
    public_data: Records | None
    model: nn.Module = field(init=False)
    optimizer: PrivateOptimizer = field(init=False)
    loader: PrivateLoader = field(init=False)
    loss_fn: Callable[..., Any] = field(init=False)
    ruled: str | None = None
    """Why a policy or a refused reading ended the run; unlike someone's wish it is kept."""

    def prepare(
        self,
        model: nn.Module,
        optimizer: MakeOptimizer | None,
        loss_fn: nn.Module | None,
        options: dict[str, Any],
    ) -> None:
        """Makes everything private and lets the policies set how to begin."""
        make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.5))
        plain = make(p for p in model.parameters() if p.requires_grad)
        parts = self.engine.make_private(model, plain, self.private_data, **options)
        self.model, self.optimizer, self.loader = parts
        self.loss_fn = self.engine.private_loss(loss_fn or nn.CrossEntropyLoss())
        for policy in self.policies:
            policy.begin(self.engine)

    def keeping(
        self, history: History, path: str | os.PathLike[str] | None, spends_kept: bool
    ) -> list[Callback]:
        """Goes on from a checkpoint if there is one, and gives what writes the next ones."""
        if path is None:
            return []
        self.resume(history, pathlib.Path(path), spends_kept=spends_kept)
        return [self.saving(history, pathlib.Path(path))]

    def saving(self, history: History, path: pathlib.Path) -> Callback:
        """Writes a checkpoint after each epoch, whole or not at all."""

        def save(engine: PrivateEngine, _: Epoch) -> None:
            if engine.group.rank != 0:
                return
            state = {
                "engine": engine.state_dict(),
                "policies": [policy.state() for policy in self.policies],
                "history": history.state(),
                "ruled": self.ruled,
            }
            part = path.with_name(path.name + ".part")
            torch.save(state, part)
            part.replace(path)

        return save

    def resume(self, history: History, path: pathlib.Path, *, spends_kept: bool) -> None:
        """Goes on from a checkpoint, if there is one."""
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        self.engine.load_state_dict(state["engine"], spends_kept=spends_kept)
        for policy, remembered in zip(self.policies, state["policies"], strict=True):
            policy.restore(remembered)
        history.epochs.extend(History.from_state(state["history"]).epochs)
        self.ruled = state["ruled"]
        if self.ruled is not None:
            self.engine.stop(self.ruled)


def _epochs(run: _Run, history: History, epochs: int, callbacks: list[Callback]) -> None:
    engine = run.engine
    for number in range(len(history) + 1, epochs + 1):
        start, steps = time.perf_counter(), engine.steps
        noise, batch = engine.noise_multiplier, engine.batch_size
        _train(run)
        if engine.steps == steps:
            break
        reading = _read(run, number)
        accuracy, loss = _measure(run)
        record = Epoch(
            epoch=number,
            steps=engine.steps - steps,
            epsilon=engine.epsilon,
            noise_multiplier=noise,
            batch_size=batch,
            accuracy=accuracy,
            loss=loss,
            signal=reading,
            seconds=time.perf_counter() - start,
        )
        history.epochs.append(record)
        for callback in callbacks:
            callback(engine, record)
        if engine.stopped is not None or engine.exhausted:
            break
    else:
        history.ended = f"all {epochs} epochs were done"
        return
    history.ended = engine.stopped or "the gate refused the next step"


def _train(run: _Run) -> None:
    for batch in run.loader:
        x, y = pair(batch)
        run.optimizer.zero_grad()
        run.loss_fn(run.model(x), y).backward()
        run.optimizer.step()


def _read(run: _Run, epoch: int) -> Reading | None:
    """The reading that is due, if any, after the policies have seen it."""
    due = [policy for policy in run.policies if policy.due(epoch)]
    if not due or run.signal is None:
        return None
    data = run.public_data if run.signal.public else run.private_data
    assert data is not None
    try:
        reading = run.signal.read(run.model, data, gate=run.engine)
    except BudgetExceeded:
        run.ruled = "the gate refused the next reading"
        run.engine.stop(run.ruled)
        return None
    wished = run.engine.stopped
    for policy in due:
        policy.update(run.engine, reading)
    if run.engine.stopped != wished:
        run.ruled = run.engine.stopped
    return reading


def _measure(run: _Run) -> tuple[float | None, float | None]:
    """Accuracy and loss on public data."""
    if run.public_data is None:
        return None, None
    right = CorrectCount(public=True).read(run.model, run.public_data)
    loss = MeanLoss(public=True, bound=1e3).read(run.model, run.public_data)
    return right.quality, loss.value


def _require_signal(policies: list[Policy], signal: Signal | None, public: Records | None) -> None:
    if policies and signal is None:
        raise ValueError(
            "signal must be given for policies to read, got None. Pass signal=CorrectCount()."
        )
    if signal is not None and signal.public and public is None:
        raise ValueError("public must be given for a signal on public data, got None")


def bar_callback(bar: Bar) -> Callback:
    """Shows every epoch on a bar."""
    return lambda _, record: bar.show(record)


def writing(writer: Writer | None) -> list[Callback]:
    """Writes every epoch to a writer, if there is one."""
    if writer is None:
        return []

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

    return [write]
