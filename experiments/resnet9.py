# SPDX-License-Identifier: Apache-2.0
"""The ResNet9 of Lécuyer (2021), Section 5.1, with group norm so that records stay apart."""

from __future__ import annotations

import math

import torch
from torch import nn


class Resnet9(nn.Module):
    """The ResNet9 of fast CIFAR training, with group norm in place of batch norm.

    Eight convolutions and a linear layer; two of its blocks add their input to their output.
    For images of 32×32 and up.
    """

    def __init__(self, channels: int, classes: int, *, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(_block(channels, width), _block(width, 2 * width, pool=True))
        self.first = nn.Sequential(_block(2 * width, 2 * width), _block(2 * width, 2 * width))
        self.middle = nn.Sequential(
            _block(2 * width, 4 * width, pool=True), _block(4 * width, 8 * width, pool=True)
        )
        self.second = nn.Sequential(_block(8 * width, 8 * width), _block(8 * width, 8 * width))
        self.head = nn.Sequential(
            nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = self.middle(x)
        x = x + self.second(x)
        scores: torch.Tensor = self.head(x)
        return scores


def _block(inputs: int, outputs: int, *, pool: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(math.gcd(32, outputs), outputs),
        nn.ReLU(),
        *([nn.MaxPool2d(2)] if pool else []),
    )
