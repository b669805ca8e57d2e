# SPDX-License-Identifier: Apache-2.0
"""What a recorded run costs at every epoch, and what it cost where it met a target.

A run is stopped by its accuracy on the test images, taken as public, for every arm alike. The
arms that adapt also pay for the noisy count of correct training images that they read.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Any

import dosimeter as dm
from dosimeter.accounting.classic import PAPER_ORDERS, LecuyerOdometer, PldComposition

RULES = ("ours", "paper", "pld")


def epoch_costs(
    run: dict[str, Any], config: dict[str, Any], records: int
) -> list[list[tuple[dm.Cost, int]]]:
    """What each epoch of a run asked for."""
    reading: list[tuple[dm.Cost, int]] = [(dm.Gaussian(config["signal_noise"]), 1)]
    rate = config["batch_size"] / records
    return [
        [(dm.SampledGaussian(rate, noise), steps), *(reading if run["reads"] else [])]
        for noise, steps in zip(run["noise"], run["steps"], strict=True)
    ]


def readings(run: dict[str, Any], config: dict[str, Any], records: int) -> dict[str, list[float]]:
    """Epsilon after every epoch under our odometer and the paper's, valid where one stops."""
    orders = [a for a in PAPER_ORDERS if a >= config["published"]["first_order"]]
    first = config["published"]["first_filter"]
    gates: dict[str, Any] = {
        "ours": dm.Odometer(config["delta"], cut=0),
        "paper": LecuyerOdometer(config["delta"], orders=orders, first_filter=first),
    }
    values: dict[str, list[float]] = {name: [] for name in gates}
    for costs in epoch_costs(run, config, records):
        for name, gate in gates.items():
            for cost, count in costs:
                gate.spend(cost, count)
            values[name].append(round(gate.epsilon, 4))
    return values


def fixed_beforehand(
    run: dict[str, Any], config: dict[str, Any], records: int, epochs: int
) -> float:
    """PLD of the first epochs, had their schedule been fixed beforehand: for scale only."""
    total: Counter[dm.Cost] = Counter()
    for costs in epoch_costs(run, config, records)[:epochs]:
        total.update(dict(costs))
    return _pld(frozenset(total.items()), config["delta"])


@functools.cache
def _pld(total: frozenset[tuple[dm.Cost, int]], delta: float) -> float:
    rule = PldComposition(delta=delta)
    for cost, count in total:
        rule.spend(cost, count)
    return round(rule.epsilon, 4)


def first_epoch(run: dict[str, Any], accuracy: float) -> int | None:
    """The first epoch, counted from 1, with at least this accuracy."""
    return next((i for i, value in enumerate(run["accuracy"], 1) if value >= accuracy), None)


def at(run: dict[str, Any], config: dict[str, Any], records: int, accuracy: float) -> Any:
    """When a run first had this accuracy and what it had cost by then; None if it never had."""
    epoch = first_epoch(run, accuracy)
    if epoch is None:
        return None
    spent = {rule: values[epoch - 1] for rule, values in run["epsilon"].items()}
    return {"epoch": epoch, **spent, "pld": fixed_beforehand(run, config, records, epoch)}


def summary(
    arms: dict[str, list[dict[str, Any]]], config: dict[str, Any], preset: str, records: int
) -> dict[str, Any]:
    """Mean, least and most over the seeds of each arm: at the end, and where it met each target."""
    facts: dict[str, Any] = {}
    for name, runs in arms.items():
        finals = [run["accuracy"][-1] for run in runs]
        share = [config["share_of_final"] * final for final in finals]
        met = {"share of final": list(zip(runs, share, strict=True))}
        for target in config[preset]["targets"]:
            met[f"{target:.2f}"] = [(run, target) for run in runs]
        facts[name] = {
            "final accuracy": spread(finals),
            "final epsilon": {
                rule: spread(run["epsilon"][rule][-1] for run in runs) for rule in ("ours", "paper")
            },
            "stopped at": {
                key: _over_seeds([at(run, config, records, goal) for run, goal in pairs])
                for key, pairs in met.items()
            },
        }
    return facts


def spread(values: Iterable[float]) -> list[float]:
    """Mean, least and most."""
    listed = list(values)
    return [round(statistics.mean(listed), 4), min(listed), max(listed)]


def best_constant(facts: dict[str, Any], arms: Iterable[str], target: str) -> str | None:
    """Of these arms the one whose every seed met the target, at the least mean epsilon (ours)."""
    stops = {name: facts[name]["stopped at"][target] for name in arms}
    whole = {name: s["ours"][0] for name, s in stops.items() if s["reached"] == s["runs"]}
    return min(whole, key=lambda name: whole[name]) if whole else None


def _over_seeds(stops: list[Any]) -> dict[str, Any]:
    reached = [stop for stop in stops if stop is not None]
    facts: dict[str, Any] = {"runs": len(stops), "reached": len(reached)}
    if reached:
        facts |= {key: spread(stop[key] for stop in reached) for key in ("epoch", *RULES)}
    return facts
