# SPDX-License-Identifier: Apache-2.0
"""Clipper: the seam between whoever computes clipped sums and the optimizer that releases them.

A clipper turns the backward pass over one physical batch into the sum of its records'
gradients, each clipped to a norm that the optimizer sets. It adds no noise, divides by
nothing and knows no other batch; all of that is the optimizer's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from dosimeter.errors import TicketError
from dosimeter.training import models, refusals
from dosimeter.training.losses import RecordLoss
from dosimeter.training.onepass.entries import added
from dosimeter.training.onepass.factors import Clipping


class Clipper(ABC):
    """Gives the clipped sum of a physical batch, once for each.

    For every physical batch the optimizer calls `forget`, the training loop runs forward and
    backward, and the optimizer calls `sums`. Before the first batch of a step it sets `norm`.
    `clear` comes whenever the loop calls `zero_grad`, between forward and backward too.

    Args:
        model: The wrapped model.
        parameters: Its trainable parameters, in the order in which sums are given.
        loss_reduction: "mean" or "sum", as the loss function has it.
        clipping: How the gradient of a record is kept within the norm.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: list[nn.Parameter],
        *,
        loss_reduction: str,
        clipping: Clipping = Clipping.FLAT,
    ) -> None:
        self.parameters, self.clipping = parameters, clipping
        self.loss_reduction, self.mean = loss_reduction, loss_reduction == "mean"
        self.norm = math.nan
        self.names = {id(p): name for name, p in model.named_parameters()}
        self._compared = 0
        self._modules = list(model.modules())

    @abstractmethod
    def sums(self, size: int) -> list[torch.Tensor]:
        """The clipped sum for each parameter, all finite; takes it, so that none can be had twice.

        The optimizer writes over these tensors, so they must be its own.

        Raises:
            TicketError: The gradients at hand are not those of exactly `size` records, once each.
        """

    def clear(self) -> None:
        """Drops the gradients that were computed so far; a forward pass under way goes on."""
        for parameter in self.parameters:
            # torch's expanded weights refuse to run the model while they are there.
            parameter.grad_sample = None  # type: ignore[attr-defined]

    def forget(self, size: int) -> None:
        """Drops whatever a pass that was not finished left; `size` records come next."""
        self.clear()
        for parameter in self.parameters:
            parameter.grad = None
        models.reset(self.parameters, self._modules)

    def hand_out(self, batch: Any) -> None:  # noqa: B027
        """Sees the records that the loop is given next."""

    def compares(self) -> bool:
        """Whether the batch at hand is one of the first, which are compared with autograd."""
        self._compared += 1
        return self._compared <= refusals.CHECKED

    def loss(self, loss_fn: Callable[..., Any]) -> Callable[..., Any]:
        """The loss function to train with, which takes each record by itself."""
        return RecordLoss(loss_fn, mean=self.mean)

    def _require(self, found: int, size: int) -> None:
        if found != size:
            raise TicketError(
                f"the model must be run once, forward and backward, on the {size} "
                f"records of the batch, got gradients of {found}. Call "
                "loss.backward() once before optimizer.step()."
            )


class SampleClipper(Clipper):
    """Clips the gradient of each record, which Opacus' hooks or expanded weights keep whole."""

    def sums(self, size: int) -> list[torch.Tensor]:
        """The clipped sum for each parameter; a record without a finite gradient adds nothing."""
        samples = [_samples(parameter) for parameter in self.parameters]
        for sample in samples:
            self._require(0 if sample is None else len(sample), size)
        whole = [sample for sample in samples if sample is not None]
        if self.compares():
            refusals.require_same_sum(self.parameters, self.names, whole)
        found = self._clipped(whole)
        if not finite(found):
            # Clipped, it would still be not a number, and one record would ruin the sum for all.
            rows = [sample.flatten(start_dim=1).isfinite().all(dim=1) for sample in whole]
            kept = torch.stack(rows).all(dim=0)
            found = self._clipped(
                [s.where(kept.view(-1, *[1] * (s.dim() - 1)), 0.0) for s in whole]
            )
        self.clear()
        return found

    def _clipped(self, samples: list[torch.Tensor]) -> list[torch.Tensor]:
        norms = torch.stack([s.flatten(start_dim=1).norm(2, dim=1) for s in samples])
        factors = self.norm / self.clipping.lengths(norms.norm(2, dim=0) + 1e-6, self.norm)
        return [
            added(
                factors.to(parameter.dtype).unsqueeze(1),
                sample.to(parameter.dtype).flatten(start_dim=1),
            ).view_as(parameter)
            for parameter, sample in zip(self.parameters, samples, strict=True)
        ]


def finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether no value is infinite or not a number."""
    # One sum is cheaper than looking at each value; finite ones may overflow, which only
    # means a second look.
    return all(
        math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all()) for tensor in tensors
    )


def _samples(parameter: nn.Parameter) -> torch.Tensor | None:
    found = getattr(parameter, "grad_sample", None)
    if isinstance(found, list):
        return torch.cat(found)
    sample: torch.Tensor | None = found
    return sample
