# SPDX-License-Identifier: Apache-2.0
"""Mechanisms with finitely many outputs, whose every probability is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf

from dosimeter import arguments
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.moments import log_excess, log_of_one_plus
from dosimeter.rdp.orders import FloatArray

_SLACK = 1.0 + 1e-12


@dataclass(frozen=True)
class FiniteMechanism(Cost):
    """Output i has probability p_i in one world and p_i e^{-loss_i} in the other.

    One more output takes the rest of the probability in both worlds. With one listed
    output, p at most 1/2 and a positive loss this is a Laplace count compared with a
    threshold.
    """

    losses: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        losses = tuple(arguments.real("losses", loss) for loss in self.losses)
        chances = tuple(arguments.open_unit("probabilities", p) for p in self.probabilities)
        if not losses or len(losses) != len(chances):
            raise ValueError(f"losses must match probabilities, got {losses} and {chances}")
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "probabilities", chances)
        p, q = self._listed()
        if not (p.sum() < 1 and q.sum() < 1):
            raise ValueError(f"probabilities must sum to less than 1 in both worlds, got {self}")

    def worlds(self) -> list[tuple[mpf, mpf]]:
        """(p, q) of every output, the rest last, in mpmath's working precision."""
        pairs = [
            (mpf(p), mpf(p) * mp.exp(-mpf(loss)))
            for loss, p in zip(self.losses, self.probabilities, strict=True)
        ]
        rest = (1 - mp.fsum(p for p, _ in pairs), 1 - mp.fsum(q for _, q in pairs))
        return [*pairs, rest]

    def _listed(self) -> tuple[FloatArray, FloatArray]:
        p = np.array(self.probabilities)
        return p, p * np.exp(-np.array(self.losses))

    def _curve(self, orders: Orders) -> FloatArray:
        p, q = self._listed()
        # log of (1 - sum p) / (1 - sum q), without the cancellation of near-equal logs.
        rest = np.log1p((p @ np.expm1(-np.array(self.losses))) / (1 - q.sum()))
        losses = np.append(self.losses, rest)
        p, q = np.append(p, 1 - p.sum()), np.append(q, 1 - q.sum())
        order = orders.array[:, None]
        forth = np.log(np.exp(log_excess(order, losses[None, :])) @ q)
        back = np.log(np.exp(log_excess(order, -losses[None, :])) @ p)
        return np.asarray(log_of_one_plus(np.maximum(forth, back)) / orders.beta * _SLACK)
