# SPDX-License-Identifier: Apache-2.0
"""Trainer: private training epoch by epoch, with policies, a history and checkpoints.

Only what was released or is public is ever shown: the loss of training batches is neither,
so loss and accuracy come from public data. Give none and they stay empty.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch
from torch import nn

from dosimeter import arguments
from dosimeter.decisions import Epoch, History, Policy, Reading, Steering
from dosimeter.decisions.steering import listed
from dosimeter.files import replaced
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.following import Following
from dosimeter.training.loader import Records
from dosimeter.training.postprocessing import AveragedIterate
from dosimeter.training.resuming import Told, blaming, loaded, require_same
from dosimeter.training.signals import CorrectCount, MeanLoss, Signal, pair


class Trainer:
    """The training loop of a classifier, in pieces; `fit` puts them together.

    A loop of one's own (or Lightning's) takes the steps itself, over the loader that
    `engine.make_private` gave, and calls `close_epoch` after each epoch.

    Args:
        engine: On which `make_private` was called.
        policy: One or more policies; they need a `signal`.
        signal: What is read for the policies, on the private data; with `public=True` in it,
            on the public data.
        public: Data known to be public, for the loss and accuracy that are shown.
        loss_fn: A loss module with the mean over records; cross entropy by default.
        average: What the model is measured and read with, and left with at the end; the last
            iterate by default.
        following: What sets the learning rate and ends runs that are lost.
        told: Arguments by name, kept in checkpoints. One that was told otherwise is refused.

    Example:
        >>> import torch, dosimeter as dm
        >>> from dosimeter.training import PrivateEngine, Trainer
        >>> data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.arange(64) % 2)
        >>> model = torch.nn.Linear(3, 2)
        >>> engine = PrivateEngine(dm.Filter(epsilon=4, delta=1e-5))
        >>> _ = engine.make_private(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), data,
        ...     noise_multiplier=2.0, max_grad_norm=1.0, batch_size=16)
        >>> trainer = Trainer(engine)
        >>> [epoch.steps for epoch in trainer.epochs(2)]
        [4, 4]
        >>> trainer.history.ended
        'all 2 epochs were done'
    """

    def __init__(
        self,
        engine: PrivateEngine,
        *,
        policy: Policy | Sequence[Policy] = (),
        signal: Signal | None = None,
        public: Records | None = None,
        loss_fn: nn.Module | None = None,
        average: AveragedIterate | None = None,
        following: Following | None = None,
        told: Told | None = None,
    ) -> None:
        require_signal(policy, signal, public)
        self.engine = engine
        self._model, self._optimizer, self._loader = engine.made
        self._signal, self._public = signal, public
        self._average, self._following, self._told = average, following, dict(told or {})
        self._steering = Steering(engine, policy)
        self.history.began = None if following is None else following.began
        self._loss_fn = engine.private_loss(loss_fn or nn.CrossEntropyLoss())
        self._began = time.perf_counter()
        self._first = engine.steps, engine.noise_multiplier, engine.batch_size

    @property
    def history(self) -> History:
        """The epochs so far, why they ended, and what is guaranteed."""
        return self._steering.history

    @property
    def trouble(self) -> str | None:
        """Why the model may be of no use, as far as that can be told from what was released."""
        return None if self._following is None else self._following.trouble

    def epochs(self, most: int, then: Callable[[Epoch], None] = lambda _: None) -> Iterator[Epoch]:
        """Trains until so many epochs are done in all, or the gate or a policy ends it.

        Args:
            most: How many epochs at most, with those of a run that is resumed.
            then: Called after each epoch before it is given out, such as to save it.
        """
        arguments.count("epochs", most)
        ended = f"all {most} epochs were done"
        while len(self.history) < most:
            record = self.epoch()
            if record is not None:
                then(record)
                yield record
            if record is None or self.engine.stopped is not None or self.engine.exhausted:
                ended = self.engine.stopped or "the gate refused the next step"
                break
        if self._average is not None:
            self._average.keep()
        if self._following is not None and self._following.lost is not None:
            ended = f"{ended}, but {self._following.lost}"
        self.history.ended = ended
        guarantee = self.engine.guarantee()
        self.history.guarantee, self.history.promise = str(guarantee), guarantee.data

    def epoch(self) -> Epoch | None:
        """Trains for one epoch and closes it; None if not even one step was taken."""
        self.begin_epoch()
        for batch in self._loader:
            x, y = pair(batch)
            self._optimizer.zero_grad()
            self._loss_fn(self._model(x), y).backward()
            self._optimizer.step()
        return self.close_epoch()

    def begin_epoch(self) -> None:
        """Notes where an epoch begins; the trainer is made at the beginning of one."""
        engine = self.engine
        self._began = time.perf_counter()
        self._first = engine.steps, engine.noise_multiplier, engine.batch_size

    def close_epoch(self) -> Epoch | None:
        """Reads what is due, lets the policies decide, and records the epoch.

        Returns:
            None, and nothing else happens, if no step was taken since the epoch began.
        """
        engine = self.engine
        steps, noise, batch = self._first
        if engine.steps == steps:
            return None
        number = len(self.history) + 1
        with nullcontext() if self._average is None else self._average.applied():
            reading = self._read(number)
            accuracy, loss = self._measure()
        following = self._following
        record = Epoch(
            epoch=number,
            steps=engine.steps - steps,
            epsilon=engine.epsilon,
            noise_multiplier=noise,
            batch_size=batch,
            accuracy=accuracy,
            loss=loss,
            signal=reading,
            seconds=time.perf_counter() - self._began,
            learning_rate=None if following is None else following.learning_rate,
            evidence=() if following is None else following.taken(),
            spent_share=engine.spent_share,
        )
        self.history.epochs.append(record)
        self.begin_epoch()
        return record

    def save(self, path: pathlib.Path) -> None:
        """Writes a checkpoint, whole or not at all; in a group of processes the first does."""
        if self.engine.group.rank == 0:
            state = {
                "told": self._told,
                "engine": self.engine.state_dict(),
                **self._steering.state(),
                **{name: each.state() for name, each in self._followers.items()},
            }
            replaced(path, lambda part: torch.save(state, part))

    def resume(self, path: pathlib.Path, *, spends_kept: bool = False) -> None:
        """Goes on from a checkpoint, if there is one.

        Args:
            path: What `save` wrote.
            spends_kept: Says that the gate outlived the run that wrote the checkpoint and holds
                its spends; otherwise they are charged again.

        Raises:
            ValueError: The run in it was told otherwise; nothing was charged.
            StateError: It is no checkpoint, or that of another model; nothing was charged.
        """
        if not path.exists():
            return
        state = loaded(path)
        with blaming(path):
            # First what may refuse without having charged anything.
            self.engine.require_loadable(state["engine"])
            self._steering.require_restorable(state)
            for name, each in self._followers.items():
                each.restore(state[name])
        require_same(path, state["told"], self._told)
        with blaming(path):
            self.engine.load_state_dict(state["engine"], spends_kept=spends_kept)
            self._steering.restore(state)
        self.begin_epoch()

    @property
    def _followers(self) -> dict[str, AveragedIterate | Following]:
        found = {"average": self._average, "following": self._following}
        return {name: each for name, each in found.items() if each is not None}

    def _read(self, epoch: int) -> Reading | None:
        """The reading that is due, if any, after the policies have seen it."""
        signal = self._signal
        if signal is None or not self._steering.due(epoch):
            return None
        data = self._public if signal.public else self._loader.dataset
        assert data is not None
        return self._steering.read(epoch, lambda: signal.read(self._model, data, gate=self.engine))

    def _measure(self) -> tuple[float | None, float | None]:
        """Accuracy and loss on public data."""
        if self._public is None:
            return None, None
        right = CorrectCount(public=True).read(self._model, self._public)
        loss = MeanLoss(public=True, bound=1e3).read(self._model, self._public)
        return right.quality, loss.value


def require_signal(
    policy: Policy | Sequence[Policy], signal: Signal | None, public: Records | None
) -> None:
    """Raises if policies have nothing to read, or a public signal no public data."""
    if listed(policy) and signal is None:
        raise ValueError(
            "signal must be given for policies to read, got None. Pass signal=CorrectCount()."
        )
    if signal is not None and signal.public and public is None:
        raise ValueError("public must be given for a signal on public data, got None")
