# SPDX-License-Identifier: Apache-2.0
"""Release: clipped sums in, noisy averages out, on a public grid and in bounded memory.

Sums are rounded to the grid, given noise once, and added over the ranks as whole numbers: exactly,
so in any order. All of it happens in chunks, so that memory does not grow with the model.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dosimeter.training.entropy import Entropy
from dosimeter.training.gaussian import RoundedNormals
from dosimeter.training.grid import Grid
from dosimeter.training.group import Group

CHUNK = 2**17
"""How many values get their noise at once: enough for several threads to share them."""


class Release:
    """Adds noise to the sums of one optimizer, step by step.

    Args:
        values: How many numbers are released at once.
        entropy: Where the noise comes from.
        group: The ranks; the first one adds the noise.
    """

    def __init__(self, values: int, *, entropy: Entropy, group: Group) -> None:
        self._entropy, self._group = entropy, group
        # Kept from step to step: memory that is new each time costs more than the noise.
        most = min(CHUNK, values)
        self._normals = RoundedNormals(most)
        self._whole = torch.empty(most, dtype=torch.float64)

    def __call__(self, sums: list[torch.Tensor], grid: Grid, *, divisor: int) -> None:
        """Replaces the sums of this rank by those of all ranks with noise, over a public number.

        Args:
            sums: The clipped sum for each parameter, contiguous and finite.
            grid: Where they are put, and with how much noise.
            divisor: The public number to divide by.
        """
        keystream = self._entropy.keystream()
        for parts in _chunks([each.view(-1) for each in sums]):
            sizes = [len(part) for part in parts]
            whole = self._whole.to(parts[0].device)[: sum(sizes)]
            grid.round(torch.cat(parts, out=whole))
            if self._group.rank == 0:
                noise = self._normals.draw(keystream, grid.scale, len(whole))
                whole += noise.to(whole.device)
            self._group.summed(whole).mul_(grid.step / divisor)
            torch._foreach_copy_(parts, torch.split(whole, sizes))


def _chunks(flat: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Views of consecutive values, in groups of at most so many on one device."""
    parts: list[torch.Tensor] = []
    room = CHUNK
    for tensor in flat:
        start = 0
        while start < len(tensor):
            if room == 0 or (parts and parts[0].device != tensor.device):
                yield parts
                parts, room = [], CHUNK
            parts.append(tensor[start : start + room])
            start += len(parts[-1])
            room -= len(parts[-1])
    if parts:
        yield parts
