# SPDX-License-Identifier: Apache-2.0
"""PrivateTrainer: the Trainer of Hugging Face's transformers under a budget, with PEFT or without.

Its data loader gives Poisson batches that are paid for, its optimizer steps on these alone, and the
loss is computed for each record by itself: the Trainer's own divides by the tokens of a whole
batch, which lets records touch each other. What the Trainer would say about losses is not said.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.decisions import Policy, Reading
from dosimeter.decisions.steering import listed
from dosimeter.integrations import parts
from dosimeter.integrations.budgets import priced, shown

parts.require("transformers", "5")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402
from transformers.trainer_utils import TrainOutput  # noqa: E402

from dosimeter.errors import StateError  # noqa: E402
from dosimeter.integrations.loop import Loop  # noqa: E402
from dosimeter.integrations.promised import PromisedLoader  # noqa: E402
from dosimeter.integrations.transformers_records import (  # noqa: E402
    Logits,
    Numbered,
    loss_for,
)
from dosimeter.training import PrivateEngine  # noqa: E402
from dosimeter.training.signals import Signal  # noqa: E402
from dosimeter.training.trainer import require_signal  # noqa: E402

FILE = "privacy.pt"
"""Where a checkpoint holds what was spent."""

UNPAID = frozenset({"loss", "train_loss", "grad_norm"})
"""What the Trainer logs of training batches."""


class PrivateTrainer(Trainer):
    """Trains under a budget: `PrivateTrainer((4, 1e-5), model=…, args=…, train_dataset=…)`.

    Batches that are accumulated (`gradient_accumulation_steps`) are one logical batch, and
    `args.max_grad_norm` is what the gradient of each record is clipped to.

    Args:
        gate: What every step is charged to; or (epsilon, delta), for a filter that is priced for
            the step.
        *args: What `Trainer` takes.
        noise_multiplier: The noise of a step. Without it, the least with which (epsilon, delta)
            lasts for the epochs.
        loss: Takes logits and labels of one record (with a first dimension of one) and gives its
            loss; by default cross entropy, shifted by a token for causal models, over the labels
            that count.
        physical_batch_size: Largest number of records held at once on a device; by default
            `per_device_train_batch_size` where batches are accumulated, otherwise a whole batch.
        policy: One or more policies, which set noise and batch size after an epoch or end training;
            they need a `signal`.
        signal: What is read for them: the logits and labels of the training records, one label
            each; with `public=True` in it, those of `eval_dataset`.
        spends_kept: Says that the gate outlived the run whose checkpoint is resumed and holds its
            spends; otherwise they are charged again.
        seed: Makes batches and noise repeatable, and the noise predictable.
        watch: The URL of a budget service, whose page shows the training under `args.run_name`,
            or the name of the model's class, and can end it at its next step.
        **kwargs: What `Trainer` takes.

    Guarantee:
        That of `PrivateEngine`. Losses of training batches are neither logged nor returned;
        `training_loss` is not a number.
    """

    def __init__(
        self,
        gate: Gate | tuple[float, float],
        *args: Any,
        noise_multiplier: float | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        physical_batch_size: int | None = None,
        policy: Policy | Sequence[Policy] = (),
        signal: Signal | None = None,
        spends_kept: bool = False,
        seed: int | None = None,
        watch: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = kwargs.pop("args", args[1] if len(args) > 1 else None)
        if not isinstance(given, TrainingArguments):
            raise TypeError(f"args must be TrainingArguments, got {given!r}")
        settings = _adapted(given, kwargs)
        args = (args[0], settings, *args[2:]) if len(args) > 1 else args
        super().__init__(*args, **(kwargs if len(args) > 1 else {**kwargs, "args": settings}))
        self.gate, self._noise, self._seed = gate, noise_multiplier, seed
        self._given, self._physical, self._loss = given, physical_batch_size, loss
        self._kept, self._policies, self._signal = spends_kept, listed(policy), signal
        self._watch, self._page = watch, ExitStack()
        require_signal(policy, signal, self.eval_dataset)
        self._run: Loop | None = None
        self._batches: PromisedLoader | None = None
        self._record_loss: Callable[..., Tensor] | None = None
        self.add_callback(_Stop(self))

    @property
    def engine(self) -> PrivateEngine:
        """The engine: its steps, its epsilon, its guarantee. Made when training begins."""
        return self._loop.engine

    @property
    def _loop(self) -> Loop:
        if self._run is None:
            raise ValueError("training must have begun, got none yet")
        return self._run

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Trains, and tells the page how it ended, if there is one."""
        with ExitStack() as self._page:
            return super().train(*args, **kwargs)

    # -- what the Trainer asks for -------------------------------------------------------

    def get_train_dataloader(self) -> PromisedLoader:
        """Stands for the private loader, which is made with the optimizer."""
        if self._batches is None:
            data = self.train_dataset
            if data is None or not hasattr(data, "__getitem__"):
                raise TypeError(
                    "train_dataset must be map-style, so that every record can be drawn "
                    f"independently, got {type(data).__name__}"
                )
            given, processes = self._given, self.args.world_size
            each, accumulated = given.per_device_train_batch_size, given.gradient_accumulation_steps
            physical = self._physical or (each if accumulated > 1 else None)
            self._batches = PromisedLoader(
                data,
                each * accumulated * processes,
                physical,
                records=len(data),
                processes=processes,
            )
        return self._batches

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """The optimizer that the Trainer would make, in its private form."""
        if self._run is None:
            self._make_private(super().create_optimizer(model))
        self.optimizer = self.engine.made[1]
        return self.optimizer

    def _make_private(self, base: Any) -> None:
        batches = self.get_train_dataloader()
        noise, gate = priced(
            self.gate,
            self._noise,
            batch_size=batches.batch_size,
            records=batches.records,
            epochs=self._epochs(),
            policies=self._policies,
            reading=None if self._signal is None else self._signal.cost,
        )
        engine = PrivateEngine(gate, seed=self._seed)
        self.model.train()  # an evaluation may have come before
        collate = self._get_collator_with_removed_columns(self.data_collator, "training")
        alone = self.args.world_size == 1
        _, _, batches.private = engine.make_private(
            self.model,
            base,
            batches.dataset,
            noise_multiplier=noise,
            max_grad_norm=self._given.max_grad_norm or 1.0,
            batch_size=batches.batch_size,
            physical_batch_size=batches.physical_batch_size,
            collate_fn=collate,
            num_workers=self.args.dataloader_num_workers if alone else 0,
        )
        # Schedules go forward at every batch, the optimizer only at the last of a step.
        base._opt_called = True
        self.gate = engine.gate
        self._run = Loop(engine, self._policies, self._reading if self._signal else None)
        smoothing = self._given.label_smoothing_factor
        self._record_loss = engine.private_loss(self._loss or loss_for(self.model, smoothing))

    def _epochs(self) -> float:
        """How many there will be; `max_steps` counts physical batches, as the Trainer does."""
        most = self.args.max_steps
        if most > 0:
            return float(most / len(self.get_train_dataloader()))
        return float(self.args.num_train_epochs)

    def _begin(self) -> None:
        """Tells the page that training begins."""
        name, epochs = self.args.run_name or type(self.model).__name__, math.ceil(self._epochs())
        self._page.enter_context(self._loop.watched(self._watch, name=name, epochs=epochs))

    def _reading(self) -> Reading:
        """Pays for a reading of the model and makes it."""
        signal = self._signal
        assert signal is not None
        data: Any = self.eval_dataset if signal.public else self.train_dataset
        model = Logits(self.engine.made[0], data, self.data_collator, self.args.device)
        return signal.read(model, Numbered(data), gate=self.engine)

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> Any:
        """The private model for training, which no other wrapper must average or cut."""
        return self.engine.made[0] if training else super()._wrap_model(model, training, dataloader)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The mean over records of the loss of each by itself; in evaluation the Trainer's own."""
        if self._run is None or model is not self.engine.made[0]:
            return super().compute_loss(model, inputs, return_outputs=return_outputs)
        assert self._record_loss is not None
        inputs = dict(inputs)
        labels = inputs.pop("labels", None)
        if labels is None:
            raise ValueError("records must have labels, got none; use a collator that makes them")
        outputs = model(**inputs)
        loss = self._record_loss(outputs["logits"], labels)
        return (loss, outputs) if return_outputs else loss

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """One physical batch; its loss stays here."""
        super().training_step(model, inputs)
        return torch.zeros((), device=self.args.device)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> None:
        """None: a loss that is divided by it would let records touch each other."""

    def _clip_grad_norm(self, model: nn.Module) -> None:
        """None: records were clipped one by one."""

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> None:
        """None: it would be told without noise."""

    # -- what it says --------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs epsilon in the place of losses."""
        said = {name: value for name, value in logs.items() if name not in UNPAID}
        if self._run is not None:
            said["epsilon"] = shown(self.engine.epsilon)
        super().log(said, start_time)

    def _finalize_training(self, *args: Any) -> TrainOutput:
        out = super()._finalize_training(*args)
        metrics = {name: value for name, value in out.metrics.items() if name not in UNPAID}
        metrics["epsilon"] = shown(self.engine.epsilon)
        return TrainOutput(out.global_step, math.nan, metrics)

    # -- checkpoints ---------------------------------------------------------------------

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            os.makedirs(output_dir, exist_ok=True)
            torch.save(self._loop.state(), os.path.join(output_dir, FILE))
        super()._save_optimizer_and_scheduler(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            path = os.path.join(checkpoint, FILE)
            if not os.path.exists(path):
                raise StateError(
                    f"checkpoint must hold {FILE}, which says what was spent, got none in "
                    f"{checkpoint}. Resume from one that PrivateTrainer wrote."
                )
            state = torch.load(path, weights_only=True)
            self._loop.restore(state, self.model, spends_kept=self._kept)
        super()._load_optimizer_and_scheduler(checkpoint)


class _Stop(TrainerCallback):
    """Ends training with the budget, or when the page says so."""

    def __init__(self, trainer: PrivateTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Before the first step."""
        self._trainer._begin()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Notes what was paid and not used before."""
        self._trainer._loop.begin_epoch()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the last step that the gate allows."""
        if self._trainer._loop.is_over():
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Where policies or the loader ended it."""
        if self._trainer._loop.close_epoch():
            control.should_training_stop = True


def _adapted(given: TrainingArguments, kwargs: dict[str, Any]) -> TrainingArguments:
    """The arguments with which the Trainer hands every physical batch to the optimizer."""
    refused = {
        "fp16": given.fp16,
        "fsdp": bool(given.fsdp),
        "deepspeed": given.deepspeed is not None,
        "gradient_checkpointing": given.gradient_checkpointing,
        "torch_compile": given.torch_compile,
        "auto_find_batch_size": given.auto_find_batch_size,
        "neftune_noise_alpha": given.neftune_noise_alpha is not None,
        "compute_loss_func": kwargs.get("compute_loss_func") is not None,
        "several GPUs in one process": given.n_gpu > 1,
    }
    for name, is_set in refused.items():
        if is_set:
            raise ValueError(
                f"{name} must not be used, for it touches gradients, losses or batches on a way "
                "that is not private, got it set. Use bf16 for speed, torchrun for several "
                "devices, and loss=… for a loss of your own."
            )
    settings = copy.copy(given)
    settings.gradient_accumulation_steps, settings.max_grad_norm = 1, 0.0
    settings.label_smoothing_factor = 0.0  # in the loss of each record
    settings.ignore_data_skip = True  # skipping would draw, and pay for, what is not used
    return settings
