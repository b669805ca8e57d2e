# SPDX-License-Identifier: Apache-2.0
"""Attacks a step with torch's noise, and one of the engine: python -m experiments.noise_recovery"""

from __future__ import annotations

import time

from dosimeter.rounding import at_most, exact
from experiments.noise_recovery import steps
from experiments.noise_recovery.noise import Attempt, attack
from experiments.noise_recovery.steps import Step

DELTA = 1e-5


def report(name: str, step: Step, attempt: Attempt, seconds: float) -> list[str]:
    """Return what the attack saw, what it recovered and what it predicts."""
    found, broken = attempt.recovered, attempt.succeeded
    lines = [
        f"A private step with the noise of {name}",
        f"seen: {len(step.view.after):,} parameters before and after one step, of which "
        f"{int(step.view.silent.sum()):,} show noise alone",
        f"read as a twister they give {attempt.bits:,} bits; {found.unknowns:,} bits of its "
        f"state stay unknown, and the equations fix {found.rank:,} of them",
        f"{found.contradictions:,} of {found.checks:,} further equations contradict that"
        + ("" if broken else ", as half of them do by chance: this is no twister"),
        f"noise that was held out is predicted with correlation {attempt.correlation:.6f}",
        f"error of the secret sum: {step.error(0 * attempt.noise):.3g} times its size as "
        f"released, {step.error(attempt.noise):.3g} with the predicted noise taken off",
    ]
    if broken:
        lines.append(
            f"BROKEN in {seconds:.1f} s: whoever has both models sees for "
            f"{step.words_told(attempt.noise):.1%} of the words whether a record of the batch has "
            f"them; the step was charged epsilon {at_most(steps.epsilon(DELTA))} at delta "
            f"{exact(DELTA)}"
        )
    else:
        lines.append(
            "stands: its noise comes from AES under a key of the operating system, new at each step"
        )
    return lines


def main() -> None:
    """Attack both steps and print a report on each."""
    for name, take in (("torch.normal", steps.plain_step), ("Dosimeter", steps.engine_step)):
        step, began = take(), time.perf_counter()
        attempt = attack(step.view)
        print("\n  ".join(report(name, step, attempt, time.perf_counter() - began)), end="\n\n")


if __name__ == "__main__":
    main()
