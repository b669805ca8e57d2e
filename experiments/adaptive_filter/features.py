# SPDX-License-Identifier: Apache-2.0
"""Features of images that no data were needed to make: scattering, normalised image by image.

A scattering transform is a cascade of fixed wavelets and moduli (Mallat 2012), here kymatio's
with J = 2: 81 maps of 8×8 for each colour. Nothing is learned and every image is treated by
itself, so the features cost no privacy. They are kept on disk, for they take minutes.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import torch
from torch.nn.functional import avg_pool2d, group_norm
from torch.utils.data import TensorDataset

from dosimeter.data import Labelled
from experiments import cifar

_CHUNK = 250
_FIRST_ORDER = 17
"""The means and the 16 wavelets; the 64 pairs of wavelets come after them."""

_COLOURS = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
_COLOURS /= _COLOURS.norm(dim=1, keepdim=True)


def datasets(path: pathlib.Path, settings: dict[str, Any]) -> tuple[TensorDataset, TensorDataset]:
    """Features and labels to train on and to test on."""
    split = cifar.read(path)
    assert split.test is not None
    key = {"data": cifar.identity(path)}
    made = []
    for part, labelled in (("train", split.train), ("test", split.test)):
        arrays = cifar.cached(
            "features",
            {**key, "part": part, **settings},
            lambda part=part, labelled=labelled: {
                "x": _reduced(_scattered(key, part, labelled), settings)
            },
        )
        made.append(TensorDataset(torch.from_numpy(arrays["x"]), torch.from_numpy(labelled.y)))
    return made[0], made[1]


def _scattered(key: dict[str, Any], part: str, labelled: Labelled) -> np.ndarray:
    """The maps of every image in half precision, kept on disk."""
    return cifar.cached(
        "scattering", {**key, "part": part}, lambda: {"maps": scattering(labelled.x)}
    )["maps"]


def scattering(images: np.ndarray) -> np.ndarray:
    """The maps of images of bytes: records × maps (81 for each colour) × height × width."""
    from kymatio.torch import Scattering2D

    height, width = images.shape[1:3]
    transform = Scattering2D(J=2, shape=(height, width))
    parts = []
    for start in range(0, len(images), _CHUNK):
        pixels = torch.from_numpy(np.array(images[start : start + _CHUNK]))
        x = pixels.permute(0, 3, 1, 2).float().div(255).contiguous()
        parts.append(transform(x).flatten(1, 2).half().numpy())
    return np.concatenate(parts)


def _reduced(maps: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    parts = [
        reduce(torch.from_numpy(np.array(maps[start : start + _CHUNK])), **settings).numpy()
        for start in range(0, len(maps), _CHUNK)
    ]
    return np.concatenate(parts)


def reduce(maps: torch.Tensor, *, pool: int, groups: int, least_variance: float) -> torch.Tensor:
    """Fewer numbers for each image, normalised.

    Neighbouring places are averaged. The three colours become their sum and two differences;
    of the differences, which photographs and JPEG keep coarse, the maps of second order are
    left out. Groups of maps then get mean 0 and variance 1 over the image, but differences
    are one group each.

    Args:
        maps: Records × maps × height × width.
        pool: How many places are averaged each way.
        groups: Into how many groups the maps of the sum are normalised.
        least_variance: Added to each variance, so that flat images are not blown up.
    """
    pooled = avg_pool2d(maps.float(), pool)
    colours = pooled.unflatten(1, (3, -1))
    colours = torch.einsum("kc,nc...->nk...", _COLOURS, colours)
    light, differences = colours[:, 0], colours[:, 1:, :_FIRST_ORDER].flatten(1, 2)
    parts = [
        group_norm(light, groups, eps=least_variance).flatten(1),
        group_norm(differences, 2, eps=least_variance).flatten(1),
    ]
    return torch.cat(parts, dim=1)
