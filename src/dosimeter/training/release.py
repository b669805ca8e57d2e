# SPDX-License-Identifier: Apache-2.0
"""Release: clipped sums in, noisy averages out, on a public grid and in bounded memory.

Sums are rounded to the grid, added over the ranks as integers (exactly, so in any order) and
given noise once. All parameters share one run of noise, made and used chunk by chunk.
"""

from __future__ import annotations

import torch

from dosimeter.training.entropy import Entropy
from dosimeter.training.gaussian import RoundedNormals
from dosimeter.training.grid import Grid
from dosimeter.training.group import Group


def release(
    sums: list[torch.Tensor], grid: Grid, *, divisor: int, entropy: Entropy, group: Group
) -> list[torch.Tensor]:
    """The sums over all ranks with noise, over a public number; written over the sums.

    Args:
        sums: The clipped sum of this rank for each parameter, finite.
        grid: Where they are put, and with how much noise.
        divisor: The public number to divide by.
        entropy: Where the noise comes from.
        group: The ranks; the first one adds the noise.
    """
    count = sum(each.numel() for each in sums)
    noise = RoundedNormals(entropy.keystream(), grid.scale, count)
    factor = grid.step / divisor
    released = [each.contiguous() for each in sums]
    for each in released:
        flat, start = each.view(-1), 0
        while start < len(flat):
            drawn = noise.take(len(flat) - start)
            part = flat[start : start + len(drawn)]
            whole = grid.rounded(part)
            if group.rank == 0:
                whole += drawn.to(whole.device)
            part.copy_(group.summed(whole).double().mul_(factor))
            start += len(drawn)
    return released
