# SPDX-License-Identifier: Apache-2.0
"""Everything else: parameters that are spread over the batch, and any function of records.

What has no rule of its own is differentiated for every record by itself (`torch.func`), which
needs that the function treats the first dimension as that of the records; the self-test of the
first batches would see it if it does not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils import _pytree as pytree

from dosimeter.training.onepass.use import Use, exactly, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder

SPREADS = {
    torch.Tensor.expand,
    torch.Tensor.expand_as,
    torch.Tensor.repeat,
    torch.Tensor.broadcast_to,
    torch.broadcast_to,
}


_READS = {"__int__", "__index__", "__invert__"}


def spread(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A parameter repeated for each record, such as the class token of a transformer."""
    parameter = args[0]
    plain = func(parameter.detach(), *args[1:], **kwargs)
    shape = plain.shape
    extra = len(shape) - parameter.dim()
    lead = extra > 0 or (parameter.dim() > 0 and parameter.shape[0] == 1)
    fits = all(
        have in (1, want)
        for have, want in zip(parameter.shape, shape[extra:], strict=True)
    )  # fmt: skip
    if not (lead and fits and len(shape) and shape[0] == recorder.records):
        return NotImplemented
    return run(_Spread, recorder.anchor, plain, parameter.shape, recorder.use(parameter, None))


class _Spread(Function):
    """Copies of a parameter whose gradients are written down."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, plain: Tensor, shape: torch.Size, use: Use) -> Tensor:
        ctx.shape, ctx.use = shape, use
        return plain.clone()

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        ctx.use.begin()
        shape = ctx.shape if len(ctx.shape) < backprops.dim() else ctx.shape[1:]
        one = backprops.new_zeros(shape)
        rows = torch.vmap(lambda row: row.sum_to_size(one.shape))(backprops)
        ctx.use.add(ctx.use.weight, rows)
        return None, None, None, None


def writes(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a function changes one of its arguments."""
    name: str = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    in_place = in_place or (name.startswith("__i") and name not in _READS)
    return in_place or name == "__setitem__" or "out" in kwargs


def each_record(recorder: Recorder, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Any function of records and parameters, differentiated for each record by itself."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    weights = [i for i, leaf in enumerate(leaves) if recorder.tracks(leaf)]
    rows = [i for i, leaf in enumerate(leaves) if i not in weights and recorder.is_data(leaf)]
    if not rows or any(not recorder.by_record(leaves[i]) for i in rows):
        return NotImplemented
    if writes(func, kwargs):
        return NotImplemented

    def call(weight_values: Any, row_values: Any) -> Any:
        filled = list(leaves)
        for i, value in zip([*weights, *rows], [*weight_values, *row_values], strict=True):
            filled[i] = value
        new_args, new_kwargs = pytree.tree_unflatten(filled, spec)
        return func(*new_args, **new_kwargs)

    plain = [leaves[i].detach() for i in weights]
    one = call(plain, [leaves[i].detach()[:1] for i in rows])
    uses = [recorder.use(leaves[i], None) for i in weights]
    fits = isinstance(one, Tensor) and one.is_floating_point() and one.dim() > 0 and len(one) == 1
    if not fits:
        return NotImplemented
    inputs = [leaves[i] for i in rows]
    output = run(_EachRecord, recorder.anchor, call, plain, uses, *inputs)
    return output if output.shape == (recorder.records, *one.shape[1:]) else NotImplemented


class _EachRecord(Function):
    """A function of records whose parameters' gradients are written down."""

    @staticmethod
    def forward(
        ctx: Any, _: Tensor, call: Any, plain: list[Tensor], uses: list[Use], *inputs: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.call, ctx.plain, ctx.uses = call, plain, uses
        output: Tensor = call(plain, inputs)
        return output.clone() if any(output is tensor for tensor in inputs) else output

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Any, ...]:
        inputs = ctx.saved_tensors
        floating = [i for i, tensor in enumerate(inputs) if tensor.is_floating_point()]

        def one(g: Tensor, *rows: Tensor) -> Any:
            def of(weights: Any, values: Any) -> Any:
                filled = [row.unsqueeze(0) for row in rows]
                for i, value in zip(floating, values, strict=True):
                    filled[i] = value
                return ctx.call(weights, filled)

            back = torch.func.vjp(of, ctx.plain, [rows[i].unsqueeze(0) for i in floating])[1]
            return back(g.unsqueeze(0))

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")
            weight_rows, input_rows = torch.vmap(one)(backprops, *inputs)
        for use, rows in zip(ctx.uses, weight_rows, strict=True):
            use.begin()
            use.add(use.weight, rows)
        backs: list[Tensor | None] = [None] * len(inputs)
        for i, rows in zip(floating, input_rows, strict=True):
            backs[i] = rows.squeeze(1)
        return (None, None, None, None, *backs)
