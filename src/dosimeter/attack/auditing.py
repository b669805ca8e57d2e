# SPDX-License-Identifier: Apache-2.0
"""audit: does an engine do what it charges for? One run, thousands of canaries.

What is measured is what an attacker would see who knows every released gradient and everything
that was charged. An audit can find a violation, and cannot prove that there is none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.attack import bounds
from dosimeter.attack.watch import Finding, Watch
from dosimeter.rounding import at_least, at_most

if TYPE_CHECKING:
    from dosimeter.attack.canaries import Policy
    from dosimeter.training import PrivateEngine

FEWEST = 500
"""Canaries below which the normal approximations of the tests have not been tried."""

_KINDS = 7
"""Five kinds of tests and two bounds share the false alarms."""

_USUAL = 0.05
"""Bounds are shown at the confidence that papers show, and accuse only at that of the audit."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon from the scores of the canaries.

    Attributes:
        name: Whose it is.
        assumes: What it takes for granted.
        epsilon: The bound that holds with 95 % confidence.
        certain: The bound that is wrong no more often than the audit may accuse.
    """

    name: str
    assumes: str
    epsilon: float
    certain: float


@dataclass(frozen=True)
class Audit:
    """What one run showed.

    Attributes:
        canaries: How many canaries there were; about half of them were in the data.
        steps: How many steps were taken.
        delta: The delta of all epsilons here.
        claimed: The epsilon that the gate guarantees.
        exact: Epsilon of what was charged, from its privacy loss distribution, as if it had
            been fixed beforehand.
        one_run: The bound of Steinke, Nasr and Jagielski (2023), Theorem 5.2.
        gaussian: That of Nasr et al. (2023), which reads the run as one Gaussian mechanism.
        deviations: How far means and variances of the scores are from what was charged.
        findings: The tests, each with its probability under what was charged.
        false_alarm: The probability that an engine that does what it charges for is accused.
    """

    canaries: int
    steps: int
    delta: float
    claimed: float
    exact: float
    one_run: Bound
    gaussian: Bound
    deviations: dict[str, float]
    findings: tuple[Finding, ...]
    false_alarm: float

    @property
    def violations(self) -> tuple[str, ...]:
        """What contradicts the claim, in words; empty if nothing does."""
        found = [
            f"{one.name}: {one.measured} (p {one.p:.1e})"
            for one in self.findings
            if self.alarm(one)
        ]
        for bound in (self.one_run, self.gaussian):
            if not bound.certain <= self.claimed:
                found.append(
                    f"epsilon is at least {at_least(bound.certain)} by {bound.name}, claimed was "
                    f"{at_most(self.claimed)}"
                )
        return tuple(found)

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.violations

    def alarm(self, finding: Finding) -> bool:
        """Whether a finding alone accuses the engine."""
        return not finding.p >= self.false_alarm / _KINDS

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.passed:
            return (
                f"nothing found: in {self.steps} steps the noise, the sampling and the clipping "
                f"were those that were charged, as far as {self.canaries} canaries can tell"
            )
        return "VIOLATION: the engine does not do what it charges for: " + "; ".join(
            self.violations
        )


def audit(
    engine_factory: Callable[[Gate], PrivateEngine],
    gate: Gate,
    *,
    canaries: int = 5000,
    noise_multiplier: float = 2.0,
    sample_rate: float = 0.1,
    steps: int | None = None,
    policy: Policy | None = None,
    delta: float | None = None,
    false_alarm: float = 1e-3,
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Audit:
    """Trains on canaries with an engine, and tests all it released against what it charged.

    Args:
        engine_factory: Makes the engine under audit around the gate it is given; `PrivateEngine`
            itself is one.
        gate: What the engine is to charge; used up by the audit.
        canaries: How many; about half of them are put in, each by a fair coin.
        noise_multiplier: The noise of the first step.
        sample_rate: The sample rate of the first step.
        steps: How many steps at most; needed where the gate has no limit.
        policy: Called in the middle of every step with the engine and what the step before
            released; changes what holds from the next step on. By default noise and batch size
            wander with what was released.
        delta: The delta of the epsilons that are compared, by default that of the gate.
        false_alarm: The probability that a correct engine is accused.
        seed: Repeats the coins of the canaries; the engine's randomness is its own.
        progress: Told how much of the run is done, from 0 to 1.
        **options: Anything else that `PrivateEngine.make_private` takes.

    Raises:
        ValueError: There are too few canaries, or the gate has no limit and no steps are given.
        BudgetExceeded: The gate does not admit one step.
    """
    limit = getattr(gate, "limit", math.inf)
    batch_size = _checked(canaries, sample_rate, steps, limit, false_alarm, seed)
    delta = _delta(gate, delta)
    rng = np.random.default_rng(seed)
    present = rng.random(canaries) < 0.5

    def tell(taken: int) -> None:
        if progress is not None:
            progress(min(1.0, max(gate.epsilon / limit, taken / steps if steps else 0.0)))

    from dosimeter.attack import canaries as training

    watch = training.run(
        engine_factory,
        gate,
        present,
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
        steps=steps,
        policy=policy,
        tell=tell,
        options=options,
    )
    return _judged(watch, present, gate, delta, false_alarm, rng)


def fixed(engine: PrivateEngine, released: object) -> None:
    """A policy that changes nothing: every step as the first one."""


def _checked(
    canaries: int,
    sample_rate: float,
    steps: int | None,
    limit: float,
    false_alarm: float,
    seed: int | None,
) -> int:
    """The batch size of the first step, after a look at everything that was given."""
    if not arguments.count("canaries", canaries) >= FEWEST:
        raise ValueError(f"canaries must be at least {FEWEST}, got {canaries}. Take more.")
    if not 1 <= arguments.positive("sample_rate", sample_rate) * canaries <= canaries:
        raise ValueError(
            f"sample_rate must lie between 1 / canaries and 1, got {sample_rate!r}. "
            "Take more canaries, or another rate."
        )
    arguments.open_unit("false_alarm", false_alarm)
    if seed is not None and not (type(seed) is int and seed >= 0):
        raise ValueError(f"seed must be a whole number >= 0 or None, got {seed!r}")
    if steps is not None:
        arguments.count("steps", steps)
    elif limit == math.inf:
        raise ValueError(
            "steps must be given for a gate without a limit, which would never end the run, got "
            "None. Say how many steps to audit."
        )
    return round(sample_rate * canaries)


def _judged(
    watch: Watch,
    present: bounds.Flags,
    gate: Gate,
    delta: float,
    false_alarm: float,
    rng: np.random.Generator,
) -> Audit:
    if not watch.costs:
        raise ValueError(
            "gate must admit at least one step, got none. Give it a larger epsilon, or the "
            "audit more noise or a smaller sample rate."
        )
    levels = _USUAL, false_alarm / _KINDS
    scores = watch.scores
    one = [bounds.one_run(scores, present, delta, level) for level in levels]
    order = rng.permutation(len(present))
    gaussian = [bounds.gaussian(scores, present, delta, level, order) for level in levels]
    words = getattr(gate, "guarantee", None)
    claimed = words().epsilon if callable(words) else gate.epsilon
    return Audit(
        canaries=len(present),
        steps=len(watch.costs),
        delta=delta,
        claimed=float(claimed),
        exact=_exact(watch, delta),
        one_run=Bound("Steinke et al. 2023", "nothing about the engine", *one),
        gaussian=Bound("Nasr et al. 2023", "a Gaussian trade-off, independent canaries", *gaussian),
        deviations=watch.score_deviations(),
        findings=tuple(watch.findings()),
        false_alarm=false_alarm,
    )


def _exact(watch: Watch, delta: float) -> float:
    from dosimeter.compare.exact import ExactTotal

    schedule = list(Counter(watch.costs).items())
    total = ExactTotal(schedule, delta)
    for cost, count in schedule:
        total.add(cost, count)
    return total.epsilon


def _delta(gate: Gate, delta: float | None) -> float:
    """The delta that epsilons are compared at."""
    if delta is None:
        words = getattr(gate, "guarantee", None)
        delta = getattr(words(), "delta", None) if callable(words) else None
    if delta is None:
        raise ValueError(
            "delta must be given for a gate that does not say its own, got None. Give the one "
            "that its epsilon is for."
        )
    return arguments.open_unit("delta", delta)
