# SPDX-License-Identifier: Apache-2.0
"""StepSettings and Ticket: what a step costs, and the right to take it once.

Noise, sample rate and expected batch size sit in one frozen value, and the cost is made
from that same value: they cannot change apart from each other, nor in the middle of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dosimeter import arguments
from dosimeter.errors import TicketError
from dosimeter.rdp import SampledGaussian


@dataclass(frozen=True)
class StepSettings:
    """What one logical step does, and so what it costs.

    Args:
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        batch_size: Expected number of records in a batch.
        records: The public number of records that batches are drawn from.
    """

    noise_multiplier: float
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        arguments.count("records", self.records)
        arguments.count("batch_size", self.batch_size)
        if not self.batch_size <= self.records:
            raise ValueError(
                f"batch_size must be at most the {self.records} records of the dataset, got "
                f"{self.batch_size!r}. Lower it, or use all records with batch_size={self.records}."
            )
        arguments.positive("noise_multiplier", self.noise_multiplier)

    @property
    def sample_rate(self) -> float:
        """The probability with which each record joins a batch, independently."""
        return self.batch_size / self.records

    @property
    def steps_per_epoch(self) -> int:
        """How many steps draw each record once on average, rounded up."""
        return -(-self.records // self.batch_size)

    @cached_property
    def cost(self) -> SampledGaussian:
        """What the gate is asked for before a step."""
        return SampledGaussian(self.sample_rate, self.noise_multiplier)


@dataclass(frozen=True)
class Piece:
    """A physical batch.

    Attributes:
        size: How many records it holds.
        last: Whether it ends its logical batch.
        counts: Whether its records are in the logical batch; otherwise their gradient is dropped.
    """

    size: int
    last: bool
    counts: bool = True


class Ticket:
    """The right to one step, already paid for; each of its pieces is stepped on once."""

    def __init__(self, settings: StepSettings) -> None:
        self.settings = settings
        self._piece: Piece | None = None
        self._void = False

    @property
    def partial(self) -> bool:
        """Whether a piece was handed out and not stepped on yet."""
        return self._piece is not None

    def void(self) -> None:
        """Makes the ticket worthless; what was spent for it stays spent."""
        self._void = True

    def hand_out(self, piece: Piece) -> None:
        """Gives a physical batch to the training loop; the one before must have been used."""
        self.require_stepped()
        if self._void:
            raise TicketError(
                "a loop must be the only one over its loader, got another one begun meanwhile. "
                "Finish or leave one loop before the next."
            )
        self._piece = piece

    def require_stepped(self) -> None:
        """Raises if the last piece was left unused: skipping would depend on the data."""
        if self._piece is not None and not self._void:
            raise TicketError(
                "optimizer.step() must be called on every batch that the loader gives, got a "
                "batch that was skipped. Which batches are skipped would tell about the data: "
                "step on all of them, or leave the loop."
            )

    def redeem(self) -> Piece:
        """The piece at hand, which cannot be had again."""
        piece = self._piece
        if self._void or piece is None:
            raise TicketError(
                "optimizer.step() must be called once for each batch drawn from the loader, got "
                "a step without an unused one. Draw the next batch first."
            )
        self._piece = None
        return piece
