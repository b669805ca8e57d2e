# SPDX-License-Identifier: Apache-2.0
"""Room: memory for gradients that are written out, kept from one batch to the next.

The system hands out new memory page by page and clears each of them, which can take as long as
the product that fills it. Convolutions bring memory of their own, and devices other than a CPU
have a cache for it.
"""

from __future__ import annotations

import math

from torch import Tensor

MOST = 3 * 2**24
"""How many bytes are kept; what goes beyond is given back after each batch."""


class Room:
    """Memory by parameter, for one book at a time."""

    def __init__(self) -> None:
        self._kept: dict[Tensor, Tensor] = {}

    def __reduce__(self) -> tuple[type[Room], tuple[()]]:
        """A copy is empty: what lies here are gradients of records."""
        return Room, ()

    def of(self, target: Tensor, shape: tuple[int, ...]) -> Tensor:
        """An empty tensor of this shape, which the next batch overwrites."""
        kept, needed = self._kept.get(target), math.prod(shape)
        if kept is None or len(kept) < needed or kept.dtype != target.dtype:
            # Batches differ in size, and what is never written to takes no memory.
            kept = target.new_empty(needed + needed // 4)
            self._keep(target, kept)
        return kept[:needed].view(shape)

    def _keep(self, target: Tensor, new: Tensor) -> None:
        self._kept.pop(target, None)
        held = sum(kept.nbytes for kept in self._kept.values())
        if target.is_leaf and target.device.type == "cpu" and held + new.nbytes <= MOST:
            self._kept[target] = new
