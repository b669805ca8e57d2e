# SPDX-License-Identifier: Apache-2.0
"""Training: a step of the engine over one of plain Opacus, on a small CNN and a linear model.

Opacus adds float noise of a Mersenne twister; ours is made of AES bits, exactly rounded, on a grid.

Both train the same network on the same records with Poisson batches, in turns, in one
process and on one thread. Each phase of a step is timed apart, best of all steps each. Times
are CPU times per record, as batches vary in size.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

import dosimeter as dm
from benchmarks.measure import Result
from dosimeter.training import PrivateEngine

RECORDS, BATCH, STEPS, ROUNDS = 5000, 128, 4, 40
NOISE, CLIP = 1.0, 1.0
FEATURES = 1840

PHASES = ("draw", "clear", "forward", "backward", "step")

Times = dict[str, float]
"""Seconds per record of each phase, the best so far."""


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Random images that are read one by one, as a folder of files would be."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(RECORDS, 1, 28, 28, generator=generator)
        self.y = torch.randint(0, 10, (RECORDS,), generator=generator).tolist()

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.x[index], self.y[index]


def network() -> nn.Module:
    """The small CNN of Opacus' own MNIST example."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def linear() -> nn.Module:
    """One layer on the scattering features of an image, as in experiments/adaptive_filter."""
    return nn.Linear(FEATURES, 10)


class Loop:
    """A training loop whose phases are timed."""

    def __init__(self, model: nn.Module, optimizer: Any, loader: Iterable[Any]) -> None:
        self._model, self._optimizer, self._loader = model, optimizer, loader
        self.best: Times = dict.fromkeys(PHASES, float("inf"))

    def run(self) -> None:
        """Takes a few steps."""
        batches, now = iter(self._loader), time.process_time
        for _ in range(STEPS):
            times = [now()]
            x, y = next(batches)
            times.append(now())
            self._optimizer.zero_grad()
            times.append(now())
            loss = cross_entropy(self._model(x), y)
            times.append(now())
            loss.backward()
            times.append(now())
            self._optimizer.step()
            times.append(now())
            for phase, (start, end) in zip(PHASES, pairwise(times), strict=True):
                self.best[phase] = min(self.best[phase], (end - start) / len(y))


def _ours(dataset: Any, model: nn.Module) -> Loop:
    engine = PrivateEngine(dm.Filter(epsilon=1000.0, delta=1e-6))
    private, optimizer, loader = engine.make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.01), dataset,
        noise_multiplier=NOISE, max_grad_norm=CLIP, batch_size=BATCH,
    )  # fmt: skip
    return Loop(private, optimizer, loader)


def _opacus(dataset: Any, model: nn.Module) -> Loop:
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
    )
    return Loop(private, optimizer, loader)


def ratio(dataset: Any, make: Callable[[], nn.Module] = network) -> tuple[float, float]:
    """A step of ours over one of Opacus', and milliseconds of ours."""
    ours, theirs = _ours(dataset, make()), _opacus(dataset, make())
    for index in range(ROUNDS):
        for loop in (ours, theirs) if index % 2 else (theirs, ours):
            loop.run()
    mine, plain = (sum(loop.best.values()) for loop in (ours, theirs))
    return mine / plain, mine * BATCH * 1e3


def run() -> list[Result]:
    """All figures of training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            images = Images()
            one_by_one, milliseconds = ratio(images)
            labels = torch.tensor(images.y)
            tensors, _ = ratio(TensorDataset(images.x, labels))
            features = torch.randn(RECORDS, FEATURES, generator=torch.Generator().manual_seed(0))
            flat, _ = ratio(TensorDataset(features, labels), linear)
    finally:
        torch.set_num_threads(threads)
    return [
        Result.at_most("a step over one of plain Opacus, small CNN", one_by_one, 1.03, "times"),
        Result("the same with the data in tensors", tensors, "times", "", True),
        Result.at_most("a step over one of plain Opacus, linear model", flat, 1.25, "times"),
        Result("a step of 128 records", milliseconds, "ms", "", True),
    ]


if __name__ == "__main__":
    for result in run():
        print(f"{result.name}: {result.value:.4g} {result.unit} ({result.goal or 'for reading'})")
