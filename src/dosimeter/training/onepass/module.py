# SPDX-License-Identifier: Apache-2.0
"""OnePassModule: the model, whose training passes are written into a book."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from dosimeter.errors import TicketError
from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.mixing import require_unmixed
from dosimeter.training.onepass.recorder import Recorder
from dosimeter.training.onepass.records import happens, has_records
from dosimeter.training.onepass.selftest import SelfTest
from dosimeter.training.onepass.watched import Tape

FIRST = 2
"""How many batches are tested for sure."""

ONE_IN = 512
"""Of the others, one in so many is tested, at random."""


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
        self._seen = 0
        self._given: Any = None
        self._tape: Tape | None = None
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
        self._book, self._passes, self._tape = Book(records), 0, None

    def expect(self, batch: Any) -> None:
        """Remembers what the loader gave, for the self-test to compare."""
        self._given = batch

    @property
    def inner(self) -> nn.Module:
        """The model as it is."""
        return self._module

    def clear(self) -> None:
        """Drops what the backward pass has written so far; a forward pass under way goes on."""
        if self._book is not None:
            self._book.clear()

    def take(self) -> tuple[Book | None, int]:
        """The book of the batch, and how often the model was run."""
        book, self._book, self._given = self._book, None, None
        return book, self._passes

    def require_examined(self) -> None:
        """Raises if the batch was one to test and some part of the test never came to pass."""
        tape, self._tape = self._tape, None
        if tape is not None and not tape.examined:
            raise TicketError(
                "a batch that is tested for records that touch each other must show all of its "
                "way, got one that left the path from inputs to loss. Give the model tensors with "
                "one row for each record, or tuples, lists and dictionaries of them, have it "
                "return such, and call loss.backward() on a loss that torch operations made of "
                "them, or engine.private_loss(loss_fn)."
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the model."""
        if self._book is None or not self.training or not torch.is_grad_enabled():
            return self._module(*args, **kwargs)
        self._passes += 1
        records = self._book.records
        if not self._due():
            return self.recorded(self._book, *args, **kwargs)
        self._tape = tape = Tape(records)
        if not has_records((args, kwargs), records):
            return self.recorded(self._book, *args, **kwargs)
        require_unmixed(self._given, (args, kwargs), records)
        SelfTest(self, records, args, kwargs).run()
        return tape.watch(self.recorded(self._book, *args, **kwargs))

    def _due(self) -> bool:
        """Whether this batch is tested: the first ones are, and later ones at random."""
        self._seen += 1
        return self._seen <= FIRST or happens(ONE_IN)

    def recorded(self, book: Book, *args: Any, **kwargs: Any) -> Any:
        """The output of the model, whose backward pass will write into `book`."""
        return self.recording(book, self, *args, **kwargs)

    @property
    def trained(self) -> dict[str, Tensor]:
        """The trainable parameters."""
        return {name: p for name, p in self._module.named_parameters() if p.requires_grad}

    @property
    def constants(self) -> list[Tensor]:
        """Buffers and frozen parameters."""
        frozen = [p for p in self._module.parameters() if not p.requires_grad]
        return [*frozen, *self._module.buffers()]

    def recording(self, book: Book, twin: Any, *args: Any, **kwargs: Any) -> Any:
        """The same for a twin of the model, with parameters of its own."""
        self._recorder = Recorder(book, twin.trained.values(), twin.constants)
        try:
            with self._recorder:
                return (self._module if twin is self else twin)(*args, **kwargs)
        finally:
            self._recorder = None

    def _note_order(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._recorder is not None and inputs:
            packed = isinstance(inputs[0], PackedSequence)
            order: Tensor | None = inputs[0].sorted_indices if packed else None
            self._recorder.order = order
