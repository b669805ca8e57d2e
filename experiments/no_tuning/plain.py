# SPDX-License-Identifier: Apache-2.0
"""DP-SGD of fixed settings on small models, with the gradients of all records in closed form.

The same mechanism as the library's, several times as fast and without its protections: noise comes
from torch. It is for the arms that are run hundreds of times on data that are public here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from experiments.no_tuning.tasks import Task


@dataclass(frozen=True)
class Fixed:
    """Settings that stay as they are.

    Attributes:
        steps: How many.
        batch_size: Expected records in each.
        noise_multiplier: Noise over the norm.
        max_grad_norm: What gradients are clipped to.
        lr: Of SGD.
        momentum: Of SGD.
    """

    steps: int
    batch_size: int
    noise_multiplier: float
    max_grad_norm: float
    lr: float
    momentum: float


@torch.no_grad()
def train(task: Task, how: Fixed, seed: int) -> dict[str, float]:
    """The accuracy of the last and of the averaged iterate, and how many records were right."""
    generator = torch.Generator().manual_seed(seed)
    weights = [p.detach().clone() for p in task.model(seed).parameters()]
    averaged = [w.clone() for w in weights]
    velocity = [torch.zeros_like(w) for w in weights]
    deviation = how.noise_multiplier * how.max_grad_norm
    decay = max(0.0, 1 - 4 / how.steps)
    for step in range(how.steps):
        coins = torch.rand(len(task.x), generator=generator)
        chosen = (coins < how.batch_size / len(task.x)).nonzero().flatten()
        sums = clipped_sums(weights, task.x[chosen], task.y[chosen], how.max_grad_norm)
        keep = min(decay, step / (step + 1))
        for w, v, a, total in zip(weights, velocity, averaged, sums, strict=True):
            noise = torch.randn(w.shape, generator=generator)
            v.mul_(how.momentum).add_((total + deviation * noise) / how.batch_size)
            w.sub_(v, alpha=how.lr)
            a.lerp_(w, 1 - keep)
    return {
        "last": accuracy(weights, task.test_x, task.test_y),
        "average": accuracy(averaged, task.test_x, task.test_y),
        "train_last": accuracy(weights, task.x, task.y),
        "train_average": accuracy(averaged, task.x, task.y),
    }


def clipped_sums(weights: list[Tensor], x: Tensor, y: Tensor, bound: float) -> list[Tensor]:
    """The sum of the clipped gradients of cross entropy, for each weight and bias."""
    values = _forward(weights, x)
    error = torch.softmax(values[-1], dim=1)
    error[torch.arange(len(y)), y] -= 1
    errors = [error]
    for place in range(len(weights) - 2, 0, -2):
        error = (error @ weights[place]) * (1 - values[place // 2] ** 2)
        errors.insert(0, error)
    pairs = list(zip(values, errors, strict=False))
    squares = sum((_squares(v) + 1) * _squares(e) for v, e in pairs)
    assert isinstance(squares, Tensor)
    factors = (bound / squares.sqrt().clamp(min=bound)).unsqueeze(1)
    found = []
    for v, e in pairs:
        e = e * factors
        found += [e.T @ v, e.sum(0)]
    return found


def _squares(rows: Tensor) -> Tensor:
    """The squared length of each row, without a square of every number in memory."""
    return torch.linalg.vector_norm(rows, dim=1).square()


def accuracy(weights: list[Tensor], x: Tensor, y: Tensor) -> float:
    """The share of records that come out right."""
    return float((_forward(weights, x)[-1].argmax(1) == y).double().mean())


def _forward(weights: list[Tensor], x: Tensor) -> list[Tensor]:
    values = [x]
    for place in range(0, len(weights), 2):
        out = torch.addmm(weights[place + 1], values[-1], weights[place].T)
        values.append(out if place == len(weights) - 2 else out.tanh())
    return values


def untrained(model: nn.Module, task: Task) -> float:
    """The accuracy of a model as it is made."""
    return accuracy([p.detach() for p in model.parameters()], task.test_x, task.test_y)


def sizes(name: str, records: int) -> tuple[int, int]:
    """Batch size and number of steps of a size of the grid."""
    batch, epochs = {
        "small": (256, 30.0),
        "medium": (1024, 60.0),
        "large": (round(18 * math.sqrt(records)), math.inf),
    }[name]
    batch = min(batch, records // 2)
    return batch, round(min(400, epochs * records / batch))
