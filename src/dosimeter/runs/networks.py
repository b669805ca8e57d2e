# SPDX-License-Identifier: Apache-2.0
"""Networks: the model of a config, tried on random inputs before any budget is touched.

Frozen features are computed once, record by record: a linear layer is then all that is
trained, and all that costs privacy.
"""

from __future__ import annotations

import copy
import importlib
import math
import pathlib
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from dosimeter.runs.config import ModelTable
from dosimeter.runs.datasets import Records

_CHUNK = 256
_LEAST_SIDE = 8
_RANDOM_FEATURES = 512
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Network:
    """What is trained, and the frozen part before it, if any."""

    trained: nn.Module
    frozen: nn.Module | None

    @property
    def whole(self) -> nn.Module:
        """The model that takes inputs as they are."""
        return self.trained if self.frozen is None else nn.Sequential(self.frozen, self.trained)

    def prepared(self, records: TensorDataset) -> TensorDataset:
        """The records as the trained part takes them."""
        if self.frozen is None:
            return records
        x, y = records.tensors
        parts = torch.split(x, _CHUNK)
        return TensorDataset(torch.cat([_apply(self.frozen, part) for part in parts]), y)


def build(model: ModelTable, records: Records) -> Network:
    """The network that [model] describes, for these records.

    Raises:
        ValueError: It does not take such inputs or tell so many classes apart.
    """
    return network(model, records.shape, len(records.classes))


def network(model: ModelTable, shape: tuple[int, ...], classes: int) -> Network:
    """The network that [model] describes, for inputs of a shape and so many classes."""
    if model.kind == "features":
        assert model.extractor is not None
        frozen = _extractor(model.extractor, shape).requires_grad_(False).eval()
        features = _tried("model.extractor", frozen, shape)
        return Network(linear(math.prod(features), classes), frozen)
    made = _network(model, shape, classes)
    scores = _tried("model.kind", made, shape)
    if scores != (classes,):
        raise ValueError(
            f"model.kind must give one score for each of the {classes} classes, got a network "
            f"that gives shape {scores}"
        )
    return Network(made, None)


def _network(model: ModelTable, shape: tuple[int, ...], classes: int) -> nn.Module:
    inputs = math.prod(shape)
    if model.kind == "linear":
        return linear(inputs, classes)
    if model.kind == "mlp":
        return mlp(inputs, classes, hidden=model.hidden or 64)
    if model.kind == "cnn":
        _require_images(shape)
        return small_cnn(shape[0], classes)
    return _made("model.kind", model.kind, shape, classes)


def _extractor(name: str, shape: tuple[int, ...]) -> nn.Module:
    if name == "random":
        return RandomFeatures(math.prod(shape))
    return _made("model.extractor", name, shape)


def linear(inputs: int, classes: int) -> nn.Module:
    """Return a linear layer begun at zero, since private training gains nothing from chance."""
    layer = nn.Linear(inputs, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(inputs: int, classes: int, *, hidden: int = 64) -> nn.Module:
    """Return one hidden layer with bounded activations, as DP-SGD likes them."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes)
    )


def small_cnn(channels: int, classes: int) -> nn.Module:
    """Return two convolutions and a linear layer, for images of any size from 8×8 on."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, classes),
    )


class RandomFeatures(nn.Module):
    """Cosines of random projections (Rahimi and Recht 2007), always the same ones."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        size = (_RANDOM_FEATURES, inputs)
        self.directions: Tensor
        self.phases: Tensor
        self.register_buffer("directions", torch.randn(size, generator=generator))
        self.register_buffer(
            "phases", 2 * math.pi * torch.rand(_RANDOM_FEATURES, generator=generator)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        # Each record is brought to length 2, which suits the width of the kernel.
        angles = 2 * nn.functional.normalize(flat, dim=1) @ self.directions.T + self.phases
        return torch.cos(angles) * math.sqrt(2 / _RANDOM_FEATURES)


def _require_images(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or min(shape[1:]) < _LEAST_SIDE:
        raise ValueError(
            f"model.kind must suit inputs of shape {shape}, got 'cnn', which takes images of "
            f"{_LEAST_SIDE}×{_LEAST_SIDE} and up; linear and mlp take anything"
        )


def _made(key: str, name: str, *arguments: Any) -> nn.Module:
    """What the user's own factory makes."""
    module, _, factory = name.partition(":")
    here = str(pathlib.Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        make = getattr(importlib.import_module(module), factory)
        made = make(*arguments)
    except Exception as error:
        raise ValueError(
            f"{key} must name a factory called with {arguments}, got {name!r}, which failed with "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"{key} must name a factory of a torch.nn.Module, got {made!r}")
    return made


def _tried(key: str, model: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what comes out for one input, tried on copies with random ones.

    Raises:
        ValueError: It fails, or one input changes what comes out for the others.
    """
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    try:
        live = copy.deepcopy(model)
        apart = _apart(live.eval(), x)
        if model.training:
            # As it was made, since a part of it may be frozen; dropout alone is switched off.
            live = copy.deepcopy(model)
            for module in live.modules():
                if isinstance(module, nn.modules.dropout._DropoutNd):
                    module.eval()
            apart = _apart(live, x) and apart
        out = _apply(live.eval(), x)
    except Exception as error:
        raise ValueError(
            f"{key} must take inputs of shape {shape}, got {type(error).__name__}: {error}"
        ) from error
    if not apart:
        raise ValueError(
            f"{key} must treat each record by itself, got a network in which one record changes "
            "what comes out for others, as BatchNorm does; use GroupNorm, or none"
        )
    return tuple(out.shape[1:])


def _apart(model: nn.Module, x: Tensor) -> bool:
    """Whether leaving the first or the last input out changes nothing for the others."""
    whole = _apply(model, x)
    if not torch.equal(whole, _apply(model, x)):
        return True  # it draws random numbers, so nothing can be told
    return _same(whole[1:], _apply(model, x[1:])) and _same(whole[:-1], _apply(model, x[:-1]))


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    most = _ROUNDING * float(one.abs().nan_to_num().max())
    return torch.allclose(one, other, rtol=0, atol=most, equal_nan=True)


def _apply(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(x)
    return out
