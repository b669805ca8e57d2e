# SPDX-License-Identifier: Apache-2.0
"""The paper's epsilons from its parameters alone: python -m experiments.accounting.run"""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any

import dosimeter as dm
from dosimeter.accounting.classic import (
    PAPER_ORDERS,
    Conversion,
    LecuyerOdometer,
    PldComposition,
    RdpComposition,
)
from experiments.record import save

FOLDER = pathlib.Path(__file__).parent


def least_filter(step: dm.Cost, steps: int, delta: float) -> float:
    """The least epsilon, to 0.001, of a Filter without a plan that admits `steps`."""
    low, high = 0, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        fits = dm.Filter(middle / 1000, delta, cut=0).admits(step, steps)
        low, high = (low, middle) if fits else (middle, high)
    return high / 1000


def compute(config: dict[str, Any]) -> dict[str, list[float]]:
    """Epsilon at each number of epochs, under each rule."""
    step = dm.SampledGaussian(config["sample_rate"], config["noise_multiplier"])
    delta = config["delta"]
    published = [a for a in PAPER_ORDERS if a >= config["published"]["first_order"]]
    first = config["published"]["first_filter"]
    tail = Conversion.TAIL
    rules = {
        "fixed, paper": lambda: RdpComposition(delta=delta, orders=PAPER_ORDERS, conversion=tail),
        "odometer, text": lambda: LecuyerOdometer(delta),
        "odometer, published": lambda: LecuyerOdometer(delta, orders=published, first_filter=first),
        "our odometer": lambda: dm.Odometer(delta, cut=0),
        "fixed, tight": lambda: RdpComposition(delta=delta),
        "fixed, PLD": lambda: PldComposition(delta=delta),
    }
    results: dict[str, list[float]] = {name: [] for name in [*rules, "our filter"]}
    for epochs in config["epochs"]:
        steps = epochs * config["steps_per_epoch"]
        for name, new_rule in rules.items():
            rule = new_rule()
            rule.spend(step, steps)
            results[name].append(round(rule.epsilon, 4))
        results["our filter"].append(least_filter(step, steps, delta))
    return results


def main() -> None:
    """Computes and saves."""
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    save(FOLDER, config, compute(config))


if __name__ == "__main__":
    main()
