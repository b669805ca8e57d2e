# SPDX-License-Identifier: Apache-2.0
"""Mechanisms of which nothing is known but a line above their Rényi curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.rdp.cost import SLACK, Cost, Option
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.orders import FloatArray, Orders

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, repr=False)
class Zcdp(Cost):
    """Zero-concentrated DP: D_a <= xi + rho a (Bun and Steinke 2016, Def. 1.1)."""

    rho: float
    xi: float = 0.0

    kind: ClassVar[str] = "zcdp"
    option: ClassVar[Option] = Option("zcdp", "RHO[,XI]", "Concentrated DP.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rho", arguments.non_negative("rho", self.rho))
        object.__setattr__(self, "xi", arguments.non_negative("xi", self.xi))

    def _curve(self, orders: Orders) -> FloatArray:
        return np.asarray((self.xi + self.rho * orders.array) * SLACK)

    def loss(self, direction: Direction) -> None:
        """None: many losses have this curve."""

    def dp_event(self) -> dp_accounting.DpEvent:
        """A ZCDpEvent, which has a Rényi curve but no loss distribution there either."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(self.rho, self.xi)
