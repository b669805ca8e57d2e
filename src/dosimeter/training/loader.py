# SPDX-License-Identifier: Apache-2.0
"""PrivateLoader: Poisson batches, each paid for before its records are read.

A logical batch is drawn with the rate it was paid for, then handed out in physical batches
of bounded size. Records are read one physical batch at a time, in this process: reading
ahead would touch data that the gate has not admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset, default_collate

from dosimeter.decisions import Piece, StepSettings, Ticket
from dosimeter.training.entropy import PoissonSampler
from dosimeter.training.optimizer import PrivateOptimizer


class Records(Protocol):
    """A map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class PrivateLoader:
    """Iterates over physical batches of one epoch; ends early when the gate refuses.

    An epoch is as many steps as it takes to draw each record once on average. `len` is that
    number of logical steps at the present batch size. A logical batch that happens to hold no
    record is not handed out: the loader takes its step, which is noise alone, by itself.
    """

    def __init__(
        self,
        dataset: Records,
        optimizer: PrivateOptimizer,
        sampler: PoissonSampler,
        *,
        draw: Callable[[], Ticket | None],
        settings: Callable[[], StepSettings],
        shard: slice,
        physical_batch_size: int,
        collate: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.dataset = dataset
        self.physical_batch_size = physical_batch_size
        self._optimizer, self._sampler = optimizer, sampler
        self._draw, self._settings = draw, settings
        self._shard = shard
        self._collate = collate

    def __len__(self) -> int:
        return self._settings().steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        drawn = 0.0
        while not drawn > 1.0 - 1e-9:
            ticket = self._draw()
            if ticket is None:
                return
            drawn += ticket.settings.sample_rate
            yield from self._pieces(ticket)
            ticket.require_stepped()

    def _pieces(self, ticket: Ticket) -> Iterator[Any]:
        records = self._sampler.draw(ticket.settings.sample_rate)
        if not len(records):
            self._optimizer.step_on_nothing(ticket)
            return
        # Where this process' records lie in the dataset.
        records = self._shard.start + self._shard.step * records
        for start in range(0, len(records), self.physical_batch_size):
            chosen = records[start : start + self.physical_batch_size]
            last = start + self.physical_batch_size >= len(records)
            self._optimizer.receive(ticket, Piece(size=len(chosen), last=last))
            # No name is given to the batch: it would live on while the next one is read.
            yield self._optimizer.hand_out(read(self.dataset, chosen, self._collate))


def read(
    dataset: Records,
    chosen: npt.NDArray[np.intp] | Sequence[int],
    collate: Callable[[list[Any]], Any] | None = None,
) -> Any:
    """The chosen records as one batch."""
    if collate is None and type(dataset) is TensorDataset:
        index = torch.as_tensor(np.asarray(chosen))
        # Three times as fast as tensor[index] for rows of thousands of numbers.
        return [tensor.index_select(0, index.to(tensor.device)) for tensor in dataset.tensors]
    records = [dataset[index] for index in np.asarray(chosen).tolist()]
    return (collate or default_collate)(records)
