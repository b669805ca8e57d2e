# SPDX-License-Identifier: Apache-2.0
"""TrainingGuarantee: what holds for a trained model, in words that can be quoted."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dosimeter.accounting.guarantee import SEEDED, Guarantee


@dataclass(frozen=True)
class TrainingGuarantee:
    """What the gate guarantees, and whether a seed takes it away again.

    Attributes:
        gate: What the gate says of itself: as data, or in words where it is not of the library.
        seeded: Whether the noise of the run, or of a part of it, came from a seed.
    """

    gate: Guarantee | str
    seeded: bool

    @property
    def data(self) -> Guarantee | None:
        """The guarantee as data, with the seed; None where the gate has words alone."""
        if not isinstance(self.gate, Guarantee):
            return None
        return replace(self.gate, seeded=self.seeded or self.gate.seeded)

    def __str__(self) -> str:
        if self.data is not None:
            return str(self.data)
        return f"{self.gate}{SEEDED if self.seeded else ''}"
