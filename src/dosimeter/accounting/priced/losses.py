# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of one run of a mechanism, as a measure on the lattice, per direction.

A mechanism describes its exact loss itself (`dosimeter.rdp.loss`); here it is cut into cells and
put on the lattice. What has no known loss (a Rényi curve, an event) cannot be on a menu.
"""

from __future__ import annotations

import math

import numpy as np

from dosimeter.accounting.priced.items import Direction
from dosimeter.accounting.priced.lattice import FINE, Measure, spread, step_of
from dosimeter.rdp import Cost, Neighbours
from dosimeter.rdp.loss import Loss
from dosimeter.rdp.orders import FloatArray

LARGEST_LOSS = 600.0
"""Beyond it e^-loss leaves the range of a float."""

_FINEST = -8
_POINTS_PER_SCALE = 48
_MANY_CELLS = 200_000
_MOST_CELLS = 2_000_000


def symmetric(cost: Cost) -> bool:
    """Whether the loss is the same in both directions."""
    return cost.loss(Direction.REMOVE) == cost.loss(Direction.ADD)


def single_loss(
    cost: Cost, direction: Direction, level: int, reach: float = LARGEST_LOSS
) -> Measure:
    """The loss of one run of `cost` on a lattice no coarser than `level`.

    Args:
        cost: The mechanism.
        direction: Which neighbour has the extra record.
        level: The coarsest lattice to use.
        reach: Losses beyond it are spread between it and infinity. That costs nothing where
            every value is linear in u = e^-loss, far above a budget's epsilon, and spares a
            long thin tail its million cells. Losses below minus it are raised to that.

    Raises:
        ValueError: Its loss distribution is not known, or not on a menu's scale.
    """
    loss = _known(cost, direction)
    _require_within(LARGEST_LOSS, loss.low, loss.high)
    high = min(loss.high, reach)
    low = min(max(loss.low, -reach), high)
    finest = _level(loss.scale, level)
    # A long tail beside a narrow body would have too many cells.
    while finest < level and high - low > _MANY_CELLS * step_of(finest):
        finest += 1
    step = step_of(finest)
    _require_within(_MOST_CELLS * step / 2, low, high)
    first, last = math.floor(low / step), math.ceil(high / step)
    # Rounding must not leave the largest loss above the last cell.
    last += last * step < high or last == first
    cuts: FloatArray = np.arange(first, last + 1, dtype=np.float64) * step
    cells = loss.cells(cuts)
    return spread(finest, first, cells.p, cells.q, cells.error, cells.beyond)


def _known(cost: Cost, direction: Direction) -> Loss:
    loss = cost.loss(direction)
    if loss is None:
        raise ValueError(
            "menu must hold Gaussian costs or others whose loss distribution is known, "
            f"got {cost}; spend others off the menu"
        )
    if cost.neighbours is Neighbours.REPLACE_ONE_RECORD and not symmetric(cost):
        # Either record may be the one that the first world has, in every round anew.
        raise ValueError(
            "menu must hold costs with the same loss either way where one record is replaced, "
            f"got {cost}; spend others off the menu"
        )
    return loss


def _level(scale: float, coarsest: int) -> int:
    """A lattice fine enough for losses of this scale."""
    if scale == math.inf:
        return coarsest
    wanted = math.log2(scale / (_POINTS_PER_SCALE * FINE)) if scale > 0 else -math.inf
    return min(coarsest, math.floor(max(wanted, _FINEST)))


def _require_within(most: float, low: float, high: float) -> None:
    if not (high <= most and -low <= most):
        raise ValueError(
            f"menu must hold costs whose losses stay within {most:g}, "
            f"got one that reaches {max(high, -low):g}; spend it off the menu"
        )
