# SPDX-License-Identifier: Apache-2.0
"""Clipper: the seam between the recorded gradients and the optimizer that releases their sum.

A clipper turns the backward pass over one physical batch into the sum of its records'
gradients, each clipped to a norm that the optimizer sets. It adds no noise, divides by
nothing and knows no other batch; all of that is the optimizer's.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from dosimeter.errors import TicketError
from dosimeter.training.onepass import OnePassModule
from dosimeter.training.onepass.factors import Clipping


class Clipper:
    """The clipped sums of physical batches, from what one pass over each has written down.

    For every physical batch the optimizer calls `forget`, the training loop runs forward and
    backward, and the optimizer calls `sums`. Before the first batch of a step it sets `norm`.
    `clear` comes whenever the loop calls `zero_grad`, between forward and backward too.

    Args:
        model: The wrapped model.
        mean: Whether the loss is a mean over the batch, not a sum.
        clipping: How the gradient of a record is kept within the norm.
    """

    def __init__(
        self, model: OnePassModule, *, mean: bool, clipping: Clipping = Clipping.FLAT
    ) -> None:
        self._model, self.mean, self.clipping = model, mean, clipping
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        """The trainable parameters, in the order in which sums are given."""
        self.norm = math.nan
        self._names = {id(p): name for name, p in model.named_parameters()}

    def clear(self) -> None:
        """Drop the gradients that were computed so far; a forward pass under way goes on."""
        self._model.clear()

    def forget(self, size: int) -> None:
        """Drop whatever a pass that was not finished left; `size` records come next."""
        for parameter in self._model.trained.values():
            parameter.grad = None
        self._model.begin(size)

    def hand_out(self, batch: Any) -> None:
        """Remember what the loader gave, to compare with what the model is run on."""
        self._model.expect(batch)

    def sums(self, size: int) -> list[Tensor]:
        """Return the clipped sum for each parameter; each batch gives its sums only once.

        A record without a finite gradient adds nothing. The optimizer writes over the tensors.

        Raises:
            TicketError: The gradients at hand are not those of exactly `size` records, once each.
        """
        book, passes = self._model.take()
        if book is None or not len(book):
            raise _miscounted(0, size)
        if passes != 1 or book.repeated:
            raise _miscounted(size * max(passes, 2), size)
        parameters = list(self._model.trained.values())  # whole, where ours may be shards
        for own, parameter in zip(self.parameters, parameters, strict=True):
            if parameter.grad is not None:
                raise TicketError(
                    "every parameter must meet the records in a way that keeps them apart, got "
                    f"{self._names[id(own)]!r} used outside of the model, in the loss, or by "
                    "an operation without a rule. Keep records in the first dimension, put "
                    "penalties into the optimizer's weight_decay, or wrap the operation in a "
                    "function of one batch."
                )
        self._model.require_examined()
        scale = float(size) if self.mean else 1.0
        return book.clipped_sums(parameters, self.norm, scale, self.clipping)


def _miscounted(found: int, size: int) -> TicketError:
    return TicketError(
        f"the model must be run once, forward and backward, on the {size} records of the batch, "
        f"got gradients of {found}. Call loss.backward() once before optimizer.step()."
    )
