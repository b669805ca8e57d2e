# SPDX-License-Identifier: Apache-2.0
"""Parts: what `make_private` puts together, in the order in which the parts need each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dosimeter import arguments
from dosimeter.decisions import StepSettings, Ticket
from dosimeter.training.clipping import Clipper
from dosimeter.training.entropy import Entropy, PoissonSampler, entropy_for
from dosimeter.training.grid import Grid
from dosimeter.training.group import Group
from dosimeter.training.loader import PrivateLoader, Reading, Records
from dosimeter.training.onepass import OnePassModule
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.optimizer import PrivateOptimizer


@dataclass(frozen=True)
class Hooks:
    """How the parts reach the engine: to pay for a batch, and to report a step."""

    draw: Callable[[bool], Ticket | None]
    settings: Callable[[], StepSettings]
    on_step: Callable[[], None]


@dataclass(frozen=True)
class Options:
    """What the caller of `make_private` chose, checked."""

    max_grad_norm: float
    clipping: Clipping
    physical_batch_size: int
    loss_reduction: str
    collate: Callable[[list[Any]], Any] | None
    workers: int

    def __post_init__(self) -> None:
        arguments.positive("max_grad_norm", self.max_grad_norm)
        arguments.count("physical_batch_size", self.physical_batch_size)
        if self.workers != 0:
            arguments.count("num_workers", self.workers)
        if self.loss_reduction not in ("mean", "sum"):
            raise ValueError(f"loss_reduction must be 'mean' or 'sum', got {self.loss_reduction!r}")


@dataclass(frozen=True)
class Parts:
    """A model, its private wrapping, and what feeds and steps it."""

    model: nn.Module
    private: nn.Module
    optimizer: PrivateOptimizer
    loader: PrivateLoader
    sampler: PoissonSampler
    noise: Entropy
    clipper: Clipper


def settings_for(
    dataset: Records, noise_multiplier: float, batch_size: int, records: int | None
) -> StepSettings:
    """The first settings of a run, checked against the data."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(
            "dataset must be map-style (with __len__ and __getitem__), so that every record can "
            f"be drawn independently, got {type(dataset).__name__}"
        )
    if not len(dataset) > 0:
        raise ValueError("dataset must hold at least one record, got none")
    return StepSettings(
        arguments.positive("noise_multiplier", noise_multiplier),
        arguments.count("batch_size", batch_size),
        len(dataset) if records is None else arguments.count("records", records),
    )


def assemble(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Records,
    options: Options,
    *,
    settings: StepSettings,
    group: Group,
    seed: int | None,
    hooks: Hooks,
) -> Parts:
    """Wrap a validated model, and put the loader and the optimizer around it."""
    # What can be refused is refused before the model is changed.
    if options.workers and group.size > 1:
        raise ValueError(
            f"num_workers must be 0 among {group.size} processes, for ranks pay together at every "
            f"step and cannot pay ahead, got {options.workers}. Leave it out."
        )
    noise, coins = entropy_for("noise", seed), entropy_for("batches", seed, group.rank)
    Grid.of(
        settings.noise_multiplier,
        options.max_grad_norm,
        values=sum(p.numel() for p in model.parameters() if p.requires_grad),
        records=len(dataset),
    )
    group.share_parameters(model)
    private = OnePassModule(model)
    mean = options.loss_reduction == "mean"
    clipper = Clipper(private, mean=mean, clipping=options.clipping)
    private_optimizer = PrivateOptimizer(
        optimizer,
        private,
        clipper=clipper,
        max_grad_norm=options.max_grad_norm,
        records=len(dataset),
        noise=noise,
        group=group,
        on_step=hooks.on_step,
    )
    # Each process draws from its own share of the records; the union is one Poisson sample.
    share = len(range(group.rank, len(dataset), group.size))
    sampler = PoissonSampler(share, coins)
    loader = PrivateLoader(
        dataset,
        private_optimizer,
        sampler,
        Reading(options.physical_batch_size, options.collate, options.workers),
        draw=hooks.draw,
        settings=hooks.settings,
        group=group,
    )
    return Parts(model, private, private_optimizer, loader, sampler, noise, clipper)
