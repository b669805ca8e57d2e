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
from dosimeter.training import models, refusals
from dosimeter.training.clipping import Clipper, finite
from dosimeter.training.onepass.records import selected


class GhostClipper(Clipper):
    """Clips by way of Opacus' ghost clipping; the loop's loss must come from `loss`."""

    def __init__(
        self, model: nn.Module, parameters: list[nn.Parameter], *, loss_reduction: str
    ) -> None:
        super().__init__(model, parameters, loss_reduction=loss_reduction)
        self._model: Any = model
        self._clipped: list[Tensor] | None = None
        self._left_out = 0
        self._last: tuple[Any, Any, Any] | None = None
        model.register_forward_hook(self._note, with_kwargs=True)

    def _note(self, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._last = (args, kwargs, output)

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
            self._require(0 if norms is None else len(norms) + self._left_out, size)
        return clipped

    def clear(self) -> None:
        """Drops the gradients that were computed so far; a forward pass under way goes on."""
        super().clear()
        self._clipped, self._left_out = None, 0

    def loss(self, loss_fn: Callable[..., Any]) -> Callable[..., GhostValue]:
        """The loss function whose backward pass clips."""
        # Opacus asks the optimizer to clear gradients between its two passes, and no more.
        # Of a loss with shape (B, 1) it would make a table: every record times every factor.
        each = super().loss(loss_fn)
        inner = DPLossFastGradientClipping(self._model, self, each, self.loss_reduction)
        return lambda *args, **kwargs: GhostValue(self, inner, args, kwargs)

    def zero_grad(self) -> None:
        """Clears the gradients of the first pass, which are not clipped."""
        for parameter in self.parameters:
            parameter.grad = None

    def backward(self, value: GhostValue) -> None:
        """Runs both passes and takes over the clipped gradients."""
        self._model.max_grad_norm = self.norm
        if self.compares():
            true = self._norm_of(value.loss.loss_per_sample.flatten()[0])
            found = self._passes(value.loss)
            measured = float(self._model.per_sample_gradient_norms[0])
            refusals.require_same_norm(measured, true, self.norm)
        else:
            found = self._passes(value.loss)
        if not finite(found):
            found = self._without_odd(value)
        self._clipped, self._last = found, None

    def _passes(self, loss: Any) -> list[Tensor]:
        loss.backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        self.zero_grad()
        return found

    def _without_odd(self, value: GhostValue) -> list[Tensor]:
        """The same without the records whose gradient is not finite, which add nothing."""
        kept = self._model.per_sample_gradient_norms.isfinite()
        assert self._last is not None
        args, kwargs, output = self._last
        records, rest = len(kept), kept.nonzero().flatten().tolist()
        if not any(each is output for each in value.args) or len(rest) == records:
            raise ValueError(
                "the loss must be taken of the model's own output for ghost clipping to leave out "
                "a record whose gradient is not finite, got another. Use grad_sampling='onepass'."
            )
        self._left_out = records - len(rest)
        if not rest:
            return [torch.zeros_like(parameter) for parameter in self.parameters]
        models.reset(self.parameters, self._modules)
        args, kwargs, labels, more = selected(
            (args, kwargs, value.args, value.kwargs), records, rest
        )
        again = self._model(*args, **kwargs)
        labels = [
            again if was is output else now for was, now in zip(value.args, labels, strict=True)
        ]
        return self._passes(value.inner(*labels, **more))

    def _norm_of(self, loss: Tensor) -> float:
        """The norm of the gradient of one record's loss, by autograd alone."""
        self._model.disable_hooks()
        grads = torch.autograd.grad(loss, self.parameters, retain_graph=True, allow_unused=True)
        self._model.enable_hooks()
        return math.sqrt(sum(float(g.double().square().sum()) for g in grads if g is not None))


class GhostValue:
    """The loss of one physical batch, which can be read and taken backward."""

    def __init__(self, clipper: GhostClipper, inner: Any, args: Any, kwargs: Any) -> None:
        self._clipper, self.inner, self.args, self.kwargs = clipper, inner, args, kwargs
        self.loss = inner(*args, **kwargs)

    def item(self) -> float:
        """The loss as a number; it is not private."""
        return float(self.loss.item())

    def detach(self) -> Tensor:
        """The loss without its graph; it is not private."""
        tensor: Tensor = self.loss.detach()
        return tensor

    def backward(self) -> None:
        """Computes the clipped gradient and hands it to the optimizer."""
        self._clipper.backward(self)
