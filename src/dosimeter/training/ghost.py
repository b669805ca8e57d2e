# SPDX-License-Identifier: Apache-2.0
"""GhostClipper: ghost clipping, which has the norms of the records without their gradients.

It needs two backward passes, the second of a loss whose records are weighted so that the
gradient comes out clipped. The result is taken over at once, so that gradients which were not
clipped can never be stepped on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from dosimeter.errors import TicketError
from dosimeter.training import refusals
from dosimeter.training.clipping import Clipper, finite


class GhostClipper(Clipper):
    """Clips by way of Opacus' ghost clipping; the loop's loss must come from `loss`."""

    def __init__(
        self, model: nn.Module, parameters: list[nn.Parameter], *, loss_reduction: str
    ) -> None:
        super().__init__(model, parameters, loss_reduction=loss_reduction)
        self._model: Any = model
        self._clipped: list[Tensor] | None = None

    def sums(self, size: int) -> list[Tensor]:
        """The clipped sum for each parameter, as the last backward pass made it."""
        clipped, self._clipped = self._clipped, None
        if clipped is None:
            raise TicketError(
                "loss must come from engine.private_loss(loss_fn) when grad_sampling='ghost', "
                "got gradients that were not clipped. Wrap the loss function once, before "
                "the loop."
            )
        for parameter in self.parameters:
            norms = getattr(parameter, "_norm_sample", None)
            self._require(0 if norms is None else len(norms), size)
        return clipped

    def clear(self) -> None:
        """Drops the gradients that were computed so far; a forward pass under way goes on."""
        super().clear()
        self._clipped = None

    def loss(self, loss_fn: Callable[..., Any]) -> Callable[..., GhostValue]:
        """The loss function whose backward pass clips."""
        # Opacus asks the optimizer to clear gradients between its two passes, and no more.
        inner = DPLossFastGradientClipping(self._model, self, loss_fn, self.loss_reduction)
        return lambda *args, **kwargs: GhostValue(self, inner(*args, **kwargs))

    def zero_grad(self) -> None:
        """Clears the gradients of the first pass, which are not clipped."""
        for parameter in self.parameters:
            parameter.grad = None

    def backward(self, value: Any) -> None:
        """Runs both passes and takes over the clipped gradients."""
        self._model.max_grad_norm = self.norm
        if self.compares():
            true = self._norm_of(value.loss_per_sample.flatten()[0])
            value.backward()
            refusals.require_same_norm(float(self._model.per_sample_gradient_norms[0]), true)
        else:
            value.backward()
        found = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self.parameters
        ]
        self.zero_grad()
        if not finite(found):
            raise ValueError(
                "the gradient of every record must be finite for ghost clipping, got one that "
                "is not. Mend the data, or use grad_sampling='hooks', which leaves it out."
            )
        self._clipped = found

    def _norm_of(self, loss: Tensor) -> float:
        """The norm of the gradient of one record's loss, by autograd alone."""
        self._model.disable_hooks()
        grads = torch.autograd.grad(loss, self.parameters, retain_graph=True, allow_unused=True)
        self._model.enable_hooks()
        return math.sqrt(sum(float(g.double().square().sum()) for g in grads if g is not None))


class GhostValue:
    """The loss of one physical batch, which can be read and taken backward."""

    def __init__(self, clipper: GhostClipper, value: Any) -> None:
        self._clipper, self._value = clipper, value

    def item(self) -> float:
        """The loss as a number; it is not private."""
        return float(self._value.item())

    def detach(self) -> Tensor:
        """The loss without its graph; it is not private."""
        tensor: Tensor = self._value.detach()
        return tensor

    def backward(self) -> None:
        """Computes the clipped gradient and hands it to the optimizer."""
        self._clipper.backward(self._value)
