# SPDX-License-Identifier: Apache-2.0
"""The exact privacy loss of one run, in a form that needs no knowledge of the mechanism.

A loss says where it lies, on what scale it varies, and how likely either world is to see it
between given cuts. That is all that prices need. Each mechanism that has a dominating pair
describes its own; finitely many outcomes are described here for all.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, SupportsFloat

import numpy as np

from dosimeter.rdp.orders import FloatArray

CLOSED_ERROR = 1e-12
"""Relative error of a probability by a closed form, the normal distribution function included."""

LEAST_NOISE = 0.2
"""Below it cells are too narrow for the normal distribution function in doubles."""

_TAIL = 1e-25
"""Probability beyond which normal outputs need not be looked at: prices add more than that."""


class Direction(enum.Enum):
    """Which of the two neighbours has the extra record."""

    REMOVE = "the first"
    ADD = "the second"


class Cells(NamedTuple):
    """Probabilities of a loss between successive cuts, and above the last.

    Attributes:
        p: In the world whose loss it is, for each cell; the first holds all that is lower, too.
        q: In the other world.
        error: What `p`, and `q` times e^loss, may each be wrong by.
        beyond: The same three of what lies above the last cut.
    """

    p: FloatArray
    q: FloatArray
    error: FloatArray
    beyond: tuple[float, float, float]


@dataclass(frozen=True)
class Loss(ABC):
    """The privacy loss of one run in one direction: a frozen value, equal where losses are.

    Attributes:
        low: No loss is below it, but for what has a probability of 1e-25.
        high: No finite loss is above it, but for what has a probability of 1e-25.
        scale: The size of a typical loss; infinity where any lattice will do.

    Guarantee:
        The hockey-stick divergence of the mechanism is at most that of this loss at every real
        epsilon, for all neighbours in this direction (Lemma 1 of docs/prices.md needs no more).
    """

    low: float
    high: float
    scale: float

    @abstractmethod
    def cells(self, cuts: FloatArray) -> Cells:
        """How likely a loss between successive cuts is in either world.

        Raises:
            ValueError: Doubles cannot tell, or another mechanism says it better.
        """


@dataclass(frozen=True)
class Atoms(Loss):
    """The loss of finitely many outcomes: both probabilities and the loss log(p / q) of each."""

    outcomes: tuple[tuple[float, float, float], ...]

    @classmethod
    def of(cls, worlds: Iterable[tuple[SupportsFloat, SupportsFloat]], way: Direction) -> Atoms:
        """From (p, q) of every outcome; one that only the first world has is an infinite loss."""
        pairs = [(float(p), float(q)) for p, q in worlds]
        if way is Direction.ADD:
            pairs = [(q, p) for p, q in pairs]
        losses = ((p, q, math.log(p / q) if q > 0 else math.inf) for p, q in pairs if p > 0)
        outcomes = tuple(sorted(losses))
        finite = [loss for *_, loss in outcomes if loss < math.inf] or [0.0]
        return cls(min(finite), max(finite), math.inf, outcomes)

    def cells(self, cuts: FloatArray) -> Cells:
        """Each outcome in the cell at whose upper end, or below it, its loss lies."""
        p, q = np.zeros(len(cuts)), np.zeros(len(cuts))
        for chance, other, loss in self.outcomes:
            cell = max(0, int(np.searchsorted(cuts, loss)) - 1)
            p[cell] += chance
            q[cell] += other
        beyond = float(p[-1]), float(q[-1]), CLOSED_ERROR * float(p[-1])
        return Cells(p[:-1], q[:-1], CLOSED_ERROR * p[:-1], beyond)


def require_noise(noise_multiplier: float) -> None:
    """Refuses what cannot be cut into cells."""
    if not noise_multiplier >= LEAST_NOISE * (1 - 1e-12):
        raise ValueError(
            f"menu must hold noise of at least {LEAST_NOISE}, got {noise_multiplier:.6g}; "
            "spend it off the menu"
        )


@cache
def normal_reach() -> float:
    """Deviations of a normal output beyond which it need not be looked at."""
    # scipy takes long to import, and only menus need it.
    from scipy.special import ndtri_exp

    return -float(ndtri_exp(math.log(_TAIL)))


def normal_tail(cut: float) -> float:
    """Standard normal probability below a cut."""
    from scipy.special import ndtr

    return float(ndtr(cut))


def normal_between(cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard normal probability between successive cuts, and what the difference may lose."""
    from scipy.special import ndtr

    low, high = cuts[:-1], cuts[1:]
    # From the nearer tail, whose probability is the larger of the two that are subtracted.
    near, far = np.where(low > 0, ndtr(-low), ndtr(high)), np.where(low > 0, ndtr(-high), ndtr(low))
    return np.maximum(near - far, 0.0), 2.0**-49 * near
