# SPDX-License-Identifier: Apache-2.0
"""Use: one call of a function with parameters, and where its backward pass writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.entries import Entry, Rows, linear_entry


def run(function: Any, *args: Any) -> Any:
    """The result of one of our functions for autograd."""
    return function.apply(*args)


def exactly(backward: Callable[..., Any]) -> Any:
    """A backward pass that cannot be differentiated again, nor be cast to half precision."""

    def full(ctx: Any, backprops: Tensor) -> Any:
        with torch.autocast(backprops.device.type, enabled=False):
            return backward(ctx, backprops)

    return once_differentiable(full)


@dataclass
class Use:
    """What a function needs to write down the gradients of its weight and its bias.

    A weight or a bias that is not trained is None here. `steps_first` says that records lie in
    the last dimension but one, as inside of attention.
    """

    book: Book
    weight: Tensor | None
    bias: Tensor | None
    steps_first: bool = False
    used: bool = False

    def begin(self) -> None:
        """Notes a second backward pass, which would count every record twice."""
        self.book.repeated = self.book.repeated or self.used
        self.used = True

    def add(self, target: Tensor | None, entry: Entry | Tensor) -> None:
        """Writes down gradients, if that parameter is trained."""
        if target is not None:
            self.book.add(target, Rows(entry) if isinstance(entry, Tensor) else entry)

    def add_linear(self, inputs: Tensor, backprops: Tensor) -> None:
        """Writes down the gradients of a linear map and of its bias."""
        inputs, backprops = self._by_record(inputs.detach()), self._by_record(backprops)
        if self.weight is not None:
            dtype = self.weight.dtype
            self.add(self.weight, linear_entry(inputs.to(dtype), backprops.to(dtype)))
        if self.bias is not None:
            rows = backprops.to(self.bias.dtype)
            self.add(self.bias, rows.flatten(1, -2).sum(1) if rows.dim() > 2 else rows)

    def _by_record(self, tensor: Tensor) -> Tensor:
        if not self.steps_first:
            return tensor
        return tensor.reshape(-1, self.book.records, tensor.shape[-1]).transpose(0, 1)
