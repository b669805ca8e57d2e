# SPDX-License-Identifier: Apache-2.0
"""train: a run as its config describes it, from the data to the results in its folder.

Nothing leaves the process before the spends that paid for it are kept: a ledger keeps each
as it is made, and for a filter or an odometer of the run's own the checkpoint does, which is
written before an epoch is shown. A process that is killed in the middle of an epoch has shown
nothing of it.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.utils.data import TensorDataset

from dosimeter import __version__
from dosimeter.rounding import exact
from dosimeter.runs import words
from dosimeter.runs.budgets import Needs, policies
from dosimeter.runs.config import Config, SignalTable, TrainingTable
from dosimeter.runs.datasets import Records, load
from dosimeter.runs.folder import RunFolder, Saved
from dosimeter.runs.networks import Network, build
from dosimeter.runs.purse import Purse, opened
from dosimeter.training import AutoRate, CorrectCount, History, MeanLoss, PrivateEngine, Trainer
from dosimeter.training.fit import followers, shown
from dosimeter.training.planning import records_at_once
from dosimeter.training.stepping import clipping_for

INTERRUPTED = "it was interrupted"
CLOSED = "the budget was closed"

_SEED_WARNING = (
    "warning: training.seed makes the noise predictable: whoever knows the seed can take it off. "
    "Leave it out for anything private."
)


def train(
    config: Config,
    text: str,
    *,
    resume: bool = False,
    progress: bool = True,
    watch: str | None = None,
    note: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains as the config says, or goes on, and writes the results.

    Args:
        config: What to do.
        text: The file it was read from, kept in the folder.
        resume: Whether to go on with the run in the folder.
        progress: Whether to show a live line.
        watch: The URL of a budget service to report to.
        note: Told what someone should know beforehand.

    Returns:
        What run.json holds; "finished" is false after an interruption.
    """
    folder = RunFolder(config.output.folder)
    folder.require(text, resume=resume)
    ended = folder.finished() if resume else None
    if ended is not None:
        note(f"{folder.path} is finished; nothing is left to resume")
        return ended
    if config.training.seed is not None:
        note(_SEED_WARNING)
        torch.manual_seed(config.training.seed)
    records = load(config.data)
    network = build(config.model, records)
    saved = folder.saved() if resume else None
    needs = Needs(
        config,
        len(records.private),
        begun=None if saved is None else saved.noise,
        menu=saved is None or saved.menu,
        note=note,
    )
    with opened(config, needs.gate) as purse:
        _require_affordable(needs, purse, saved, note)
        run = _Run(config, folder, records, network, needs, purse)
        with folder.held(text, resume=resume), _interruptible(note) as started:
            history = run.fit(started, progress=progress, watch=watch)
            return _write_results(config, folder, records, network, purse, history)


def _require_affordable(
    needs: Needs, purse: Purse, saved: Saved | None, note: Callable[[str], None]
) -> None:
    """Refuses a budget that pays for nothing, and one that has forgotten what was spent."""
    if purse.delta * needs.records >= 1:
        note(
            f"warning: delta {exact(purse.delta)} promises little to {needs.records} records; "
            "take one well below one over their number"
        )
    if saved is None:
        epochs = needs.lasts(purse)
        for line in needs.notes:
            note(line)
        if needs.chosen:
            note(
                f"note: batch_size {needs.batch_size} and {needs.epochs} epochs follow from "
                f"{needs.records} records, as far as training leaves them out"
            )
        if needs.given_noise is None:
            note(_chosen(needs))
        elif epochs < needs.epochs:
            note(
                f"note: at noise_multiplier {exact(needs.noise)} the budget lasts for about "
                f"{math.floor(10 * epochs) / 10:.1f} of {needs.epochs} epochs"
            )
    else:
        purse.require_spent_from(saved.gate, saved.history.epsilon)


def _chosen(needs: Needs) -> str:
    """What someone who left the noise out should know of it; how well it trains, data decide."""
    step = needs.noise / needs.batch_size
    return (
        f"note: noise_multiplier {exact(needs.noise)} lets the budget last for {needs.epochs} "
        f"epochs; in units of max_grad_norm, the mean gradient of a step has noise {step:.2g} in "
        f"each coordinate, that of all {needs.steps} steps {step / math.sqrt(needs.steps):.2g}"
    )


@dataclass(frozen=True)
class _Run:
    """All that a run needs, checked and ready."""

    config: Config
    folder: RunFolder
    records: Records
    network: Network
    needs: Needs
    purse: Purse

    def fit(
        self, started: Callable[[PrivateEngine], None], *, progress: bool, watch: str | None
    ) -> History:
        """Trains, from the checkpoint on if there is one."""
        training, public, needs = self.config.training, self.records.public, self.needs
        engine = PrivateEngine(self.purse.gate, seed=training.seed)
        data = self.network.prepared(self.records.private)
        rule = _made_private(
            engine, self.config, self.network, data, noise=needs.noise, batch_size=needs.batch_size
        )
        trainer = Trainer(
            engine,
            policy=policies(self.config),
            signal=_signal(self.config),
            public=None if public is None else self.network.prepared(public),
            **followers(engine, needs.steps, rule),
        )
        path, kept = self.folder.checkpoint, self.purse.kind == "ledger"
        trainer.resume(path, spends_kept=kept)
        started(engine)
        name = self.folder.path.name
        history = shown(trainer, needs.epochs, path, progress=progress, name=name, watch=watch)
        if self.purse.found_closed:
            history.ended = CLOSED
        return history


def _made_private(
    engine: PrivateEngine,
    config: Config,
    network: Network,
    data: TensorDataset,
    *,
    noise: float,
    batch_size: int,
) -> AutoRate | None:
    """Makes an engine train a network as [training] says, on data as it takes them.

    Returns:
        What has to set the learning rate; None where it was given.
    """
    training, model, held = config.training, network.trained, config.training.physical_batch_size
    if held is None and training.batch_size is None:
        held = records_at_once(model, data, batch_size)
    rule = _rule(training)
    engine.make_private(
        model,
        torch.optim.SGD(
            [p for p in model.parameters() if p.requires_grad],
            lr=training.learning_rate or 1.0,
            momentum=(training.momentum or 0.0) if rule is None else rule.momentum,
        ),
        data,
        noise_multiplier=noise,
        batch_size=batch_size,
        **clipping_for(training.max_grad_norm, {"physical_batch_size": held}),
    )
    return rule


def _write_results(
    config: Config,
    folder: RunFolder,
    records: Records,
    network: Network,
    purse: Purse,
    history: History,
) -> dict[str, Any]:
    """Writes the results: the weights after the guarantee that they need, run.json last.

    run.json says that the others are there.
    """
    public = 0 if records.public is None else len(records.public)
    folder.write("guarantee.txt", words.page(config, purse, history, public=public))
    folder.write_history(history)
    folder.write_weights(network.whole)
    result = {
        "name": folder.path.name,
        "limit": purse.limit,
        "delta": purse.delta,
        "kind": purse.kind,
        "guarantee": history.guarantee,
        "promise": None if history.promise is None else history.promise.plain(),
        "in_words": purse.in_words,
        "records": history.records,
        "model": config.model.kind,
        "data": config.data.path or config.data.kind,
        "classes": list(records.classes),
        "columns": list(records.columns),
        "input": list(records.unscaled),
        "seed": config.training.seed,
        "dosimeter": __version__,
        "folder": str(folder.path),
        "epsilon": purse.gate.epsilon,
        "accuracy": history.accuracy,
        "epochs": len(history),
        "steps": history.steps,
        "ended": history.ended,
        "finished": history.ended != INTERRUPTED,
    }
    folder.write("run.json", json.dumps(result, indent=1) + "\n")
    return result


def _rule(training: TrainingTable) -> AutoRate | None:
    """What sets the learning rate where none is given."""
    if training.learning_rate is not None:
        return None
    return AutoRate() if training.momentum is None else AutoRate(momentum=training.momentum)


def _signal(config: Config) -> CorrectCount | MeanLoss | None:
    if config.policy is None and config.stop is None:
        return None
    asked = config.signal or SignalTable()
    shared: dict[str, Any] = {"noise_multiplier": asked.noise_multiplier, "public": asked.public}
    if asked.kind == "correct_count":
        return CorrectCount(**shared)
    return MeanLoss(**shared) if asked.bound is None else MeanLoss(**shared, bound=asked.bound)


@contextmanager
def _interruptible(note: Callable[[str], None]) -> Iterator[Callable[[PrivateEngine], None]]:
    """Lets Ctrl-C end a run after the step at hand; a second one kills the process."""
    before = signal.getsignal(signal.SIGINT)

    def started(engine: PrivateEngine) -> None:
        def stop(_number: int, _frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            engine.stop(INTERRUPTED)
            note("stopping after this step; Ctrl-C again kills")

        signal.signal(signal.SIGINT, stop)

    try:
        yield started
    finally:
        signal.signal(signal.SIGINT, before)
