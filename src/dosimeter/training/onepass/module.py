# SPDX-License-Identifier: Apache-2.0
"""OnePassModule: the model, whose training passes are written into a book."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.recorder import Recorder


class OnePassModule(nn.Module):
    """Wraps a model that stays as it is; only passes through this wrapper are recorded.

    Between `begin` and `take` one forward and one backward pass in training mode write the
    gradients of all records into a book. Any other pass is the plain model's.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._book: Book | None = None
        self._passes = 0
        self._recorder: Recorder | None = None
        for layer in module.modules():
            if isinstance(layer, nn.RNNBase):
                layer.register_forward_pre_hook(self._note_order)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["_module"], name)

    def begin(self, records: int) -> None:
        """Opens a book for the next batch of so many records, and drops the one before."""
        self._book, self._passes = Book(records), 0

    def take(self) -> tuple[Book | None, int]:
        """The book of the batch, which is closed by this, and how often the model was run."""
        book, self._book = self._book, None
        return book, self._passes

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the model."""
        if self._book is None or not self.training or not torch.is_grad_enabled():
            return self._module(*args, **kwargs)
        self._passes += 1
        return self.recorded(self._book, *args, **kwargs)

    def recorded(self, book: Book, *args: Any, **kwargs: Any) -> Any:
        """The output of the model, whose backward pass will write into `book`."""
        trained = [p for p in self._module.parameters() if p.requires_grad]
        frozen = [p for p in self._module.parameters() if not p.requires_grad]
        self._recorder = Recorder(book, trained, [*frozen, *self._module.buffers()])
        try:
            with self._recorder:
                return self._module(*args, **kwargs)
        finally:
            self._recorder = None

    def _note_order(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._recorder is not None and inputs:
            packed = isinstance(inputs[0], PackedSequence)
            order: Tensor | None = inputs[0].sorted_indices if packed else None
            self._recorder.order = order
