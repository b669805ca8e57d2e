# SPDX-License-Identifier: Apache-2.0
"""Embeddings: the gradient of a record touches the rows of its own tokens only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from dosimeter.training.onepass.entries import Lookup
from dosimeter.training.onepass.use import Use, exactly, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder


def embed(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """The rule for `functional.embedding`."""
    if scale_grad_by_freq or sparse or max_norm is not None:
        raise ValueError(
            "an embedding must not scale gradients by how often tokens occur in the batch, nor "
            "renormalise its rows, nor have sparse gradients, got one that does. Leave "
            "scale_grad_by_freq, max_norm and sparse out."
        )
    if not recorder.by_record(input) or not recorder.known(weight):
        return NotImplemented
    if padding_idx is not None and padding_idx < 0:
        padding_idx += len(weight)
    use = recorder.use(weight, None)
    return run(_Embed, recorder.anchor, input, weight.detach(), padding_idx, use)


class _Embed(Function):
    """A lookup whose gradient is written down."""

    @staticmethod
    def forward(
        ctx: Any, _: Tensor, tokens: Tensor, weight: Tensor, padding: int | None, use: Use
    ) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.padding, ctx.use, ctx.size = padding, use, len(weight)
        return functional.embedding(tokens, weight)

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        (tokens,) = ctx.saved_tensors
        ctx.use.begin()
        grads = backprops.to(ctx.use.weight.dtype)
        if ctx.padding is not None:
            grads = grads.masked_fill((tokens == ctx.padding).unsqueeze(-1), 0.0)
        ctx.use.add(ctx.use.weight, Lookup(tokens.reshape(len(tokens), -1), grads, ctx.size))
        return None, None, None, None, None
