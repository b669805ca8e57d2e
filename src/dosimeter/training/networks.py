# SPDX-License-Identifier: Apache-2.0
"""Networks that train well privately: no batch statistics, so that records stay apart."""

from __future__ import annotations

from torch import nn


def linear(inputs: int, classes: int) -> nn.Module:
    """One linear layer, begun at zero: private training gains nothing from a random start."""
    layer = nn.Linear(inputs, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(inputs: int, classes: int, *, hidden: int = 64) -> nn.Module:
    """One hidden layer with bounded activations, as DP-SGD likes them."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes)
    )


def small_cnn(channels: int, classes: int) -> nn.Module:
    """Two convolutions and a linear layer, for images of any size from 8×8 on."""
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
