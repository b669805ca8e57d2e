# SPDX-License-Identifier: Apache-2.0
"""Features of images that no data were needed to make: mirrored scattering of luma and chroma.

Of the luma all 81 maps are kept, of the two differences of colour the 17 of first order: JPEG and
eyes see little fine colour. The mean with the mirrored image has only half as many numbers that
differ. Each image is treated by itself, so this costs no privacy.
"""

from __future__ import annotations

import functools
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

YUV = torch.tensor([
    [0.299, 0.587, 0.114], [-0.14713, -0.28886, 0.436], [0.615, -0.51499, -0.10001],
])  # fmt: skip
"""Luma and two differences of colour, of red, green and blue (ITU-R BT.601)."""

FIRST, ALL = 1 + 2 * ANGLES, 1 + 2 * ANGLES + ANGLES**2
"""The maps of first order of an image, and all of them."""

GROUPS = (1, ANGLES, ANGLES, ANGLES**2, *(1, ANGLES, ANGLES) * 2)
"""Maps that are of one size: of each colour the image and two scales of wavelets, and of luma pairs
of wavelets."""

MAPS = sum(GROUPS)

SCALES = ((0.5, 4.0), (0.0, 10.0), (0.0, 10.0))
"""What the smoothed planes are shifted and multiplied by: round numbers that bring what luma and
chroma of photographs can be to about one."""

_FLOOR = 0.1
"""What is added to a group of wavelets before the logarithm, of its mean in the image."""

_LEAST = 1e-7
"""Added to variances and means, so that flat images are not blown up."""


def scattered(images: np.ndarray) -> Tensor:
    """The maps of images of bytes: records × 115 × height × width."""
    transform = _transform(images.shape[1])
    pixels = torch.from_numpy(np.array(images)).float().div(255)
    luma, chroma = (pixels @ YUV.T).permute(0, 3, 1, 2).contiguous().split((1, 2), dim=1)
    found = transform(luma), transform(chroma, second=False)
    return torch.cat([each.flatten(1, 2) for each in found], dim=1)


@functools.cache
def _transform(size: int) -> Scattering:
    return Scattering(size)


def mirrored(maps: Tensor) -> Tensor:
    """The left half of the mean of maps with those of the mirrored image.

    A mirror turns the angle (3 - k)π/8 of a wavelet into its negative: k becomes 6 - k.
    """
    turned = (6 - torch.arange(ANGLES)) % ANGLES
    pairs = (ANGLES * turned.unsqueeze(1) + turned).flatten()
    first = torch.cat([torch.zeros(1, dtype=torch.long), 1 + turned, 1 + ANGLES + turned])
    order = torch.cat([first, FIRST + pairs, ALL + first, ALL + FIRST + first])
    half = maps.shape[-1] // 2
    other = maps.index_select(-3, order).flip(-1)
    return (maps[..., :half] + other[..., :half]) / 2


def normalised(maps: Tensor) -> Tensor:
    """Logarithms of wavelets, each group with mean 0 and variance 1 in an image.

    Brightness and colour stay as they are.

    Args:
        maps: Records × 115 maps × height × width.
    """
    parts, scales = [], iter(SCALES)
    for group in maps.split(GROUPS, dim=1):
        if group.shape[1] == 1:
            middle, scale = next(scales)
            parts.append((group - middle) * scale)
        else:
            size = group.clamp(min=0)
            logs = (size + _FLOOR * _mean(size) + _LEAST).log()
            centred = logs - _mean(logs)
            parts.append(centred / (_mean(centred.square()) + _LEAST).sqrt())
    return torch.cat(parts, dim=1)


def _mean(group: Tensor) -> Tensor:
    """Over an image."""
    return group.mean(dim=(1, 2, 3), keepdim=True)


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
    """The features of some images at a time, in half precision; kept, for they take minutes."""
    for start in range(0, len(images), _PIECE):

        def compute(some: np.ndarray = images[start : start + _PIECE]) -> cifar.Arrays:
            began, found = time.process_time(), []
            for at in range(0, len(some), _CHUNK):
                maps = scattered(some[at : at + _CHUNK])
                found.append(normalised(mirrored(maps)).half().numpy())
            return {"x": np.concatenate(found), "seconds": np.array(time.process_time() - began)}

        yield cifar.cached("luma_chroma_logarithms", {**key, "start": start}, compute)
