# SPDX-License-Identifier: Apache-2.0
"""The self-test of inputs: rows that were mixed from several records (mixup, CutMix).

What the model is run on is compared with what the loader gave. A row may be augmented in any
way, but not moved towards another record, nor patched with a piece of one: either makes two
records out of one, and each of them would count twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dosimeter.errors import TicketError
from dosimeter.training.onepass.records import choose, tensors

FEW = 3
LEAST = 8
"""With fewer numbers a record, rows are too easily alike."""


def require_unmixed(given: Any, inputs: Any, records: int) -> None:
    """Raises if a row of the inputs was mixed from two of the given records."""
    originals = [t for t in tensors(given) if _comparable(t, records)]
    for tensor in tensors(inputs):
        if not _comparable(tensor, records):
            continue
        for original in originals:
            if original.shape == tensor.shape:
                rows = original.to(tensor.device, tensor.dtype).flatten(1)
                _require_own(rows, tensor.detach().flatten(1), records)


def _comparable(tensor: Tensor, records: int) -> bool:
    rows = tensor.dim() > 1 and len(tensor) == records > 2
    return rows and tensor.is_floating_point() and tensor[0].numel() >= LEAST


def _require_own(originals: Tensor, rows: Tensor, records: int) -> None:
    for record in choose(records, FEW):
        if torch.equal(originals[record], rows[record]):
            continue
        if _moved(originals, rows, record) or _patched(originals, rows, record):
            raise TicketError(
                "a row that the model is run on must come from one record, got one mixed from two "
                "(mixup, CutMix): each of them would count more than once. Leave mixing out; "
                "augmenting each record by itself is fine."
            )


def _moved(originals: Tensor, rows: Tensor, record: int) -> bool:
    """Whether a row lies on the way to another record."""
    move, ways = rows[record] - originals[record], originals - originals[record]
    lengths = torch.linalg.vector_norm(ways, dim=1) * torch.linalg.vector_norm(move)
    # Every way leads past a record of zeros: that would be a change of brightness.
    there = torch.linalg.vector_norm(originals, dim=1) > 0
    return bool(((ways @ move > 0.9999 * lengths) & (lengths > 0) & there).any())


def _patched(originals: Tensor, rows: Tensor, record: int) -> bool:
    """Whether the part of a row that was changed is that of another record."""
    changed = rows[record] != originals[record]
    if int(changed.sum()) < LEAST:
        return False
    part = originals[:, changed]
    alike = (part == rows[record][changed]).all(dim=1) & (part != 0).any(dim=1)
    return bool(alike.any())
