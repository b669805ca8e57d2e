# SPDX-License-Identifier: Apache-2.0
"""Adversaries as finite trees, and the exact distribution of what they see.

An adversary asks for a mechanism and, depending on its output, for another. Every path is
played against a fresh gate, so the rule under attack decides what is admitted, and the two
probabilities of every view are multiplied out in high precision: what comes out is a fact
about the rule, not an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mpmath import mp, mpf

from dosimeter.accounting import Gate
from dosimeter.compare.adversaries.mechanism import FiniteMechanism

DIGITS = 60


@dataclass(frozen=True)
class Step:
    """A mechanism to ask for, and what to do after each of its outputs (None: stop)."""

    mechanism: FiniteMechanism
    then: tuple[Step | None, ...] = ()

    def after(self, output: int) -> Step | None:
        """The next step after an output."""
        return self.then[output] if output < len(self.then) else None


@dataclass(frozen=True)
class Realised:
    """What an adversary achieves against a rule at the epsilon that the rule names.

    Attributes:
        hockey_stick: The least delta for which the views are (epsilon, delta)-DP: the
            larger of sum (p - e^epsilon q)+ and the same with p and q swapped.
        tail: Probability that the privacy loss is above epsilon, worse direction.
        two_sided_tail: Probability that the absolute loss is, worse direction.
    """

    hockey_stick: float
    tail: float
    two_sided_tail: float


def play(adversary: Step, new_gate: Callable[[], Gate], epsilon: float) -> Realised:
    """The exact outcome of an adversary against the rule that `new_gate` makes."""
    with mp.workdps(DIGITS):
        views = list(_views(adversary, new_gate, (), mpf(1), mpf(1)))
        limit = mp.exp(mpf(epsilon))
        sides = [views, [(q, p) for p, q in views]]
        return Realised(
            hockey_stick=float(
                max(mp.fsum(max(mpf(0), p - limit * q) for p, q in side) for side in sides)
            ),
            tail=float(max(mp.fsum(p for p, q in side if p > limit * q) for side in sides)),
            two_sided_tail=float(
                max(mp.fsum(p for p, q in side if p > limit * q or q > limit * p) for side in sides)
            ),
        )


def gate_after(spent: Iterable[FiniteMechanism], new_gate: Callable[[], Gate]) -> Gate:
    """A fresh gate on which the mechanisms of a path have been spent."""
    gate = new_gate()
    for mechanism in spent:
        gate.spend(mechanism)
    return gate


def _views(
    step: Step | None,
    new_gate: Callable[[], Gate],
    spent: tuple[FiniteMechanism, ...],
    p: mpf,
    q: mpf,
) -> Iterator[tuple[mpf, mpf]]:
    """Both probabilities of every view; a refusal ends the view, as does a stop."""
    if step is None or not gate_after(spent, new_gate).admits(step.mechanism):
        yield p, q
        return
    for output, (chance, other) in enumerate(step.mechanism.worlds()):
        yield from _views(
            step.after(output), new_gate, (*spent, step.mechanism), p * chance, q * other
        )
