# SPDX-License-Identifier: Apache-2.0
"""GhostLoss: the loss function of ghost clipping.

Ghost clipping needs two backward passes, the second of a loss whose records are weighted so
that the gradient comes out clipped. The result is handed to the optimizer at once, so that
gradients which were not clipped can never be stepped on.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dosimeter.training import refusals
from dosimeter.training.optimizer import PrivateOptimizer


class GhostLoss:
    """A loss function that gives `GhostValue`s; made by `engine.private_loss`."""

    def __init__(self, optimizer: PrivateOptimizer, loss_fn: nn.Module) -> None:
        self._optimizer = optimizer
        self._loss = optimizer.clipping_loss(loss_fn)

    def __call__(self, *args: Any, **kwargs: Any) -> GhostValue:
        return GhostValue(self._loss(*args, **kwargs), self._optimizer)


class GhostValue:
    """The loss of one physical batch, which can be read and taken backward."""

    def __init__(self, value: Any, optimizer: PrivateOptimizer) -> None:
        self._value, self._optimizer = value, optimizer

    def item(self) -> float:
        """The loss as a number; it is not private."""
        return float(self._value.item())

    def detach(self) -> Tensor:
        """The loss without its graph; it is not private."""
        tensor: Tensor = self._value.detach()
        return tensor

    def backward(self) -> None:
        """Computes the clipped gradient and hands it to the optimizer."""
        if not self._optimizer.compares:
            self._value.backward()
        else:
            losses = self._value.loss_per_sample
            true = self._optimizer.norm_of(losses.flatten()[0])
            self._value.backward()
            refusals.require_same_norm(float(self._value.module.per_sample_gradient_norms[0]), true)
        self._optimizer.keep_clipped()
