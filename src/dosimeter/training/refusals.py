# SPDX-License-Identifier: Apache-2.0
"""What Opacus' modes would clip wrongly, refused before it is trained on or on the first batch.

A record's gradient is bounded only if its norm is measured on the gradient that is summed.
Where the two part (rows in another order, padding that is not zeros, differences that cancel,
weights used behind the layer's back), one record was seen to move the sum by many times the
bound. What shows in the model is refused at once; the rest is compared with autograd.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from opacus.layers.dp_rnn import DPRNNBase
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from dosimeter.errors import TicketError

CHECKED = 3
"""How many physical batches are compared with autograd."""

TOLERANCE = 1e-3
"""How far rounding may take two roads to one gradient apart, relative to its norm."""

_ELSEWHERE = (
    "a weight that is used outside its own layer, a term of the loss without records, or channels "
    "that come last in memory, which Opacus misreads"
)


def refuse_precision(model: nn.Module) -> None:
    """Raises if a trainable parameter has half precision: its sums would not keep the bound."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"model must have trainable parameters in float32 or float64, got {name!r} in "
                f"{parameter.dtype}: sums of clipped gradients round past their bound there. Call "
                "model.float(), and use torch.autocast for speed."
            )


def refuse_wrapped(model: nn.Module) -> None:
    """Raises for models that were compiled: their layers cannot be seen any more."""
    for name, module in model.named_modules():
        compiled = getattr(module, "_compiled_call_impl", None) is not None
        if compiled or type(module).__name__ == "OptimizedModule":
            raise ValueError(
                f"model must not be compiled, got {name or 'the whole'!r} so: a compiled layer "
                "hides the gradients of its records. Pass the model as it was before."
            )


def refuse_shards(model: nn.Module) -> None:
    """Raises for models that were cut over ranks: Opacus knows nothing of the other parts."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "device_mesh"):
            raise ValueError(
                f"model must hold whole parameters on every rank, got a shard of {name!r}: the "
                "norm of a record spans all of them. Use grad_sampling='onepass', or leave "
                "fully_shard out: make_private distributes the data by itself."
            )


def refuse_layers(model: nn.Module) -> None:
    """Raises for layers whose gradients Opacus gets wrong, and watches those it may."""
    for name, module in model.named_modules():
        padding = getattr(module, "padding_mode", "zeros")
        if padding != "zeros" and any(p.requires_grad for p in module.parameters(recurse=False)):
            raise ValueError(
                f"model must pad with zeros, for Opacus takes any other padding for that, got "
                f"padding_mode={padding!r} at {name!r}. Pad in a layer of its own, such as "
                "nn.CircularPad2d, before a convolution without padding, or use "
                "grad_sampling='onepass'."
            )
        if isinstance(module, DPRNNBase):
            module.register_forward_pre_hook(_refuse_reordered)


def _refuse_reordered(module: nn.Module, inputs: tuple[object, ...]) -> None:
    if inputs and isinstance(inputs[0], PackedSequence) and inputs[0].sorted_indices is not None:
        raise ValueError(
            f"{type(module).__name__} must get its sequences in the order of the batch, got packed "
            "ones in another: their gradients would be added to those of other records. Use "
            "nn.LSTM with grad_sampling='onepass', or pack a batch sorted by length with "
            "enforce_sorted=True."
        )


def require_vectors(dimensions: int) -> None:
    """Raises unless a linear layer sees one vector a record, as ghost norms need."""
    if dimensions != 2:
        raise ValueError(
            "every linear layer must see one vector for each record when grad_sampling='ghost', "
            f"got an input of {dimensions} dimensions: the norm of a sequence is a difference that "
            "cancels in float32. Use grad_sampling='onepass'."
        )


def require_same_sum(
    parameters: Iterable[nn.Parameter], names: dict[int, str], samples: Sequence[torch.Tensor]
) -> None:
    """Raises unless the gradients of the records add up to autograd's own."""
    rows = [sample.detach().flatten(1) / max(len(sample), 1) for sample in samples]
    norms = torch.stack([torch.linalg.vector_norm(row, dim=1) for row in rows])
    # Against the whole gradient of each record: a part of it may be rounding and nothing else.
    bound = TOLERANCE * float(torch.linalg.vector_norm(norms, dim=0).sum()) + 1e-30
    for parameter, row in zip(parameters, rows, strict=True):
        if parameter.grad is None:
            continue
        apart = float(torch.linalg.vector_norm(row.sum(0) - parameter.grad.flatten()))
        # Not-a-number fails no comparison: records that are not finite are left out later.
        if apart > bound:
            raise TicketError(
                f"the gradients of the records must add up to the whole, got others for "
                f"{names[id(parameter)]!r}: {_ELSEWHERE}. Use grad_sampling='onepass', or every "
                "weight by its own layer only and weight_decay of the optimizer for a penalty."
            )


def require_same_norm(measured: float, true: float, bound: float) -> None:
    """Raises if the norm that a record is clipped by is less than that of its gradient.

    What is far below the bound is let through: squares of it vanish in single precision.
    """
    if true > measured * (1 + TOLERANCE) + 1e-6 * bound:
        raise TicketError(
            "the norm that a record is clipped by must be that of its gradient, got a smaller one: "
            f"{_ELSEWHERE}. Use grad_sampling='onepass', or every weight by its own layer only."
        )
