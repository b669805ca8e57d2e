# SPDX-License-Identifier: Apache-2.0
"""How the rule for the rate was chosen: python -m experiments.no_tuning.choosing

Rules and averages beside each other on the tasks that are not held out, with the plain
implementation and seeds that are not in the table. All else is as `fit` has it.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tomllib
from collections.abc import Callable

import torch

from experiments.no_tuning import plain
from experiments.no_tuning.__main__ import FOLDER
from experiments.no_tuning.arms import fitting
from experiments.no_tuning.tasks import Task, load

SEEDS = (30, 31, 32)
STEPS, REACH, MOMENTUM = 400, 30.0, 0.9
NORM = 0.01
"""So small that clipping to it, over it, is what normalised gradients are."""

PARTS = (4, 8, 12)
"""An average is over about this part of the steps, the last ones."""

Rule = Callable[[float, float], float]
"""Makes of the energy of the noise, and of released gradients so far, what a rate is divided by."""

RULES: dict[str, Rule] = {
    "all that is released": lambda noise, seen: seen,
    "three quarters noise": lambda noise, seen: 0.75 * noise + 0.25 * seen,
    "nine tenths noise": lambda noise, seen: 0.9 * noise + 0.1 * seen,
    "noise alone, from 0.05 on": lambda noise, seen: max(noise, 0.05**2),
}


@torch.no_grad()
def train(task: Task, epsilon: float, delta: float, rule: Rule, seed: int) -> list[float]:
    """The accuracy of the last iterate, and of each average."""
    batch, steps = plain.sizes("large", len(task.x))
    assert steps == STEPS
    sigma = fitting(epsilon, delta, steps, batch / len(task.x))
    generator = torch.Generator().manual_seed(seed)
    weights = [p.detach().clone() for p in task.model(seed).parameters()]
    velocity = [torch.zeros_like(w) for w in weights]
    averages = [[w.clone() for w in weights] for _ in PARTS]
    noise = (sigma / batch) ** 2 * sum(w.numel() for w in weights)
    seen = 1 + noise  # the bound, before any data is seen
    for step in range(steps):
        rate = REACH * (1 - MOMENTUM) / math.sqrt(steps * rule(noise, seen / (step + 1)))
        coins = torch.rand(len(task.x), generator=generator)
        chosen = (coins < batch / len(task.x)).nonzero().flatten()
        for w, v, total in zip(
            weights,
            velocity,
            plain.clipped_sums(weights, task.x[chosen], task.y[chosen], NORM),
            strict=True,
        ):
            released = total / NORM + sigma * torch.randn(w.shape, generator=generator)
            released /= batch
            seen += float(released.square().sum())
            w.sub_(v.mul_(MOMENTUM).add_(released), alpha=rate)
        for part, average in zip(PARTS, averages, strict=True):
            keep = min(1 - part / steps, step / (step + 1))
            for a, w in zip(average, weights, strict=True):
                a.lerp_(w, 1 - keep)
    return [100 * plain.accuracy(each, task.test_x, task.test_y) for each in (weights, *averages)]


def main() -> None:
    """Prints a table: for each rule, task and iterate the mean over the seeds and epsilons."""
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    names = [name for name in config["tasks"] if name not in config["held_out"]]
    print("| | iterate |", " | ".join([*names, "all"]), "|")
    for title, rule in RULES.items():
        found = {}
        for name in names:
            runs = [train(load(name), epsilon, config["delta"], rule, seed)
                    for epsilon, seed in itertools.product(config["epsilons"], SEEDS)]  # fmt: skip
            found[name] = [statistics.mean(column) for column in zip(*runs, strict=True)]
        for place, iterate in enumerate(["last", *(f"1/{part}" for part in PARTS)]):
            row = [found[name][place] for name in names]
            cells = [f"{value:.1f}" for value in row] + [f"{statistics.mean(row):.2f}"]
            print(f"| {title} | {iterate} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
