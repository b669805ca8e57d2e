# SPDX-License-Identifier: Apache-2.0
"""Signals: how well a model does on data, released privately and charged before it is computed.

Each record adds a whole number from 0 to a known bound, and the sum gets Gaussian noise rounded
to whole numbers, from the same exact sampler as training, always from the operating system's
entropy. Public data costs nothing, gets no noise, and must be declared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.decisions import Reading
from dosimeter.rdp import Gaussian
from dosimeter.training.entropy import SystemEntropy
from dosimeter.training.gaussian import RoundedNormals
from dosimeter.training.group import Group
from dosimeter.training.loader import Records, read

_GRID = 2**20
"""A clipped loss is counted in units of bound / 2**20, so that its sum is a whole number."""

_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class Signal(ABC):
    """How to read a model: what to sum over the records, and with how much noise.

    Args:
        noise_multiplier: Standard deviation of the noise over what one record can add.
        public: Declares the data public: no noise and no charge.
        records: The public number of records, by default the length of the dataset.
    """

    noise_multiplier: float
    public: bool = False
    records: int | None = None

    def __post_init__(self) -> None:
        arguments.positive("noise_multiplier", self.noise_multiplier)

    @property
    def cost(self) -> Gaussian | None:
        """What one reading costs; None on public data."""
        return None if self.public else Gaussian(self.noise_multiplier)

    def read(self, model: nn.Module, dataset: Records, *, gate: Gate | None = None) -> Reading:
        """Pays, computes, and releases one reading.

        Args:
            model: Run in eval mode, without gradients, and put back into its mode; it must
                then treat every record by itself.
            dataset: Gives (input, label) pairs.
            gate: What is charged: the engine, or any gate. Not needed on public data.

        Raises:
            BudgetExceeded: The gate refused; no record was read.
        """
        if self.public:
            return self._reading(float(self._sum(model, dataset, Group.alone())), len(dataset))
        if gate is None:
            raise TypeError(
                "gate must be given to read private data, got None. Pass gate=engine, or "
                "public=True if the data is public."
            )
        group: Group = getattr(gate, "group", None) or Group.alone()
        gate.spend(Gaussian(self.noise_multiplier))
        total = group.total(self._sum(model, dataset, group))
        scale = self.noise_multiplier * self._bound()
        noisy = group.lead(lambda: with_noise(total, scale))
        return self._reading(float(noisy), len(dataset))

    @property
    def _noise(self) -> float:
        return 0.0 if self.public else self.noise_multiplier

    def _sum(self, model: nn.Module, dataset: Records, group: Group) -> int:
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad():
                shard = range(group.rank, len(dataset), group.size)
                return sum(
                    self._checked(self._parts(model(x), y), len(x))
                    for x, y in _batches(dataset, shard)
                )
        finally:
            model.train(was_training)

    def _checked(self, parts: Tensor, records: int) -> int:
        """The sum of what each record adds: the noise is made for that and no more."""
        fits = parts.shape == (records,) and bool(((parts >= 0) & (parts <= self._bound())).all())
        if not fits:
            raise ValueError(
                f"a signal must add one number from 0 to {self._bound()} per record, got numbers "
                f"of shape {tuple(parts.shape)} for {records} records"
            )
        return int(parts.sum().item())

    @abstractmethod
    def _bound(self) -> int:
        """The most that one record can add."""

    @abstractmethod
    def _parts(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """What each record adds, as whole numbers from 0 to the bound."""

    @abstractmethod
    def _reading(self, total: float, length: int) -> Reading:
        """The reading that a sum over `length` records makes."""


@dataclass(frozen=True, kw_only=True)
class CorrectCount(Signal):
    """The number of correctly classified records.

    A count on *training* data overstates the accuracy on new data, by a point or two.
    """

    noise_multiplier: float = 100.0

    def _bound(self) -> int:
        return 1

    def _parts(self, outputs: Tensor, labels: Tensor) -> Tensor:
        chosen = outputs.argmax(dim=1)
        if chosen.shape != labels.shape:
            raise ValueError(
                "labels must be one class index per record, got labels of shape "
                f"{tuple(labels.shape)} for predictions of shape {tuple(chosen.shape)}"
            )
        return (chosen == labels).long()

    def _reading(self, total: float, length: int) -> Reading:
        count = self.records or length
        return Reading("correct count", total, self._noise, count, True, self._noise)


@dataclass(frozen=True, kw_only=True)
class MeanLoss(Signal):
    """The mean of the loss, each record's clipped to [0, `bound`].

    Args:
        bound: The largest loss that counts; also what a loss that is not a number counts as.
        loss_fn: Gives one loss per record; cross entropy by default.
    """

    noise_multiplier: float = 100.0
    bound: float = 4.0
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.positive("bound", self.bound)

    def _bound(self) -> int:
        return _GRID

    def _parts(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.loss_fn is None:
            losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
        else:
            losses = self.loss_fn(outputs, labels)
        if losses.shape != labels.shape[:1]:
            raise ValueError(
                f"loss_fn must give one loss per record ({len(labels)}), got shape "
                f"{tuple(losses.shape)}. Use reduction='none'."
            )
        losses = torch.nan_to_num(losses.double(), nan=self.bound, posinf=self.bound)
        return (losses.clamp(0.0, self.bound) / self.bound * _GRID).round().long()

    def _reading(self, total: float, length: int) -> Reading:
        count = self.records or length
        mean, deviation = total * self.bound / _GRID / count, self._noise * self.bound / count
        return Reading("mean loss", mean, deviation, count, False, self._noise)


def with_noise(value: int, scale: float) -> int:
    """A whole number plus Gaussian noise of deviation `scale`, rounded, exactly.

    That is the Gaussian mechanism's output, rounded, so whatever holds for `Gaussian` holds for it,
    on a menu too; the discrete Gaussian has the same Rényi bound, but not the same loss
    (Theorem 7 in docs/guarantees.md).
    """
    noise = RoundedNormals(1).draw(SystemEntropy().keystream(), scale, 1)
    return value + int(noise.item())


def _batches(dataset: Records, shard: range) -> Iterator[tuple[Any, Tensor]]:
    for start in range(0, len(shard), _CHUNK):
        yield pair(read(dataset, shard[start : start + _CHUNK]))


def pair(batch: Any) -> tuple[Any, Tensor]:
    """A batch as input and labels."""
    if not isinstance(batch, list | tuple) or len(batch) != 2 or batch[1] is None:
        raise ValueError(
            "dataset must give (input, label) pairs, got "
            f"{f'{len(batch)} values' if isinstance(batch, list | tuple) else type(batch).__name__}"
        )
    return batch[0], batch[1]
