# SPDX-License-Identifier: Apache-2.0
"""Reading: a value that was released and paid for, as a policy sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """A released value: all that a policy may see.

    Attributes:
        name: Which signal it is.
        value: The number of records, or the mean loss.
        deviation: Standard deviation of the noise on `value`; 0 on public data.
        records: The public number of records it is about.
        rising: Whether larger is better.
        noise_multiplier: The noise it was paid for; 0 on public data.
    """

    name: str
    value: float
    deviation: float
    records: int
    rising: bool
    noise_multiplier: float

    @property
    def public(self) -> bool:
        """Whether it was computed on public data."""
        return self.noise_multiplier == 0

    @property
    def score(self) -> float:
        """The value, turned so that larger is better."""
        return self.value if self.rising else -self.value

    @property
    def quality(self) -> float:
        """What a target is compared with: the share of records (0 to 1), or the mean loss."""
        return min(1.0, max(0.0, self.value / self.records)) if self.rising else self.value
