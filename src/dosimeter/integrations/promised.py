# SPDX-License-Identifier: Apache-2.0
"""PromisedLoader: frameworks ask for the length of a loader before there is an optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dosimeter.decisions import StepSettings
from dosimeter.training.loader import PrivateLoader, Records, batches_in_epoch


class PromisedLoader:
    """Stands for a private loader that is still to be made, and has its length.

    Args:
        dataset: What will be drawn from.
        batch_size: Expected size of a logical batch.
        physical_batch_size: The most records of a physical batch; None for a whole one.
        records: The public number of records.
        processes: How many processes share the data.

    Attributes:
        private: The loader, once it is made.
    """

    def __init__(
        self,
        dataset: Records,
        batch_size: int,
        physical_batch_size: int | None,
        *,
        records: int,
        processes: int,
    ) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self.physical_batch_size, self.records = physical_batch_size, records
        self._processes = processes
        self.private: PrivateLoader | None = None

    def __len__(self) -> int:
        if self.private is not None:
            return len(self.private)
        settings = StepSettings(1.0, self.batch_size, self.records)  # noise is no matter here
        size = self.physical_batch_size
        return batches_in_epoch(settings, len(self.dataset), self._processes, size)

    def __iter__(self) -> Iterator[Any]:
        assert self.private is not None
        yield from self.private
