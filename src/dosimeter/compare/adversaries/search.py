# SPDX-License-Identifier: Apache-2.0
"""A local search for the adversary that gets most out of a rule.

The tree has a fixed number of stages and outcomes. Its parameters are the losses and
log-probabilities of every stage but the last, and the losses of the last; the last stage
after each path is a two-point mechanism that is as likely as the rule admits. One (1+1)
evolution strategy per restart climbs on the hockey-stick divergence. What it finds is a
lower bound on the worst case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.compare.adversaries.mechanism import FiniteMechanism
from dosimeter.compare.adversaries.play import Step, gate_after
from dosimeter.rdp.orders import FloatArray

_BISECTIONS = 40


@dataclass(frozen=True)
class Shape:
    """How many stages an adversary has, and how many outputs each but the last."""

    stages: int
    outcomes: int

    @property
    def inner(self) -> int:
        """Number of mechanisms before the last stage."""
        return sum(self.outcomes**stage for stage in range(self.stages - 1))

    @property
    def size(self) -> int:
        """Number of parameters."""
        last = int(self.outcomes ** (self.stages - 1))
        return self.inner * 2 * (self.outcomes - 1) + last


def strongest(
    new_gate: Callable[[], Gate],
    epsilon: float,
    shape: Shape,
    *,
    tries: int,
    restarts: int = 2,
    seed: int = 0,
) -> tuple[Step | None, float]:
    """The best adversary found, and its hockey-stick divergence in double precision."""
    arguments.count("tries", tries)
    rng = np.random.default_rng(seed)
    best: tuple[Step | None, float] = (None, 0.0)
    for _ in range(restarts):
        point = _start(shape, epsilon, rng)
        found = _build(point, new_gate, epsilon, shape)
        width = 0.3
        for _ in range(tries // restarts):
            trial = point + width * rng.standard_normal(shape.size) * (
                rng.random(shape.size) < max(0.3, 2 / shape.size)
            )
            candidate = _build(trial, new_gate, epsilon, shape)
            better = candidate[1] > found[1]
            # The one-fifth success rule keeps the step near the scale of the landscape.
            width = min(1.0, width * 1.5) if better else max(1e-4, width * 0.92)
            if better:
                point, found = trial, candidate
        best = max(best, found, key=lambda pair: pair[1])
    return best


def _start(shape: Shape, epsilon: float, rng: np.random.Generator) -> FloatArray:
    inner = shape.inner * (shape.outcomes - 1)
    losses = rng.uniform(0.05, 0.5, inner) * epsilon
    chances = rng.uniform(-14.0, -3.0, inner)
    last = epsilon * rng.uniform(1.0, 1.2, shape.size - 2 * inner)
    return np.concatenate([losses, chances, last])


def _build(
    point: FloatArray, new_gate: Callable[[], Gate], epsilon: float, shape: Shape
) -> tuple[Step | None, float]:
    """The adversary at a point, and its hockey-stick divergence."""
    inner = shape.inner * (shape.outcomes - 1)
    each = shape.outcomes - 1
    losses = point[:inner].reshape(-1, each)
    chances = np.exp(np.minimum(point[inner : 2 * inner], -0.7)).reshape(-1, each) / each
    last = iter(point[2 * inner :])
    nodes = itertools.count()

    def grow(spent: tuple[FiniteMechanism, ...], loss: float) -> tuple[Step | None, float]:
        """The subtree after a path with this loss, and its conditional divergence."""
        gate = gate_after(spent, new_gate)
        if len(spent) == shape.stages - 1:
            return last_stranger(loss, max(0.01, next(last) - loss), gate, epsilon)
        node = next(nodes)
        mechanism = FiniteMechanism(tuple(np.abs(losses[node])), tuple(chances[node]))
        if not gate.admits(mechanism):
            return None, max(0.0, -math.expm1(epsilon - loss))
        value, branches = 0.0, []
        for p, q in mechanism.worlds():
            branch, gained = grow((*spent, mechanism), loss + math.log(p / q))
            branches.append(branch)
            value += float(p) * gained
        return Step(mechanism, tuple(branches)), value

    return grow((), 0.0)


def last_stranger(
    loss: float, more: float, gate: Gate, epsilon: float
) -> tuple[Step | None, float]:
    """A last two-point mechanism of loss `more`, as likely as the gate admits."""
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
