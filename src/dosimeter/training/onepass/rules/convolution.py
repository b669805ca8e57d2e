# SPDX-License-Identifier: Apache-2.0
"""Convolutions of one to three dimensions, with any stride, dilation, groups and padding.

The gradients of all records are the weight gradient of one convolution in which every record
is a group of its own. Padding that is not zeros comes as an operation before, so it needs no
rule here; padding="same" is made one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from dosimeter.training.onepass.entries import Entry, Reordered, Rows, linear_entry
from dosimeter.training.onepass.use import Use, exactly, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder

_FEW = 64
"""With so few places or less, a linear map on the patches is faster than groups."""

Sizes = int | list[int] | tuple[int, ...]


def convolve(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Any:
    """The rule for `conv1d`, `conv2d` and `conv3d`."""
    size = weight.dim() - 2
    batched = input.dim() == weight.dim() and recorder.by_record(input)
    if not batched or not recorder.known(weight, bias):
        return NotImplemented
    stride, dilation = _sizes(stride, size), _sizes(dilation, size)
    if isinstance(padding, str):
        input, padding = _padded(input, weight, dilation, padding), 0
    options = (stride, _sizes(padding, size), dilation, groups)
    use = recorder.use(weight, bias)
    return run(_Convolve, recorder.anchor, input, *recorder.plain(weight, bias), options, use)


class _Convolve(Function):
    """A convolution without a gradient of its weight, which is written down instead."""

    @staticmethod
    def forward(
        ctx: Any,
        _: Tensor,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        options: tuple[Any, ...],
        use: Use,
    ) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.options, ctx.use = options, use
        stride, padding, dilation, groups = options
        still = [0] * len(stride)
        return torch.convolution(
            *_same_type(input, weight, bias), stride, padding, dilation, False, still, groups
        )

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.options
        ctx.use.begin()
        if ctx.use.weight is not None:
            full = input.detach().to(weight.dtype), backprops.to(weight.dtype)
            ctx.use.add(ctx.use.weight, _entry(*full, weight, ctx.options))
        if ctx.use.bias is not None:
            ctx.use.add(ctx.use.bias, backprops.flatten(2).sum(2, dtype=ctx.use.bias.dtype))
        back = None
        if ctx.needs_input_grad[1]:
            dtype, still = backprops.dtype, [0] * len(stride)
            back = torch.ops.aten.convolution_backward(
                backprops, input.to(dtype), weight.to(dtype), None, stride, padding, dilation,
                False, still, groups, [True, False, False],
            )[0].to(input.dtype)  # fmt: skip
        return None, back, None, None, None, None


def _entry(input: Tensor, backprops: Tensor, weight: Tensor, options: tuple[Any, ...]) -> Entry:
    """The gradients of the weight, by the road that was fastest for such sizes."""
    stride, padding, dilation, groups = options
    records, size = len(input), len(stride)
    shape = weight.shape[2:]
    if shape.numel() == 1 and groups == 1 and stride == [1] * size and not any(padding):
        inputs, outputs = (each.flatten(2).transpose(1, 2) for each in (input, backprops))
        return linear_entry(inputs, outputs)
    if groups == 1 and backprops.shape[2:].numel() <= _FEW:
        patches = _patches(input, weight, backprops.shape[2:], options)
        steps = backprops.flatten(2).transpose(1, 2)
        sizes = (weight.shape[0], *shape, weight.shape[1])
        return Reordered(linear_entry(patches, steps), sizes, 1)
    sizes = (records * weight.shape[0], *weight.shape[1:])
    rows: Tensor = torch.ops.aten.convolution_backward(
        backprops.reshape(1, -1, *backprops.shape[2:]),
        input.reshape(1, -1, *input.shape[2:]),
        weight.new_empty(sizes),
        None, stride, padding, dilation, False, [0] * size, records * groups, [False, True, False],
    )[1]  # fmt: skip
    return Rows(rows.view(records, -1))


def _patches(input: Tensor, weight: Tensor, places: torch.Size, options: tuple[Any, ...]) -> Tensor:
    """The patch of the input at each place, (records, places, patch), its channels last.

    Channels lie side by side, so that a patch is copied in long runs: ten times faster than
    `functional.unfold`, which copies value by value.
    """
    stride, padding, dilation, _ = options
    around = [pad for each in reversed(padding) for pad in (each, each)]
    padded = functional.pad(input.movedim(1, -1), [0, 0, *around]).contiguous()
    first, *steps, last = padded.stride()
    moves = [step * each for step, each in zip(steps, stride, strict=True)]
    taps = [step * each for step, each in zip(steps, dilation, strict=True)]
    sizes = (len(input), *places, *weight.shape[2:], input.shape[1])
    found = padded.as_strided(sizes, (first, *moves, *taps, last))
    return found.reshape(len(input), places.numel(), -1)


def _padded(input: Tensor, weight: Tensor, dilation: list[int], padding: str) -> Tensor:
    """The input with the zeros of padding="same", which may be more on one side."""
    if padding == "valid":
        return input
    pads: list[int] = []
    for length, step in zip(reversed(weight.shape[2:]), reversed(dilation), strict=True):
        total = step * (length - 1)
        pads.extend([total // 2, total - total // 2])
    return functional.pad(input, pads)


def _sizes(value: Sizes, size: int) -> list[int]:
    if isinstance(value, int):
        return [value] * size
    return list(value) * (size if len(value) == 1 else 1)


def _same_type(
    input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What autocast would make of the arguments; the low-level convolution is not in its list."""
    kind = input.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    return input.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
