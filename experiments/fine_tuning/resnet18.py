# SPDX-License-Identifier: Apache-2.0
"""ResNet18 as torchvision names its parts, to be fine-tuned from a file of its weights.

BatchNorm keeps its ImageNet averages, scale and shift, all frozen (Lécuyer 2021, 5.2): it is
then the same function for every record. The layers that learn are the last one, or the
convolutions and the last one.
"""

from __future__ import annotations

import pathlib

import torch
from torch import nn
from torch.nn import functional

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions, and the input added to what they give."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The activations after this block."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Resnet18(nn.Module):
    """Classifies images given as bytes, height × width × channels, which it enlarges first."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, classes: int, *, pixels: int) -> None:
        super().__init__()
        self.pixels = pixels
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, classes)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """One row of scores an image."""
        x = (images.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.deviation
        x = functional.interpolate(x, size=self.pixels, mode="bilinear")
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: torch.Tensor = self.fc(x.mean((2, 3)))
        return scores


def pretrained(weights: pathlib.Path, *, classes: int, pixels: int, layers: str) -> Resnet18:
    """ResNet18 with these ImageNet weights and a new last layer, ready to be fine-tuned.

    Args:
        weights: Safetensors, or a state dictionary saved by torch, with torchvision's names.
        classes: How many classes the new last layer has.
        pixels: What images are enlarged to.
        layers: Which layers learn: "last", or "all" but BatchNorm.
    """
    model = Resnet18(classes, pixels=pixels)
    state = {k: v for k, v in read(weights).items() if not k.startswith("fc.")}
    found = model.load_state_dict(state, strict=False)
    missing = [name for name in found.missing_keys if not name.startswith("fc.")]
    if missing or found.unexpected_keys:
        raise ValueError(
            f"weights must be those of torchvision's resnet18, got {weights} without {missing} "
            f"and with {found.unexpected_keys}"
        )
    freeze(model, layers)
    return model


def read(path: pathlib.Path) -> dict[str, torch.Tensor]:
    """The tensors of a file of weights, by name."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True, map_location="cpu")
    return state


def freeze(model: nn.Module, layers: str) -> None:
    """Lets only the layers that are to learn have gradients, and holds BatchNorm in test mode."""
    if layers not in ("last", "all"):
        raise ValueError(f"layers must be 'last' or 'all', got {layers!r}")
    model.train()
    if layers == "last":
        model.requires_grad_(False)
        for parameter in model.get_submodule("fc").parameters():
            parameter.requires_grad_(True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False).eval()
