# SPDX-License-Identifier: Apache-2.0
"""OnePassClipper: the clipped sums of a batch, out of the book that its passes have written."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dosimeter.errors import TicketError
from dosimeter.training.clipping import Clipper
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.onepass.module import OnePassModule


class OnePassClipper(Clipper):
    """Clips what one forward and one backward pass through the wrapped model wrote down."""

    def __init__(
        self,
        model: OnePassModule,
        parameters: list[nn.Parameter],
        *,
        loss_reduction: str,
        clipping: Clipping = Clipping.FLAT,
    ) -> None:
        super().__init__(model, parameters, loss_reduction=loss_reduction, clipping=clipping)
        self._model = model

    def clear(self) -> None:
        """Drops the gradients that were computed so far; a forward pass under way goes on."""
        self._model.clear()

    def forget(self, size: int) -> None:
        """Drops whatever a pass that was not finished left; `size` records come next."""
        for parameter in self._model.trained.values():
            parameter.grad = None
        self._model.begin(size)

    def hand_out(self, batch: Any) -> None:
        """Remembers what the loader gave, to compare with what the model is run on."""
        self._model.expect(batch)

    def sums(self, size: int) -> list[Tensor]:
        """The clipped sum for each parameter; a record without a finite gradient adds nothing."""
        book, passes = self._model.take()
        if book is None or not len(book):
            self._require(0, size)
            raise AssertionError
        if passes != 1 or book.repeated:
            self._require(size * max(passes, 2), size)
        parameters = list(self._model.trained.values())  # whole, where ours may be shards
        for own, parameter in zip(self.parameters, parameters, strict=True):
            if parameter.grad is not None:
                raise TicketError(
                    "every parameter must meet the records in a way that keeps them apart, got "
                    f"{self.names[id(own)]!r} used outside of the model, in the loss, or by "
                    "an operation without a rule. Keep records in the first dimension, put "
                    "penalties into the optimizer's weight_decay, or wrap the operation in a "
                    "function of one batch."
                )
        self._model.require_examined()
        scale = float(size) if self.mean else 1.0
        return book.clipped_sums(parameters, self.norm, scale, self.clipping)
