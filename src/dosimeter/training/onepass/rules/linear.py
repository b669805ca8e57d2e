# SPDX-License-Identifier: Apache-2.0
"""Linear maps, on one vector or a sequence of vectors for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from dosimeter.training.onepass.use import Use, exactly, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder


_FEW = 16
"""So few outputs or less are had faster from pieces of the batch, weights first."""

_PIECE = 256


def linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """The rule for `functional.linear`."""
    if not recorder.by_record(input) or not recorder.known(weight, bias):
        return NotImplemented
    use = recorder.use(weight, bias)
    return run(_Linear, recorder.anchor, input, *recorder.plain(weight, bias), use)


class _Linear(Function):
    """A linear map without a gradient of its weight, which is written down instead."""

    @staticmethod
    def forward(
        ctx: Any, _: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None, use: Use
    ) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.use = use
        return _product(input, weight, bias)

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        ctx.use.begin()
        ctx.use.add_linear(input, backprops)
        back = None
        if ctx.needs_input_grad[1]:
            back = backprops.matmul(weight.to(backprops.dtype)).to(input.dtype)
        return None, back, None, None, None


def _product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What `functional.linear` gives; twice as fast on a CPU for one vector a record."""
    kind, whole = input.device.type, len(input) - len(input) % _PIECE
    narrow = input.dim() == 2 and len(weight) <= _FEW and whole > 0
    if not narrow or kind != "cpu" or torch.is_autocast_enabled(kind):
        return functional.linear(input, weight, bias)
    pieces = torch.unflatten(input[:whole], 0, (-1, _PIECE))
    found = torch.bmm(weight.expand(len(pieces), -1, -1), pieces.mT).mT.flatten(0, 1)
    if whole < len(input):
        found = torch.cat([found, functional.linear(input[whole:], weight)])
    return found if bias is None else found.add_(bias)
