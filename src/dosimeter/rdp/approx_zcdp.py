# SPDX-License-Identifier: Apache-2.0
"""Mechanisms known to keep a line above their Rényi curve, but for a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import SLACK, Cost, Option
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray, Orders


@dataclass(frozen=True, repr=False)
class ApproxZcdp(Cost):
    """delta-approximate rho-zCDP (Bun and Steinke 2016, Def. 8.1).

    Either law is (1 - delta) of one that keeps D_a <= rho a to that of the other, and delta of
    anything. Whoever is told which of the two it was knows more, so it is a `Zcdp` but for a
    failure of probability delta, drawn from a gate's `approx_delta` (docs/guarantees.md, point 5).
    """

    rho: float
    delta: float = field()

    kind: ClassVar[str] = "approx_zcdp"
    option: ClassVar[Option] = Option(
        "approx_zcdp", "RHO,DELTA", "Concentrated DP but for a delta."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rho", arguments.non_negative("rho", self.rho))
        object.__setattr__(self, "delta", arguments.half_open_unit("delta", self.delta))

    def _curve(self, orders: Orders) -> FloatArray:
        return np.asarray(self.rho * orders.array * SLACK)

    def loss(self, direction: Direction) -> None:
        """None: many losses have this curve."""

    def dp_event(self) -> None:
        """None: dp-accounting has no such event."""
