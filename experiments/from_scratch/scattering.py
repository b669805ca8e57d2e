# SPDX-License-Identifier: Apache-2.0
"""The scattering transform of small images: kymatio's of J = 2 with 8 angles, computed faster.

A cascade of fixed wavelets and moduli (Mallat 2012): the smoothed image, 16 smoothed moduli of
wavelets, 64 of wavelets of those. Nothing is learned and every image is treated by itself. The last
smoothing is a product with two small matrices, and may be sampled at any places; kymatio samples
at 0, 4, ..., which are not those of the mirrored image.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ANGLES = 8
STRIDE = 4


class Scattering:
    """The transform of square images of one size.

    Args:
        size: Height and width of the images.
        first: Where along each side the first sample is taken; 1.5 is symmetric.
    """

    def __init__(self, size: int, first: float = (STRIDE - 1) / 2) -> None:
        from kymatio.scattering2d.filter_bank import filter_bank

        self.pad, whole = STRIDE, size + 2 * STRIDE
        psi = filter_bank(whole, whole, 2, ANGLES)["psi"]
        self._fine, self._coarse = (
            torch.from_numpy(np.stack([p["levels"][0] for p in psi if p["j"] == j])).float()
            for j in (0, 1)
        )
        places = self.pad + first + STRIDE * np.arange(size // STRIDE)
        self._smooth = {whole // k: _smoothing(whole, k, places) for k in (1, 2)}

    @torch.no_grad()
    def __call__(self, images: Tensor, *, second: bool = True) -> Tensor:
        """Maps of images: ... × height × width becomes ... × 81 × height / 4 × width / 4.

        Args:
            images: One plane each.
            second: Whether to give the maps of second order; without them there are 17.
        """
        shape = images.shape
        x = torch.nn.functional.pad(images.flatten(0, -3).unsqueeze(1), [self.pad] * 4, "reflect")
        waves = torch.fft.fft2(x)
        fine = torch.fft.ifft2(waves * self._fine).abs()
        coarse = torch.fft.ifft2(_folded(waves * self._coarse)).abs()
        parts = [x, fine, coarse]
        if second:
            again = torch.fft.fft2(fine).unsqueeze(2) * self._coarse
            parts.append(torch.fft.ifft2(_folded(again)).abs().flatten(1, 2))
        found = [self._smoothed(each) for each in parts]
        return torch.cat(found, dim=1).unflatten(0, shape[:-2])

    def _smoothed(self, maps: Tensor) -> Tensor:
        matrix = self._smooth[maps.shape[-1]]
        return matrix @ maps @ matrix.T


def _folded(waves: Tensor) -> Tensor:
    """The Fourier transform of every second place, from that of all."""
    half = waves.shape[-1] // 2
    rows = waves[..., :half, :] + waves[..., half:, :]
    return (rows[..., :half] + rows[..., half:]) / 4


def _smoothing(whole: int, step: int, places: np.ndarray) -> Tensor:
    """The matrix that smooths a side of every `step`-th place and samples it; the sides meet."""
    apart = places[:, None] - step * np.arange(whole // step)[None, :]
    apart = apart[..., None] + whole * np.arange(-2, 3)
    weights = np.exp(-(apart**2) / (2 * 1.6**2)).sum(-1)
    return torch.from_numpy(step * weights / np.sqrt(2 * np.pi) / 1.6).float()
