"""A player who looks at what she has seen before she buys more, or stops when it suits her.

She knows the menu and its prices. Her strategies are those of a small game: a few sizes of
purchase, outputs rounded by `observer`, so that whatever she reaches, someone can reach.
"""

from __future__ import annotations

import math

import numpy as np

from adversaries.lots import Lots
from adversaries.observer import Runs, View

_PER_EPSILON = 500
_POINTS = 1600
_SPAN = 1.7


class Board:
    """Losses that she may have seen so far, around 0 and a limit, and what they are worth."""

    def __init__(self, limit, purchases):
        finest = min((view.deviation for view in purchases if view.deviation > 0), default=limit)
        limit = max(limit, 5 * finest, 1e-9)
        self._lay(limit, max(min(limit / _PER_EPSILON, finest / 5), _SPAN * limit / _POINTS))
        self._moves = [self._parted(view) for view in purchases]

    @classmethod
    def of_lots(cls, limit, step, lots):
        """The board of purchases that are parted already, on a lattice of this step."""
        board = cls.__new__(cls)
        board._lay(limit, step)
        board._moves = lots
        return board

    def _lay(self, limit, step):
        self.limit, self.step = limit, step
        self.zero, self._size = math.ceil(0.5 * limit / step), math.ceil(_SPAN * limit / step)

    def pays(self, epsilon, *, beyond=0):
        """What stopping pays where epsilon has been promised; or only at points beyond."""
        points = np.arange(self._size) if not beyond else self._size + np.arange(beyond)
        return -np.expm1(-np.maximum((points - self.zero) * self.step - epsilon, 0.0))

    def _parted(self, view):
        """What stays on the board, and the chances (p, q) of a loss far beyond the limit."""
        low, high = np.searchsorted(view.losses, [-1.8 * self.limit, 2.5 * self.limit]).tolist()
        low, high = min(low, len(view.p) - 1), max(high, low + 1)
        far = view.p[high:]
        q = float(far @ np.exp(-view.losses[high:]))
        near = View(view.step, view.low + low * view.step, view.p[low:high])
        return near.on(self.step, 0.0), float(far.sum()), q

    def after(self, number, value):
        """The mean of `value` after a purchase; below the board nothing, above it the least."""
        move, far_p, far_q = self._moves[number]
        first = round(move.low / self.step)
        last = first + len(move.p) - 1
        above = np.maximum(self.pays(self.limit, beyond=max(0, last)), value[-1])
        padded = np.concatenate([np.zeros(max(0, -first)), value, above])
        start = max(0, first)
        reached = padded[start : start + len(value) + len(move.p) - 1]
        # Far beyond the limit she stops, which pays 1 - e^{limit - loss}.
        points = (np.arange(self._size) - self.zero) * self.step
        stopped = np.maximum(far_p - np.exp(self.limit - points) * far_q, 0.0)
        return np.correlate(reached, move.p, "valid") + stopped


def purchases(menu, turns):
    """A number of quanta for a turn, and bundles of each item that cost as many turns or less.

    Returns (quanta of a turn, [(item, bundles, turns), ...]).
    """
    least = max(1, menu.quanta // turns)

    def waste(size):
        return (
            sum(
                min(
                    (k * size % item.price) / (k * size)
                    for k in range(1, 9)
                    if k * size >= item.price
                )
                if 8 * size >= item.price
                else 1.0
                for item in menu.items
            )
            + (menu.quanta % size) / menu.quanta
        )

    size = min(range(least, min(2 * least, menu.quanta) + 1), key=waste)
    plan = []
    for item in menu.items:
        first = math.ceil(item.price / size)
        best = min(range(first, first + 4), key=lambda k: (k * size % item.price) / (k * size))
        if best * size <= menu.quanta:
            plan.append((item, best * size // item.price, best))
    return size, plan


def bought(menu, turns, added, epsilon, delta):
    """The board and the moves of a game on a menu."""
    size, plan = purchases(menu, turns)
    views = [
        Runs(item.cost, added, epsilon=epsilon, delta=delta).of(bundles * item.steps)
        for item, bundles, _ in plan
    ]
    return size, [length for *_, length in plan], Board(epsilon, views)


def adaptive(menu, *, turns):
    """What she reaches who buys the best item at every turn until the quanta are spent."""
    best = 0.0
    for added in (False, True):
        size, lengths, board = bought(menu, turns, added, menu.epsilon, menu.delta)
        values = [board.pays(menu.epsilon)]
        for turn in range(1, menu.quanta // size + 1):
            options = [
                board.after(number, values[turn - length])
                for number, length in enumerate(lengths)
                if length <= turn
            ]
            values.append(np.maximum.reduce([values[-1], *options]))
        best = max(best, float(values[-1][board.zero]))
    return best


def stopping(menu, readings, *, turns):
    """What she reaches who also stops at the best moment, given a reading for each quantum."""
    best = 0.0
    for added in (False, True):
        size, lengths, board = bought(menu, turns, added, readings[-1], menu.delta)
        last = menu.quanta // size
        values = {}
        for turn in range(last, -1, -1):
            value = board.pays(readings[turn * size])
            for number, length in enumerate(lengths):
                if turn + length <= last:
                    value = np.maximum(value, board.after(number, values[turn + length]))
            values[turn] = value
        best = max(best, float(values[0][board.zero]))
    return best


def stopped(cost, counts, readings, delta):
    """What she reaches who runs one mechanism and stops after one of `counts` equal parts.

    `counts` are multiples of the first one, and `readings` what was read after each.
    """
    best = 0.0
    for added in (False, True):
        part = Runs(cost, added, epsilon=readings[-1], delta=delta).of(counts[0])
        board = Board(readings[-1], [part])
        value = 0 * board.pays(0.0)
        for reading in reversed(readings):
            value = board.after(0, np.maximum(value, board.pays(reading)))
        best = max(best, float(value[board.zero]))
    return best


def within(costs, sizes, most, epsilon, delta):
    """What she reaches who buys two costs in lots of `sizes`, never leaving a region of counts.

    Beside j lots of the second cost she may have up to most[j] of the first.
    """
    step = epsilon / _PER_EPSILON / 2
    lots = [Lots(cost, epsilon, delta, step) for cost in costs]
    board = Board.of_lots(
        epsilon, step, [lot.of(size) for lot, size in zip(lots, sizes, strict=True)]
    )
    more = []
    for limit in reversed(most):
        row = [board.pays(epsilon)] * (limit + 1)
        for i in range(limit, -1, -1):
            if i < limit:
                row[i] = np.maximum(row[i], board.after(0, row[i + 1]))
            if i < len(more):
                row[i] = np.maximum(row[i], board.after(1, more[i]))
        more = row
    return float(more[0][board.zero])
