# SPDX-License-Identifier: Apache-2.0
"""Stepping: the optimizer, the rule for its rate and the clipping, where fit has to choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from dosimeter import arguments
from dosimeter.decisions import AutoRate, RateRule
from dosimeter.rounding import exact
from dosimeter.training.models import GradSampling
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.resuming import Told

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def stepping(
    learning_rate: float | RateRule | Literal["auto"], optimizer: MakeOptimizer | None = None
) -> tuple[MakeOptimizer, RateRule | None]:
    """What makes the optimizer, and the rule that sets its learning rate, if one does."""
    if learning_rate == "auto":
        rule: RateRule | None = AutoRate() if optimizer is None else None
    elif isinstance(learning_rate, RateRule):
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
    momentum = AutoRate().momentum if rule is None else rule.momentum
    return lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=momentum), rule


def clipping_for(max_grad_norm: float | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `make_private` with a clipping that needs no norm, where none is given."""
    if max_grad_norm is not None:
        return {**options, "max_grad_norm": max_grad_norm}
    way = GradSampling(options.get("grad_sampling", GradSampling.ONEPASS))
    # Opacus' ghost clipping has factors of its own.
    clipping = Clipping.FLAT if way is GradSampling.GHOST else Clipping.NORMALISED
    return {"clipping": clipping, **options, "max_grad_norm": 1.0}


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
