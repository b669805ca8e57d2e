# SPDX-License-Identifier: Apache-2.0
"""The adversary who knows a menu and buys what serves her best after every output.

She tries every purchase that the gate admits after every history, so the tree is the best one of
its depth. At any moment she may instead ask for something off the menu, a two-point mechanism as
likely as the gate admits, and end there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dosimeter.accounting import Gate
from dosimeter.compare.adversaries.mechanism import FiniteMechanism
from dosimeter.compare.adversaries.play import Step, gate_after

_BISECTIONS = 40


def menu_adversary(
    new_gate: Callable[[], Gate],
    epsilon: float,
    menu: Sequence[FiniteMechanism],
    *,
    depth: int,
    off_menu: Sequence[float] = (),
) -> tuple[Step | None, float]:
    """Return the best adversary of at most `depth` purchases, and her hockey-stick divergence.

    She wants to see one of the two worlds rather than the other, and tries either.

    Args:
        new_gate: Makes the gate under attack.
        epsilon: The epsilon that the gate promises.
        menu: The mechanisms to choose from. The gate need not have a menu of them.
        depth: How many purchases to look ahead.
        off_menu: How far above epsilon the loss after a last mechanism off the menu may be;
            none are tried if empty.
    """
    towards_one = _best(new_gate, epsilon, menu, depth, off_menu, flipped=False)
    towards_other = _best(new_gate, epsilon, menu, depth, (), flipped=True)
    return max(towards_one, towards_other, key=lambda pair: pair[1])


def _best(
    new_gate: Callable[[], Gate],
    epsilon: float,
    menu: Sequence[FiniteMechanism],
    depth: int,
    off_menu: Sequence[float],
    *,
    flipped: bool,
) -> tuple[Step | None, float]:
    """Return the best adversary who wants to see the first world, or if flipped the other."""
    known: dict[tuple[tuple[int, ...], float], tuple[Step | None, float]] = {}

    def best(spent: tuple[FiniteMechanism, ...], loss: float) -> tuple[Step | None, float]:
        # This assumes that the gate's answer depends on how often each mechanism was bought, not on
        # when. Where that is wrong she finds less; `play` does not rely on it.
        state = tuple(spent.count(mechanism) for mechanism in menu), round(loss, 9)
        if state not in known:
            known[state] = grow(spent, loss)
        return known[state]

    def grow(spent: tuple[FiniteMechanism, ...], loss: float) -> tuple[Step | None, float]:
        found: tuple[Step | None, float] = (None, max(0.0, -math.expm1(epsilon - loss)))
        gate = gate_after(spent, new_gate)
        for above in off_menu:
            if loss < epsilon + above:
                tried = _last_step(loss, epsilon + above - loss, gate, epsilon)
                found = max(found, tried, key=lambda pair: pair[1])
        for mechanism in menu if len(spent) < depth else ():
            if not gate.admits(mechanism):
                continue
            value, branches = 0.0, []
            for p, q in mechanism.worlds():
                here, there = (q, p) if flipped else (p, q)
                branch, gained = best((*spent, mechanism), loss + math.log(here / there))
                branches.append(branch)
                value += float(here) * gained
            found = max(found, (Step(mechanism, tuple(branches)), value), key=lambda pair: pair[1])
        return found

    return best((), 0.0)


def _last_step(loss: float, more: float, gate: Gate, epsilon: float) -> tuple[Step | None, float]:
    """Return a last two-point mechanism of loss `more`, as likely as the gate admits."""
    low, high = math.log(1e-13), math.log(0.999)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = gate.admits(FiniteMechanism((more,), (math.exp(middle),)))
        low, high = (middle, high) if fits else (low, middle)
    mechanism = FiniteMechanism((more,), (math.exp(low),))
    if not gate.admits(mechanism):
        return None, max(0.0, -math.expm1(epsilon - loss))
    value = sum(
        float(p) * max(0.0, -math.expm1(epsilon - loss - math.log(p / q)))
        for p, q in mechanism.worlds()
    )
    return Step(mechanism), value
