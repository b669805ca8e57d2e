# SPDX-License-Identifier: Apache-2.0
"""Which models can be trained privately.

A layer that mixes the records of a batch (BatchNorm in training mode) has no per-record
gradient, and its running averages would leave the process without noise. Such models are
refused, with the way out; BatchNorm that is frozen in eval mode passes and is held there.
Half precision, whose sums do not keep the bound, and compiled layers are refused as well.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from dosimeter.errors import TicketError
from dosimeter.training.onepass.records import happens

COMPARED = 3
"""How many physical batches have frozen parameters compared by value for sure."""

COMPARED_ONE_IN = 512
"""How often frozen parameters are compared by value, after the first batches."""

BatchNorm = nn.modules.batchnorm._BatchNorm

GROUPS = 32
"""How many groups a converted layer has at most, as in Wu and He (2018)."""


def require_trainable(model: nn.Module) -> None:
    """Raises unless it is a model with something to train."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r}")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "model must have a parameter that requires a gradient, got none; unfreeze one with "
            "requires_grad_(True)"
        )


def validate(model: nn.Module, optimizer: torch.optim.Optimizer, *, fix: bool) -> None:
    """Raises unless the model can be trained privately; converts BatchNorm if asked to.

    Conversion happens inside the given model and keeps its scale and shift parameters, so
    that an optimizer made before still holds the right ones.
    """
    require_trainable(model)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise TypeError(
            "model must not be inside DistributedDataParallel, which averages raw gradients. "
            "Pass the bare model: make_private distributes it by itself."
        )
    if not model.training:
        raise ValueError("model must be in training mode, got one in eval mode; call model.train()")
    if fix:
        _convert(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise ValueError(
                f"model must not renormalise the rows it looks up, got {module} with max_norm; "
                "which rows were changed would tell about the data. Leave max_norm out."
            )
    frozen = _require_no_live_batch_norm(model)
    _refuse_precision(model)
    _refuse_compiled(model)
    _require_same_parameters(model, optimizer)
    for module in frozen:
        module.register_forward_pre_hook(_hold_frozen)
    for module in model.modules():
        if any(kind.__module__.startswith("opacus.layers") for kind in type(module).__mro__):
            module.register_forward_pre_hook(_refuse_packed)


class BufferWatch:
    """Notices when a pass over a batch writes to the model, which would then hold raw data.

    Buffers are compared by value, because a write through `.data` leaves no other trace;
    parameters by identity, place and version. Frozen parameters, which may be many, are compared
    by value on the first batches and then at random.
    """

    def __init__(self, model: nn.Module) -> None:
        self._holders = [(m, name) for m in model.modules() for name in m._buffers]
        self._owners = [(m, name) for m in model.modules() for name in m._parameters]
        self._values: list[torch.Tensor | None] = []
        self._marks: list[tuple[object, ...]] = []
        self._started = 0
        self._whole = True

    def start(self) -> None:
        """Takes the model as it is now."""
        self._started += 1
        self._whole = self._started <= COMPARED or happens(COMPARED_ONE_IN)
        self._values = [None if v is None else v.detach().clone() for _, _, v in self._kept()]
        self._marks = [_mark(v) for _, _, v in self._parameters()]

    def require_unchanged(self) -> None:
        """Raises if something was written to since."""
        kept, parameters = self._kept(), self._parameters()
        if len(kept) != len(self._values) or len(parameters) != len(self._marks):
            raise TicketError(
                "model must keep its frozen and its trainable parameters from the forward pass to "
                "the step, got others. Freeze and unfreeze between batches, before a new engine."
            )
        changed = [
            (module, name)
            for (module, name, now), before in zip(kept, self._values, strict=True)
            if not _equal(now, before)
        ] + [
            (module, name)
            for (module, name, now), before in zip(parameters, self._marks, strict=True)
            if _mark(now) != before
        ]
        for module, name in changed:
            raise TicketError(
                f"model must not write to its buffers or parameters while it trains, got a new "
                f"{name!r} in {type(module).__name__}: it would keep raw data. Make it constant, "
                "or leave the layer out."
            )

    def _kept(self) -> list[tuple[nn.Module, str, torch.Tensor | None]]:
        """What is compared by value."""
        buffers = [(module, name, module._buffers[name]) for module, name in self._holders]
        if not self._whole:
            return buffers
        return [*buffers, *(each for each in self._parameters() if not each[2].requires_grad)]

    def _parameters(self) -> list[tuple[nn.Module, str, nn.Parameter]]:
        return [
            (module, name, value)
            for module, name in self._owners
            if (value := module._parameters[name]) is not None
        ]


def _mark(parameter: nn.Parameter) -> tuple[object, ...]:
    """What changes when a parameter is replaced, written to or frozen."""
    place = parameter.data_ptr()
    return id(parameter), place, parameter._version, parameter.requires_grad


def _equal(now: torch.Tensor | None, before: torch.Tensor | None) -> bool:
    """Whether two tensors hold the same numbers; not-a-number equals itself."""
    if now is None or before is None:
        return now is before
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    return bool(((now == before) | ((now != now) & (before != before))).all())


def _convert(model: nn.Module) -> None:
    """Put a GroupNorm with the same parameters in the place of every live BatchNorm."""
    made: dict[nn.Module, nn.GroupNorm] = {}
    for parent in list(model.modules()):
        # A layer under two names stays one layer, so `named_children`, which skips it, will not do.
        for name, child in list(parent._modules.items()):
            # A class of its own may do more than normalise: it is left, and refused.
            if child is not None and type(child) in _CONVERTED and not _is_frozen(child):
                setattr(parent, name, made.setdefault(child, _group_norm(child)))


_CONVERTED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def _group_norm(layer: nn.Module) -> nn.GroupNorm:
    assert isinstance(layer, BatchNorm)
    channels = layer.num_features
    # A vector has one value a channel: groups of few channels would leave nothing of it.
    groups = 1 if isinstance(layer, nn.BatchNorm1d) else math.gcd(GROUPS, channels)
    made = nn.GroupNorm(groups, channels, affine=layer.affine)
    made.weight, made.bias = layer.weight, layer.bias
    return made


def _is_frozen(module: nn.Module) -> bool:
    # Without running averages BatchNorm uses those of the batch, in eval mode too.
    averages = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    still = not module.training and not any(p.requires_grad for p in module.parameters())
    return still and all(average is not None for average in averages)


def _require_no_live_batch_norm(model: nn.Module) -> list[nn.Module]:
    """The frozen BatchNorm layers; raises if there is one that is not."""
    norms = [(name, m) for name, m in model.named_modules() if isinstance(m, BatchNorm)]
    for name, module in norms:
        if not _is_frozen(module):
            raise ValueError(
                f"model must not mix the records of a batch, got {type(module).__name__} at "
                f"{name or 'the top'!r}. Pass fix=True to convert it to GroupNorm, or freeze it "
                "(requires_grad_(False) and eval()) if its averages are public."
            )
    return [module for _, module in norms]


def _hold_frozen(module: nn.Module, _inputs: object) -> None:
    # model.train() also reaches frozen layers, which would then learn from raw batches.
    module.training = False


def _refuse_precision(model: nn.Module) -> None:
    """Raise if a trainable parameter has half precision: its sums would not keep the bound."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"model must have trainable parameters in float32 or float64, got {name!r} in "
                f"{parameter.dtype}: sums of clipped gradients round past their bound there. Call "
                "model.float(), and use torch.autocast for speed."
            )


def _refuse_compiled(model: nn.Module) -> None:
    """Raise for models that were compiled: their layers cannot be seen any more."""
    for name, module in model.named_modules():
        compiled = getattr(module, "_compiled_call_impl", None) is not None
        if compiled or type(module).__name__ == "OptimizedModule":
            raise ValueError(
                f"model must not be compiled, got {name or 'the whole'!r} so: a compiled layer "
                "hides the gradients of its records. Pass the model as it was before."
            )


def _refuse_packed(module: nn.Module, inputs: tuple[object, ...]) -> None:
    # Opacus' cells reorder and shorten the batch from step to step: rows are no records there.
    if inputs and isinstance(inputs[0], PackedSequence):
        raise ValueError(
            f"{type(module).__name__} must not get packed sequences, for the records of a step "
            "cannot be told apart in it; use torch.nn.LSTM, GRU or RNN, which take them"
        )


def _require_same_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    if trained != held:
        raise ValueError(
            "optimizer must hold exactly the trainable parameters of the model, got "
            f"{len(held - trained)} others and {len(trained - held)} missing. Make it from "
            "model.parameters(), and freeze the rest with requires_grad_(False)."
        )
