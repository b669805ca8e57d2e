# SPDX-License-Identifier: Apache-2.0
"""The scales and shifts of LayerNorm, GroupNorm, RMSNorm and InstanceNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from dosimeter.training.onepass.use import Use, exactly, run

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
    if not recorder.by_record(input) or not recorder.known(weight, bias) or weight is None:
        return NotImplemented
    use = recorder.use(weight, bias)
    plain = recorder.plain(weight, bias)
    options = (num_groups, eps)
    return run(_GroupNorm, recorder.anchor, input.to(weight.dtype), *plain, options, use)


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
    if running_mean is not None or running_var is not None:
        return NotImplemented

    def norm(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return functional.instance_norm(x, None, None, w, b, use_input_stats, momentum, eps)

    return _scaled(recorder, norm, input, weight, bias, (-1, *[1] * (input.dim() - 2)))


def rms_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """The rule for `functional.rms_norm`."""
    if input.dim() == len(normalized_shape):
        return NotImplemented

    def norm(x: Tensor, w: Tensor | None, _: Tensor | None) -> Tensor:
        return functional.rms_norm(x, normalized_shape, w, eps)

    return _scaled(recorder, norm, input, weight, None, tuple(normalized_shape))


Norm = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


def _scaled(
    recorder: Recorder,
    norm: Norm,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    shape: tuple[int, ...],
) -> Any:
    if not recorder.by_record(input) or not recorder.known(weight, bias) or input.dim() < 2:
        return NotImplemented
    dtype = next(p.dtype for p in (weight, bias) if p is not None)
    use = recorder.use(weight, bias)
    plain = recorder.plain(weight, bias)
    return run(_Scaled, recorder.anchor, input.to(dtype), *plain, (norm, shape), use)


class _Scaled(Function):
    """A norm with a scale and a shift; it normalises again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        _: Tensor,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        options: tuple[Norm, tuple[int, ...]],
        use: Use,
    ) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.norm, ctx.shape = options
        ctx.use = use
        return ctx.norm(input, weight, bias)  # type: ignore[no-any-return]

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        ctx.use.begin()
        weight = None if weight is None else weight.view(ctx.shape)
        with torch.enable_grad():
            again = input.detach().requires_grad_()
            normed = ctx.norm(again, None, None)
        if ctx.use.weight is not None:
            sizes = ctx.use.weight.view(ctx.shape).shape
            ctx.use.add(ctx.use.weight, _to_shape(backprops * normed.detach(), sizes))
        if ctx.use.bias is not None:
            sizes = ctx.use.bias.view(ctx.shape).shape
            ctx.use.add(ctx.use.bias, _to_shape(backprops, sizes))
        back = None
        if ctx.needs_input_grad[1]:
            scaled = backprops if weight is None else backprops * weight
            (back,) = torch.autograd.grad(normed, again, scaled)
        return None, back, None, None, None, None


class _GroupNorm(Function):
    """A group norm whose scale and shift have their gradients written down."""

    @staticmethod
    def forward(
        ctx: Any,
        _: Tensor,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        options: tuple[int, float],
        use: Use,
    ) -> Tensor:
        groups, eps = options
        records, channels, places = len(input), input.shape[1], input.shape[2:].numel()
        ctx.sizes = (records, channels, places, groups)
        input = input.contiguous()
        output, mean, rstd = torch.native_group_norm(
            input, weight, bias, records, channels, places, groups, eps
        )
        ctx.save_for_backward(input, mean, rstd, weight)
        ctx.use = use
        return output

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        input, mean, rstd, weight = ctx.saved_tensors
        ctx.use.begin()
        records, channels, places, groups = ctx.sizes
        whole = (1, records * channels, places)
        # One record whose channels are those of all: its gradients are those of the records.
        back, scales, shifts = torch.ops.aten.native_group_norm_backward(
            backprops.contiguous().view(whole), input.view(whole), mean.view(1, -1),
            rstd.view(1, -1), weight.repeat(records), *whole, records * groups,
            [ctx.needs_input_grad[1], ctx.use.weight is not None, ctx.use.bias is not None],
        )  # fmt: skip
        for parameter, grads in ((ctx.use.weight, scales), (ctx.use.bias, shifts)):
            if parameter is not None:
                ctx.use.add(parameter, grads.view(records, channels))
        back = None if back is None else back.view_as(input)
        return None, back, None, None, None, None


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
    @exactly
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
