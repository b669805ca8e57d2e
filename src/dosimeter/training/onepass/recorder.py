# SPDX-License-Identifier: Apache-2.0
"""Recorder: takes over every function that meets a trained parameter in a forward pass.

While it is on, PyTorch hands it each function call. A parameter that meets the records goes
through a rule, which leaves no gradient on it and writes down those of the records instead. A
tensor that is made of parameters and constants alone is remembered and treated as a parameter;
its gradients are brought home in the end. Whatever no rule knows is left to autograd, which
then deposits an ordinary gradient on the parameter: the sign by which the step is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.rules import RULES
from dosimeter.training.onepass.rules.other import SPREADS, each_record, spread, writes
from dosimeter.training.onepass.use import Use


class Recorder(TorchFunctionMode):
    """Writes the gradients of `book.records` records into a book.

    Args:
        book: Where to write.
        trained: The trainable parameters.
        constants: Buffers and frozen parameters.
    """

    def __init__(self, book: Book, trained: Iterable[Tensor], constants: Iterable[Tensor]) -> None:
        super().__init__()
        self.book, self.records = book, book.records
        # A scalar that wants a gradient: without it nothing would be run backward where the
        # input of a layer wants none.
        self.anchor = torch.zeros((), requires_grad=True)
        self.order: Tensor | None = None
        """The order of the packed sequences at hand, or None for that of the batch."""
        self._tracked = {id(tensor): tensor for tensor in trained}
        self._constants = {id(tensor): tensor for tensor in constants}
        self._steps_first = False

    # -- what the rules ask --------------------------------------------------------------

    def tracks(self, tensor: Any) -> bool:
        """Whether this is a trained parameter, or made of such."""
        return id(tensor) in self._tracked

    def is_data(self, value: Any) -> bool:
        """Whether this may hold records: anything that was not made of constants."""
        if not isinstance(value, Tensor) or not value.dim():
            return False
        if id(value) not in self._constants:
            return True
        # Zeros for the first state of a recurrence: one row a record, all rows alike.
        alike = value.dim() > 1 and len(value) == self.records
        return alike and bool((value == value[:1]).all())

    def by_record(self, tensor: Tensor) -> bool:
        """Whether a tensor has one row for each record, as far as its shape can tell."""
        if self._steps_first:
            return True  # inside of attention, which has checked it
        return tensor.dim() > 0 and len(tensor) == self.records

    def known(self, *weights: Tensor | None) -> bool:
        """Whether each of these is a parameter or needs no gradient."""
        return all(w is None or self.tracks(w) or not w.requires_grad for w in weights)

    def plain(self, *weights: Tensor | None) -> list[Any]:
        """The same weights without their gradients."""
        return [None if weight is None else weight.detach() for weight in weights]

    def use(self, weight: Tensor | None, bias: Tensor | None) -> Use:
        """A place to write the gradients of a weight and a bias to, as far as they are trained."""
        return Use(
            self.book,
            weight if self.tracks(weight) else None,
            bias if self.tracks(bias) else None,
            self._steps_first,
        )

    @contextmanager
    def steps_first(self) -> Iterator[None]:
        """Inside of attention: steps come before records, and this mode is on again."""
        self._steps_first = True
        try:
            with self:
                yield
        finally:
            self._steps_first = False

    # -- what PyTorch calls --------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = list(_tensors(args, kwargs))
        if not any(id(tensor) in self._tracked for tensor in tensors):
            return self._untracked(func, tensors, args, kwargs)
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        result = NotImplemented
        if any(not self.tracks(tensor) and self.is_data(tensor) for tensor in tensors):
            rule = RULES.get(func)
            if rule is not None:
                result = rule(self, *args, **kwargs)
            if result is NotImplemented and not self._steps_first:
                result = each_record(self, func, args, kwargs)
            return func(*args, **kwargs) if result is NotImplemented else result
        if func in SPREADS and self.tracks(args[0]):
            result = spread(self, func, args, kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
            self._note(result)
        return result

    def _untracked(self, func: Any, tensors: list[Tensor], args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if all(id(tensor) in self._constants for tensor in tensors):
            self._note(result)
        elif writes(func, kwargs):
            for tensor in tensors:  # a constant that data was written to is none any more
                self._constants.pop(id(tensor), None)
        return result

    def _note(self, result: Any) -> None:
        """Remembers what was made of parameters and constants alone."""
        for tensor in _tensors((result,), {}):
            made = self._tracked if tensor.requires_grad else self._constants
            made[id(tensor)] = tensor


def _tensors(args: Any, kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, Tensor):
                    yield item
