# SPDX-License-Identifier: Apache-2.0
"""Helpers that only post-process released gradients and parameters, and so cost no epsilon.

Both are attached to an engine and run after every step, when the noise has been added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dosimeter import arguments
from dosimeter.training.engine import PrivateEngine


class AveragedIterate:
    """An average of the parameters over the steps, less noisy than the last ones.

    Args:
        engine: Whose steps to average over, from now on.
        model: The model it trains.
        decay: Weight of the past in a running average, raised towards this in the first
            steps; 1.0 gives all steps the same weight.
    """

    def __init__(self, engine: PrivateEngine, model: nn.Module, *, decay: float = 0.99) -> None:
        if not 0 <= arguments.real("decay", decay) <= 1:
            raise ValueError(f"decay must lie in [0, 1], got {decay!r}")
        self.decay = decay
        self.steps = 0
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._average = [p.detach().clone() for p in self._parameters]
        engine.after_step(self._update)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it the model has the averaged parameters."""
        current = [p.detach().clone() for p in self._parameters]
        self._set(self._average)
        try:
            yield
        finally:
            self._set(current)

    def keep(self) -> None:
        """Gives the model the averaged parameters for good."""
        self._set(self._average)

    def state(self) -> dict[str, Any]:
        """What it remembers, for a checkpoint."""
        return {"steps": self.steps, "average": self._average}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave."""
        self.steps = int(state["steps"])
        for mine, saved in zip(self._average, state["average"], strict=True):
            mine.copy_(saved)

    def _set(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)

    @torch.no_grad()
    def _update(self) -> None:
        self.steps += 1
        weight = min(self.decay, (self.steps - 1) / self.steps)
        for average, parameter in zip(self._average, self._parameters, strict=True):
            average.lerp_(parameter, 1 - weight)


class SignRule:
    """A learning rate that grows while steps agree with their past and shrinks when they do not.

    After each step the released gradient is compared with a running mean of earlier ones: a
    learning rate that is too small leaves them pointing the same way, one that is too large
    makes them swing. The rate settles where a given share of steps agrees. It mends a rate
    that is wrong by a factor of ten, and costs nothing.

    Args:
        engine: Whose steps to follow, from now on.
        optimizer: Whose learning rates to change.
        gain: How fast the logarithm of the rate moves, per step.
        target: The share of steps that should agree; noise alone gives a half.
        memory: Weight of the past in the running mean.
        range: The rate stays within this factor of where it began.
    """

    def __init__(
        self,
        engine: PrivateEngine,
        optimizer: torch.optim.Optimizer,
        *,
        gain: float = 0.05,
        target: float = 0.7,
        memory: float = 0.9,
        range: float = 30.0,
    ) -> None:
        self.gain = arguments.positive("gain", gain)
        self.target = arguments.open_unit("target", target)
        self.memory = arguments.open_unit("memory", memory)
        self._bound = math.log(max(1.0, arguments.positive("range", range)))
        self._groups = optimizer.param_groups
        self._initial = [float(group["lr"]) for group in self._groups]
        self._parameters = [p for g in self._groups for p in g["params"] if p.requires_grad]
        self._mean: list[torch.Tensor] | None = None
        self._shift = 0.0
        engine.after_step(self._update)

    @property
    def factor(self) -> float:
        """What the learning rates are multiplied by now."""
        return math.exp(self._shift)

    @torch.no_grad()
    def _update(self) -> None:
        grads = [p.grad.detach() for p in self._parameters if p.grad is not None]
        if self._mean is None:
            self._mean = [grad.clone() for grad in grads]
            return
        agreement = sum(
            float((grad * mean).sum()) for grad, mean in zip(grads, self._mean, strict=True)
        )
        for mean, grad in zip(self._mean, grads, strict=True):
            mean.lerp_(grad, 1 - self.memory)
        self._shift += 2 * self.gain * ((agreement > 0) - self.target)
        self._shift = min(self._bound, max(-self._bound, self._shift))
        for group, initial in zip(self._groups, self._initial, strict=True):
            group["lr"] = initial * self.factor
