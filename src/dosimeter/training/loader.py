# SPDX-License-Identifier: Apache-2.0
"""PrivateLoader: Poisson batches, each paid for before its records are read.

A logical batch is drawn with the rate it was paid for, then handed out in physical batches
of bounded size. Records are read one physical batch at a time, in this process; or by workers,
which read ahead only what is paid for: then steps are paid ahead, and what a loop that is left
early did not use stays spent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from dosimeter.decisions import Piece, StepSettings, Ticket
from dosimeter.errors import BudgetExceeded
from dosimeter.training.entropy import PoissonSampler
from dosimeter.training.group import Group
from dosimeter.training.optimizer import PrivateOptimizer
from dosimeter.training.pieces import Division, pieces

Collate = Callable[[list[Any]], Any]


class Records(Protocol):
    """A map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Reading:
    """How records are read.

    Args:
        physical_batch_size: The most records of a physical batch.
        collate: Makes a batch of a list of records; PyTorch's default otherwise.
        workers: How many processes read; with none this one does.
    """

    physical_batch_size: int
    collate: Collate | None
    workers: int


@dataclass(frozen=True)
class Order:
    """A physical batch that is paid for: its ticket, its place in the step, its records."""

    ticket: Ticket
    piece: Piece
    chosen: npt.NDArray[np.intp]


class PrivateLoader:
    """Iterates over physical batches of one epoch; ends early when the gate refuses.

    An epoch is as many steps as it takes to draw each record once on average. `len` is how many
    physical batches it has at the present batch size, whichever records are drawn: frameworks
    stop after that many, and a step must not be cut off. A logical batch without records is
    not handed out: the loader takes its step, which is noise alone, by itself. Where there are
    fewer records than batches to hand out, a record comes again and its gradient is dropped.
    """

    def __init__(
        self,
        dataset: Records,
        optimizer: PrivateOptimizer,
        sampler: PoissonSampler,
        reading: Reading,
        *,
        draw: Callable[[bool], Ticket | None],
        settings: Callable[[], StepSettings],
        group: Group,
    ) -> None:
        self.dataset = dataset
        self._optimizer, self._sampler = optimizer, sampler
        self._reading, self._draw, self._settings = reading, draw, settings
        self._group = group
        self._at_work: Ticket | None = None

    @property
    def physical_batch_size(self) -> int:
        """The most records of a physical batch."""
        return self._reading.physical_batch_size

    def __len__(self) -> int:
        return batches_in_epoch(
            self._settings(), len(self.dataset), self._group.size, self.physical_batch_size
        )

    def __iter__(self) -> Iterator[Any]:
        if self._reading.workers:
            yield from self._read_ahead()
            return
        for order in self._paid():
            if len(order.chosen):
                # No name is given to the batch: it would live on while the next one is read.
                self._receive(order)
                yield self._optimizer.hand_out(
                    read(self.dataset, order.chosen, self._reading.collate)
                )
                order.ticket.require_stepped()
            else:
                self._step_on_nothing(order)

    def _read_ahead(self) -> Iterator[Any]:
        """The same with workers: PyTorch asks for two batches a worker ahead, and pays then."""
        waiting: deque[Order] = deque()
        refused: list[BudgetExceeded] = []

        def places() -> Iterator[list[int]]:
            try:
                for order in self._paid(ahead=True):
                    waiting.append(order)
                    if len(order.chosen):
                        yield order.chosen.tolist()
            except BudgetExceeded as error:  # what is paid for is trained on first
                refused.append(error)

        source: Any = self.dataset
        collate = self._reading.collate
        for batch in DataLoader(
            source, batch_sampler=_Once(places), num_workers=self._reading.workers,
            collate_fn=collate,
        ):  # fmt: skip
            self._step_on_empty(waiting)
            order = waiting.popleft()
            self._receive(order)
            yield self._optimizer.hand_out(batch)
            order.ticket.require_stepped()
        self._step_on_empty(waiting)
        if refused:
            raise refused[0]

    def _paid(self, *, ahead: bool = False) -> Iterator[Order]:
        """Pays for one step of an epoch after another, and divides each."""
        drawn, left, first = 0.0, len(self), True
        while not drawn > 1.0 - 1e-9:
            ticket = self._draw(ahead and not first)
            if ticket is None:
                return
            first = False
            rate = ticket.settings.sample_rate
            drawn += rate
            records = self._sampler.draw(rate)
            steps_left = int(np.ceil(max(0.0, 1.0 - 1e-9 - drawn) / rate))
            spare = left - self._division(ticket.settings).needed(steps_left)
            # What is left over goes to the last step at the latest.
            count = spare if len(records) or not steps_left else 0
            least = pieces(len(records), self.physical_batch_size)
            # Frameworks let ranks meet at every batch, so all have equally many.
            count = self._group.largest(max(least, count))
            left -= count
            yield from self._orders(ticket, records, count)

    def _orders(self, ticket: Ticket, records: npt.NDArray[np.intp], count: int) -> Iterator[Order]:
        # Where this process' records lie in the dataset.
        records = self._group.rank + self._group.size * records
        if not count:
            yield Order(ticket, Piece(size=0, last=True), records)
            return
        parts = np.array_split(records, min(count, len(records))) if len(records) else []
        for number in range(count):
            real = number < len(parts)
            chosen = parts[number] if real else self._stand_in(records)
            yield Order(ticket, Piece(len(chosen), number == count - 1, counts=real), chosen)

    def _stand_in(self, records: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """A record whose gradient will be dropped."""
        return records[:1] if len(records) else np.array([self._group.rank])

    def _receive(self, order: Order) -> None:
        self._begin(order.ticket)
        self._optimizer.receive(order.ticket, order.piece)

    def _step_on_nothing(self, order: Order) -> None:
        self._begin(order.ticket)
        self._optimizer.step_on_nothing(order.ticket)

    def _step_on_empty(self, waiting: deque[Order]) -> None:
        while waiting and not len(waiting[0].chosen):
            self._step_on_nothing(waiting.popleft())

    def _begin(self, ticket: Ticket) -> None:
        if ticket is not self._at_work:
            self._at_work = ticket
            self._optimizer.begin(ticket)

    def _division(self, settings: StepSettings) -> Division:
        size, processes = self.physical_batch_size, self._group.size
        return _division(settings, len(self.dataset), processes, size)


def batches_in_epoch(
    settings: StepSettings, records: int, processes: int, physical_batch_size: int | None
) -> int:
    """How many physical batches each of some processes hands out in an epoch."""
    division = _division(settings, records, processes, physical_batch_size or records)
    return division.needed(settings.steps_per_epoch)


def _division(settings: StepSettings, records: int, processes: int, size: int) -> Division:
    # The largest share, so that all ranks have equally many batches.
    return Division(-(-records // processes), settings.sample_rate, size)


class _Once(Iterable[list[int]]):
    """What PyTorch takes for a sampler of batches."""

    def __init__(self, places: Callable[[], Iterator[list[int]]]) -> None:
        self._places = places

    def __iter__(self) -> Iterator[list[int]]:
        return self._places()


def read(
    dataset: Records,
    chosen: npt.NDArray[np.intp] | Sequence[int],
    collate: Collate | None = None,
) -> Any:
    """The chosen records as one batch."""
    if collate is None and type(dataset) is TensorDataset:
        index = torch.as_tensor(np.asarray(chosen))
        # Three times as fast as tensor[index] for rows of thousands of numbers.
        return [tensor.index_select(0, index.to(tensor.device)) for tensor in dataset.tensors]
    records = [dataset[index] for index in np.asarray(chosen).tolist()]
    return (collate or default_collate)(records)
