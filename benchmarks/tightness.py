# SPDX-License-Identifier: Apache-2.0
"""Tightness: epsilon of every rule over the exact one, and how many steps a budget admits.

Not part of `make bench` yet. At sample rates near 1e-4 the exact line of `compare` is itself loose.
"""

from __future__ import annotations

import math
from collections import defaultdict

import dosimeter as dm
from benchmarks.measure import Result
from dosimeter.compare import compare, plan

DELTA = 1e-6


def _step(rate: float, noise: float) -> dm.Cost:
    return dm.SampledGaussian(rate, noise)


WORKLOADS: dict[str, list[tuple[dm.Cost, int]]] = {
    **{
        f"rate {rate:g}, noise {noise:g}, {steps} steps": [(_step(rate, noise), steps)]
        for rate, noise, steps in [
            (1e-4, 0.7, 100_000),
            (1e-4, 1.0, 100_000),
            (1e-3, 0.6, 10_000),
            (1e-3, 1.0, 10_000),
            (1e-3, 1.0, 100_000),
            (0.01, 0.5, 100),
            (0.01, 0.7, 1_000),
            (0.01, 1.0, 1_000),
            (0.01, 1.0, 10_000),
            (0.01, 2.0, 30_000),
            (0.01, 4.0, 100_000),
            (0.02, 1.5, 2_000),
            (0.05, 1.0, 500),
            (0.05, 2.0, 2_000),
            (0.05, 4.0, 10_000),
            (0.1, 3.0, 1_000),
            (0.2, 5.0, 1_000),
            (0.2, 8.0, 3_000),
        ]
    },
    "Gaussian, noise 100, 10000 runs": [(dm.Gaussian(100.0), 10_000)],
    "Gaussian, noise 20, 100 runs": [(dm.Gaussian(20.0), 100)],
    "Laplace, scale 10, 100 runs": [(dm.Laplace(10.0), 100)],
    "Laplace, scale 50, 1000 runs": [(dm.Laplace(50.0), 1_000)],
    "noise 1 to 1.4 and back": [
        (_step(0.01024, noise), 980) for noise in (1.0, 1.2, 1.4, 1.2, 1.0)
    ],
    "batches in turn": [
        (_step(rate, 1.0), steps) for rate, steps in [(0.01024, 1960), (0.00512, 3920)] * 2
    ],
    "steps and queries": [(_step(0.01024, 1.0), 5880), (dm.Laplace(10.0), 50)],
    "plain Gaussians mixed": [(dm.Gaussian(100.0), 4_000), (dm.Gaussian(30.0), 270)],
}


def run() -> list[Result]:
    """Geometric mean and worst ratio of each rule, and the share of steps that filters admit."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for schedule in WORKLOADS.values():
        result = compare(schedule, DELTA, points=1)
        for line in result.lines[1:]:
            name = "filter at the best order" if "at order" in line.name else line.name
            ratios[name].append(line.last / result.limit.last)
    rows = []
    for name, values in sorted(ratios.items(), key=lambda pair: _mean(pair[1])):
        finite = [value for value in values if math.isfinite(value)]
        about = f"{name}, {len(finite)} of {len(values)} workloads"
        if finite:
            rows.append(Result(f"{about}: geometric mean", _mean(finite), "times PLD", "", True))
            rows.append(Result(f"{about}: worst", max(finite), "times PLD", "", True))
    return rows + _capacity()


def _capacity() -> list[Result]:
    rows = []
    for epsilon in (0.5, 1.0, 3.0, 8.0):
        made = plan(epsilon, DELTA, cost=_step(0.01, 2.0))
        exact = made.rows[-1].steps
        rows += [
            Result(
                f"steps at epsilon {epsilon:g}, {row.rule}",
                100 * row.steps / exact,
                "% of PLD",
                "",
                True,
            )
            for row in made.rows[:-1]
        ]
    return rows


def _mean(values: list[float]) -> float:
    finite = [math.log(value) for value in values if math.isfinite(value)]
    return math.exp(sum(finite) / len(finite)) if finite else math.inf
