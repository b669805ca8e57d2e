# SPDX-License-Identifier: Apache-2.0
"""Replays the paper's own fine-tuning runs: python -m experiments.published_runs.run --data DIR

The runs are the JSON files published with the paper's code (exp_results of its repository).
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
import sys
import tomllib
from typing import Any

import dosimeter as dm
from dosimeter.accounting.classic import PAPER_ORDERS, LecuyerOdometer
from experiments.record import save

FOLDER = pathlib.Path(__file__).parent


def replay(run: dict[str, list[float]], config: dict[str, Any], *, signal: bool) -> dict[str, Any]:
    """Epsilon after every epoch of a run under both odometers, and when it met the target."""
    published = [a for a in PAPER_ORDERS if a >= config["first_order"]]
    delta, first = config["delta"], config["first_filter"]
    theirs = LecuyerOdometer(delta, orders=published, first_filter=first)
    ours = dm.Odometer(delta, cut=0)
    readings: dict[str, list[float]] = {"ours": [], "paper": []}
    for noise, batch in zip(run["sigma"], run["batch_size"], strict=True):
        step = dm.SampledGaussian(batch / config["records"], noise)
        for name, gate in (("ours", ours), ("paper", theirs)):
            gate.spend(step, math.ceil(config["records"] / batch))
            if signal:
                gate.spend(dm.Gaussian(config["signal_noise"]))
            readings[name].append(round(gate.epsilon, 4))
    met = [i for i, value in enumerate(run["test_acc"]) if value >= config["target_accuracy"]]
    return {
        "epochs_to_target": met[0] + 1 if met else None,
        "at_target": {name: values[met[0]] for name, values in readings.items()} if met else None,
        "epsilon": readings,
    }


def summary(runs: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Mean, least and most over the runs of one kind that met the target."""
    reached = [run for name, run in runs.items() if name.startswith(prefix) and run["at_target"]]
    count = sum(name.startswith(prefix) for name in runs)
    facts: dict[str, Any] = {"runs": count, "reached": len(reached)}
    if reached:
        columns = {"epochs": [run["epochs_to_target"] for run in reached]}
        columns |= {k: [run["at_target"][k] for run in reached] for k in ("ours", "paper")}
        for name, values in columns.items():
            facts[name] = [round(statistics.mean(values), 3), min(values), max(values)]
    return facts


def main() -> None:
    """Replays every run and saves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with the runs")
    folder = parser.parse_args().data
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    missing = [name for name in config["files"].values() if not (folder / name).exists()]
    if missing:
        sys.exit(f"skipped: --data must hold {', '.join(missing)}, which {folder} does not")
    results: dict[str, Any] = {}
    for kind, name in config["files"].items():
        runs = json.loads((folder / name).read_text())
        replayed = {
            key: replay(run, config, signal=kind == "adaptive") for key, run in runs.items()
        }
        results[kind] = {
            "summary": {
                part: summary(replayed, part) for part in ("fine_tune_all", "fine_tune_last")
            },
            "runs": replayed,
        }
    save(FOLDER, config, results)


if __name__ == "__main__":
    main()
