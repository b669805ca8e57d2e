# SPDX-License-Identifier: Apache-2.0
"""TrainingGuarantee: what holds for a trained model, in words that can be quoted."""

from __future__ import annotations

from dataclasses import dataclass

_SEEDED = (
    "; but a seed was given, so the noise is predictable: against anyone who knows or guesses "
    "the seed there is no privacy"
)


@dataclass(frozen=True)
class TrainingGuarantee:
    """What the gate guarantees, and whether a seed takes it away again."""

    gate: str
    seeded: bool

    def __str__(self) -> str:
        return self.gate + (_SEEDED if self.seeded else "")
