# SPDX-License-Identifier: Apache-2.0
"""Stepping: the optimizer, the rule for its rate and the clipping, where fit has to choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeGuard

import torch
from torch import nn

from dosimeter import arguments
from dosimeter.decisions import AutoRate, RateRule
from dosimeter.rounding import exact
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.resuming import Told

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


_OPTIMIZER = "a function that makes one of parameters, such as lambda p: torch.optim.Adam(p)"
_MEMBERS = ("rate", "momentum", "begin", "update", "state", "restore")


def stepping(
    learning_rate: float | RateRule | Literal["auto"], optimizer: MakeOptimizer | None = None
) -> tuple[MakeOptimizer, RateRule | None]:
    """What makes the optimizer, and the rule that sets its learning rate, if one does."""
    if optimizer is not None and not callable(optimizer):
        raise TypeError(f"optimizer must be {_OPTIMIZER}, got {_kind(optimizer)}")
    if learning_rate == "auto":
        rule: RateRule | None = AutoRate() if optimizer is None else None
    elif isinstance(learning_rate, str):
        raise ValueError(f"learning_rate must be a number, a rule or 'auto', got {learning_rate!r}")
    elif _is_rule(learning_rate):
        rule = learning_rate
    else:
        if optimizer is not None:
            raise ValueError(
                "learning_rate must be left to the optimizer where one is given, got "
                f"{learning_rate!r} besides"
            )
        rate = arguments.positive("learning_rate", learning_rate)
        return lambda parameters: torch.optim.SGD(parameters, lr=rate), None
    if optimizer is not None:
        return optimizer, rule
    momentum = (AutoRate() if rule is None else rule).momentum
    momentum = arguments.half_open_unit("momentum of the learning_rate", momentum)
    return lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=momentum), rule


def optimizer_of(model: nn.Module, make: MakeOptimizer) -> torch.optim.Optimizer:
    """An optimizer of all that is trained."""
    made = make(p for p in model.parameters() if p.requires_grad)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be {_OPTIMIZER}, got one that makes {_kind(made)}")
    return made


def _is_rule(value: object) -> TypeGuard[RateRule]:
    """Whether it is a rule and no number; raises for what is one only in part."""
    if isinstance(value, type):
        raise TypeError(
            f"learning_rate must be a rule, got the class {value.__name__}; make one, such as "
            f"{value.__name__}()"
        )
    missing = [name for name in _MEMBERS if not hasattr(value, name)]
    if missing and any(hasattr(value, name) for name in ("begin", "update", "rate")):
        raise TypeError(
            f"learning_rate must have all members of RateRule, got {_kind(value)} without "
            f"{', '.join(missing)}"
        )
    return not missing


def _kind(value: object) -> str:
    return f"an object of {type(value).__name__}" if value is not None else "None"


def clipping_for(max_grad_norm: float | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `make_private` with a clipping that needs no norm, where none is given."""
    if max_grad_norm is not None:
        return {**options, "max_grad_norm": max_grad_norm}
    return {"clipping": Clipping.NORMALISED, **options, "max_grad_norm": 1.0}


def told_of(
    optimizer: torch.optim.Optimizer, rule: RateRule | None, how: Mapping[str, Any]
) -> Told:
    """What a checkpoint keeps of all this.

    Args:
        optimizer: As it was made, before a rule sets its rate.
        rule: What sets its rate.
        how: The options of `make_private`.
    """
    rate = optimizer.param_groups[0].get("lr") if rule is None else None
    flat = Clipping(how.get("clipping", Clipping.FLAT)) is Clipping.FLAT
    norm = how["max_grad_norm"]
    return {
        "learning_rate": _words(rule) if rate is None else float(rate),
        "optimizer": type(optimizer).__name__,
        "clipping": str(Clipping.FLAT if flat else Clipping.NORMALISED),
        "max_grad_norm": float(norm),
    }


def _words(rule: RateRule | None) -> str | None:
    """A rule by its name; only of our own it is known what else it was told."""
    if isinstance(rule, AutoRate):
        return f"AutoRate(reach={exact(rule.reach)}, momentum={exact(rule.momentum)})"
    return None if rule is None else type(rule).__name__
