# SPDX-License-Identifier: Apache-2.0
"""The scales and shifts of LayerNorm, GroupNorm, RMSNorm and InstanceNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from dosimeter.training.onepass.use import Use, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder


def layer_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """The rule for `functional.layer_norm`."""
    if not recorder.by_record(input) or not recorder.known(weight, bias):
        return NotImplemented
    shape = list(normalized_shape)
    if weight is None or input.dim() == len(shape):
        return NotImplemented
    use = recorder.use(weight, bias)
    plain = recorder.plain(weight, bias)
    return run(_LayerNorm, recorder.anchor, input.to(weight.dtype), *plain, (shape, eps), use)


def group_norm(
    recorder: Recorder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """The rule for `functional.group_norm`."""
    if not recorder.by_record(input) or not recorder.known(weight, bias):
        return NotImplemented
    normed = functional.group_norm(input, num_groups, None, None, eps)
    return _channels(recorder, normed, weight, bias)


def instance_norm(
    recorder: Recorder,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The rule for `functional.instance_norm`."""
    if not recorder.by_record(input) or not recorder.known(weight, bias):
        return NotImplemented
    normed = functional.instance_norm(
        input, running_mean, running_var, None, None, use_input_stats, momentum, eps
    )
    return _channels(recorder, normed, weight, bias)


def rms_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """The rule for `functional.rms_norm`."""
    if not recorder.by_record(input) or not recorder.known(weight) or weight is None:
        return NotImplemented
    if input.dim() == len(normalized_shape):
        return NotImplemented
    normed = functional.rms_norm(input, normalized_shape, None, eps).to(weight.dtype)
    use = recorder.use(weight, None)
    return run(_Affine, recorder.anchor, normed, weight.detach(), None, use)


def _channels(
    recorder: Recorder, normed: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Any:
    """Scale and shift by channel, the dimension after that of the records."""
    shape = (-1, *[1] * (normed.dim() - 2))
    use = recorder.use(weight, bias)
    plain = [None if p is None else p.view(shape) for p in recorder.plain(weight, bias)]
    dtype = next(p.dtype for p in plain if p is not None)
    return run(_Affine, recorder.anchor, normed.to(dtype), *plain, use)


class _Affine(Function):
    """A scale and a shift whose gradients are written down."""

    @staticmethod
    def forward(
        ctx: Any, _: Tensor, input: Tensor, weight: Tensor | None, bias: Tensor | None, use: Use
    ) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.use = use
        ctx.shape = next(p.shape for p in (weight, bias) if p is not None)
        if weight is None:
            assert bias is not None
            return input + bias
        return input * weight if bias is None else torch.addcmul(bias, input, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        ctx.use.begin()
        if ctx.use.weight is not None:
            ctx.use.add(ctx.use.weight, _to_shape(backprops * input, ctx.shape))
        if ctx.use.bias is not None:
            ctx.use.add(ctx.use.bias, _to_shape(backprops, ctx.shape))
        return None, backprops if weight is None else backprops * weight, None, None, None


class _LayerNorm(Function):
    """A layer norm that keeps no second copy of what it normalised."""

    @staticmethod
    def forward(
        ctx: Any,
        _: Tensor,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        options: tuple[list[int], float],
        use: Use,
    ) -> Tensor:
        output, mean, rstd = torch.native_layer_norm(input, options[0], weight, bias, options[1])
        ctx.save_for_backward(input, mean, rstd, weight)
        ctx.use, ctx.size = use, options[0]
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        input, mean, rstd, weight = ctx.saved_tensors
        ctx.use.begin()
        if ctx.use.weight is not None:
            normed = (input - mean).mul_(rstd).mul_(backprops)
            ctx.use.add(ctx.use.weight, _to_shape(normed, weight.shape))
        if ctx.use.bias is not None:
            ctx.use.add(ctx.use.bias, _to_shape(backprops, weight.shape))
        back = torch.ops.aten.native_layer_norm_backward(
            backprops.contiguous(), input, ctx.size, mean, rstd, weight, None, [True, False, False]
        )[0]
        return None, back, None, None, None, None


def _to_shape(rows: Tensor, shape: torch.Size) -> Tensor:
    """The sum over everything but records and the dimensions of a parameter."""
    dims = [1 + k for k in range(rows.dim() - 1 - len(shape))]
    dims += [
        k - len(shape) for k, size in enumerate(shape) if size == 1 != rows.shape[k - len(shape)]
    ]
    summed = rows.sum(dims) if dims else rows
    return summed.reshape(len(rows), -1)
