# SPDX-License-Identifier: Apache-2.0
"""What of Lightning would touch gradients or data on another way than the engine's."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

PRECISIONS = ("32-true", "64-true", "bf16-mixed")
"""Precisions of a Trainer in which sums keep their bound."""


def require_private_way(trainer: Trainer, module: LightningModule) -> None:
    """Raises for what would touch gradients on another way than the engine's."""
    if not module.automatic_optimization:
        raise ValueError(
            "module must leave the steps to Lightning, got automatic_optimization=False. Use "
            "PrivateEngine in a loop of your own."
        )
    if trainer.gradient_clip_val:
        raise ValueError(
            f"gradient_clip_val must not be set, for records are clipped one by one, got "
            f"{trainer.gradient_clip_val!r}. Use max_grad_norm of PrivateTraining."
        )
    if trainer.precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(PRECISIONS)}, got {trainer.precision!r}: sums of "
            "clipped gradients would round past their bound."
        )
    strategy = trainer.strategy
    launched = getattr(strategy.launcher, "is_interactive_compatible", False)
    if type(strategy) not in (SingleDeviceStrategy, DDPStrategy) or launched:
        raise ValueError(
            "strategy must be 'auto' on one device or 'ddp' on several, got "
            f"{type(strategy).__name__}{' in spawned processes' if launched else ''}: others cut "
            "or average gradients by themselves, or take the budget to a copy of it."
        )


def require_loader(loader: Any) -> None:
    """Raises unless every record of a data loader can be drawn independently."""
    way_out = "Use DataLoader(dataset, batch_size=…, shuffle=True) with a map-style dataset."
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"train_dataloader must be one DataLoader, got {type(loader).__name__}. {way_out}"
        )
    usual = (RandomSampler, SequentialSampler, DistributedSampler)
    if not isinstance(loader.sampler, usual) or type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            "train_dataloader must leave it to chance alone which records come, got "
            f"{type(loader.sampler).__name__} in {type(loader.batch_sampler).__name__}. {way_out}"
        )
