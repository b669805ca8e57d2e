# SPDX-License-Identifier: Apache-2.0
"""Features of images that no data were needed to make: mirrored scattering, normalised by image.

All 81 maps of the three colours are kept, 15,552 numbers. The mean with the mirrored image has only
half as many that differ, so a linear layer on them has half the weights to add noise to. Each
image is treated by itself, so this costs no privacy.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from experiments import cifar
from experiments.from_scratch.scattering import ANGLES, Scattering

_PIECE = 5000
_CHUNK = 5
"""So few images at once that what is computed from them stays in the processor's cache."""

GROUPS = (1, ANGLES, ANGLES, ANGLES**2)
"""Maps that are of one size: the image, two scales of wavelets, and pairs of wavelets."""

_LEAST = 1e-7
"""Added to variances, so that flat images are not blown up."""


def mirrored(maps: Tensor) -> Tensor:
    """The left half of the mean of maps with those of the mirrored image.

    A mirror turns the angle (3 - k)π/8 of a wavelet into its negative: k becomes 6 - k.
    """
    turned = (6 - torch.arange(ANGLES)) % ANGLES
    pairs = (ANGLES * turned.unsqueeze(1) + turned).flatten()
    starts = (0, 1, 1 + ANGLES, 1 + 2 * ANGLES)
    order = torch.cat([torch.zeros(1, dtype=torch.long), *(
        start + each for start, each in zip(starts[1:], (turned, turned, pairs), strict=True)
    )])  # fmt: skip
    half = maps.shape[-1] // 2
    other = maps.index_select(-3, order).flip(-1)
    return (maps[..., :half] + other[..., :half]) / 2


def normalised(maps: Tensor) -> Tensor:
    """Each group of maps, of all colours together, with mean 0 and variance 1 in an image.

    Args:
        maps: Records × 3 colours × 81 maps × height × width.
    """
    parts = []
    for group in maps.split(GROUPS, dim=2):
        centred = group - group.mean(dim=(1, 2, 3, 4), keepdim=True)
        spread = centred.square().mean(dim=(1, 2, 3, 4), keepdim=True)
        parts.append(centred / (spread + _LEAST).sqrt())
    return torch.cat(parts, dim=2)


def scattered(images: np.ndarray) -> np.ndarray:
    """The maps of images of bytes, in half precision: records × 3 × 81 × height × width."""
    transform = Scattering(images.shape[1])
    parts = []
    for start in range(0, len(images), _CHUNK):
        pixels = torch.from_numpy(np.array(images[start : start + _CHUNK]))
        x = pixels.permute(0, 3, 1, 2).float().div(255).contiguous()
        parts.append(transform(x).half().numpy())
    return np.concatenate(parts)


def datasets(path: pathlib.Path) -> tuple[cifar.Arrays, cifar.Arrays]:
    """Features, labels, and the seconds of processor time that features took, of both parts."""
    split = cifar.read(path)
    assert split.test is not None
    made = []
    for part, labelled in (("train", split.train), ("test", split.test)):
        parts = list(_pieces(labelled.x, {"data": cifar.identity(path), "part": part}))
        x = np.concatenate([each["x"] for each in parts])
        seconds = np.array(sum(float(each["seconds"]) for each in parts))
        made.append({"x": x, "y": labelled.y, "seconds": seconds})
    return made[0], made[1]


def _pieces(images: np.ndarray, key: dict[str, str]) -> Iterator[cifar.Arrays]:
    """The features of some images at a time; their maps are kept, for they take minutes."""
    for start in range(0, len(images), _PIECE):

        def compute(some: np.ndarray = images[start : start + _PIECE]) -> cifar.Arrays:
            began = time.process_time()
            return {"maps": scattered(some), "seconds": np.array(time.process_time() - began)}

        kept = cifar.cached("scattered", {**key, "start": start}, compute)
        began, found = time.process_time(), []
        for at in range(0, len(kept["maps"]), _CHUNK):
            maps = torch.from_numpy(np.array(kept["maps"][at : at + _CHUNK])).float()
            found.append(normalised(mirrored(maps)).flatten(1, 2).half().numpy())
        took = float(kept["seconds"]) + time.process_time() - began
        yield {"x": np.concatenate(found), "seconds": np.array(took)}
