# SPDX-License-Identifier: Apache-2.0
"""Mechanisms with finitely many outputs, whose every probability is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from mpmath import mp, mpf

from dosimeter import arguments
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.loss import Atoms, Direction
from dosimeter.rdp.moments import log_excess, log_of_one_plus
from dosimeter.rdp.orders import FloatArray

_SLACK = 1.0 + 1e-11


@dataclass(frozen=True, repr=False)
class FiniteMechanism(Cost):
    """Output i has probability p_i in one world and p_i e^{-loss_i} in the other.

    One more output takes the rest of the probability in both worlds. With one listed
    output, p at most 1/2 and a positive loss this is a Laplace count compared with a
    threshold.
    """

    losses: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        losses = tuple(arguments.real("losses", loss) for loss in self.losses)
        chances = tuple(arguments.open_unit("probabilities", p) for p in self.probabilities)
        if not losses or len(losses) != len(chances):
            raise ValueError(f"losses must match probabilities, got {losses} and {chances}")
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "probabilities", chances)
        if not all(abs(loss) <= 700 for loss in losses):
            raise ValueError(f"losses must lie between -700 and 700, got {losses}")
        if not (self._rest()[0] > 0 and self._rest()[1] > 0):
            raise ValueError(f"probabilities must sum to less than 1 in both worlds, got {self}")

    def worlds(self) -> list[tuple[mpf, mpf]]:
        """(p, q) of every output, the rest last, in mpmath's working precision."""
        pairs = [
            (mpf(p), mpf(p) * mp.exp(-mpf(loss)))
            for loss, p in zip(self.losses, self.probabilities, strict=True)
        ]
        rest = (1 - mp.fsum(p for p, _ in pairs), 1 - mp.fsum(q for _, q in pairs))
        return [*pairs, rest]

    def loss(self, direction: Direction) -> Atoms:
        """That of its outputs."""
        return Atoms.of(self.worlds(), direction)

    def _rest(self) -> tuple[float, float]:
        """What the listed outputs leave in each world: exact in one, hence close in the other."""
        p = float(1 - sum(map(Fraction, self.probabilities)))
        return p, p - float(np.array(self.probabilities) @ np.expm1(-np.array(self.losses)))

    def _curve(self, orders: Orders) -> FloatArray:
        rest_p, rest_q = self._rest()
        change = (rest_p - rest_q) / rest_q
        near = abs(change) < 0.5
        losses = np.append(self.losses, math.log1p(change) if near else math.log(rest_p / rest_q))
        p = np.append(self.probabilities, rest_p)
        q = np.append(np.array(self.probabilities) * np.exp(-np.array(self.losses)), rest_q)
        order = orders.array[:, None]
        forth = log_excess(order, losses[None, :]) + np.log(q)
        back = log_excess(order, -losses[None, :]) + np.log(p)
        moment = np.maximum(*(np.logaddexp.reduce(side, axis=1) for side in (forth, back)))
        return np.asarray(log_of_one_plus(moment) / orders.beta * _SLACK)
