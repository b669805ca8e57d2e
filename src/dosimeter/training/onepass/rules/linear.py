# SPDX-License-Identifier: Apache-2.0
"""Linear maps, on one vector or a sequence of vectors for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from dosimeter.training.onepass.use import Use, exactly, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder


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
        return functional.linear(input, weight, bias)

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
