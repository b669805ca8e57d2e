# SPDX-License-Identifier: Apache-2.0
"""Fixed and adaptive training under one filter: python -m experiments.adaptive_filter.run

The preset `laptop` trains a linear model on scattering features, `paper` the ResNet9 of
Lécuyer (2021), Section 5.1, for which a GPU is wanted (`--preset paper --device cuda`).
Finished runs are kept, so an interrupted experiment goes on where it was.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import statistics
import tomllib
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.data import Labelled
from dosimeter.runs.networks import linear
from experiments import cifar, seeds
from experiments.adaptive_filter import features
from experiments.adaptive_filter.train import new_filter, step_cost, train
from experiments.record import PACKAGES, save
from experiments.resnet9 import Resnet9

FOLDER = pathlib.Path(__file__).parent
FILES = {"laptop": "results.json", "paper": "paper.json"}
EXTRA = {"laptop": ("torch", "kymatio"), "paper": ("torch",)}


def arms(config: dict[str, Any], preset: str) -> dict[str, dict[str, Any]]:
    """The settings of every arm, complete: all that a run depends on, save data and seed."""
    chosen = config[preset]
    made = {}
    for name, own in chosen["arms"].items():
        arm = {"delta": config["delta"], **chosen["common"], **own}
        epochs = arm.pop("planned_epochs", arm["epochs"])
        steps = epochs * -(-arm["records"] // arm["batch_size"])
        start = {key: arm[key] for key in ("noise_multiplier", "batch_size")}
        made[name] = {**arm, "plan": {**start, "steps": steps}}
    for arm in made.values():
        budget = chosen["budgets"][arm.pop("budget")]
        arm["limit"] = budget.get("epsilon") or least_limit(made[budget["of"]], budget["signals"])
        arm.pop("section")
    return made


def least_limit(arm: dict[str, Any], signals: int) -> float:
    """The least epsilon, to 0.001, of a filter that admits a planned run and some readings."""
    reading, low, high = dm.Gaussian(arm["signal_noise"]), 0, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        gate = new_filter({**arm, "limit": middle / 1000})
        fits = gate.admits(step_cost(arm), arm["plan"]["steps"])
        if fits:
            gate.spend(step_cost(arm), arm["plan"]["steps"])
            fits = gate.admits(reading, signals)
        low, high = (low, middle) if fits else (middle, high)
    return high / 1000


def run_arm(
    path: pathlib.Path, device: str, arm: dict[str, Any], seed: int, tell: seeds.Tell
) -> dict[str, Any]:
    """One run of one arm, on this data."""
    torch.manual_seed(seed)
    data, test = _datasets(path, device, arm)
    if len(data) != arm["records"]:
        raise ValueError(f"--data must hold {arm['records']} records, got {len(data)}")
    classes = len(cifar.read(path).classes)
    inputs = data.tensors[0].shape[1]
    networks = {"linear": linear, "resnet9": Resnet9}
    model: nn.Module = networks[arm["network"]](inputs, classes).to(device)
    return train(arm, model, data, test, seed=seed, tell=tell)


def _datasets(
    path: pathlib.Path, device: str, arm: dict[str, Any]
) -> tuple[TensorDataset, TensorDataset]:
    if "features" in arm:
        return features.datasets(path, arm["features"])
    split = cifar.read(path)
    assert split.test is not None
    return _pixels(split.train, device), _pixels(split.test, device)


def _pixels(labelled: Labelled, device: str) -> TensorDataset:
    x = torch.tensor(labelled.x).permute(0, 3, 1, 2).to(device)
    # Fixed numbers, not the mean and deviation of the images, which would have to be paid for.
    return TensorDataset(x.float().div(127.5).sub(1.0), torch.tensor(labelled.y).to(device))


def summary(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Mean, least and most of what came out of the runs of one arm."""
    columns = {key: [run[key] for run in runs] for key in ("last", "average", "epsilon", "epochs")}
    return {
        key: [round(statistics.mean(values), 6), min(values), max(values)]
        for key, values in columns.items()
    }


def collect(
    config: dict[str, Any], preset: str, path: pathlib.Path, *, device: str, jobs: int
) -> dict[str, Any]:
    """Every arm with every seed; what was not run before is run now."""
    settings = arms(config, preset)
    keyed = {name: {**arm, "data": cifar.identity(path)} for name, arm in settings.items()}
    if "features" in config[preset]["common"]:
        features.datasets(path, config[preset]["common"]["features"])
    one = functools.partial(run_arm, path, device)
    kept = seeds.run_all(f"adaptive_filter-{preset}", keyed, config["seeds"], one, jobs=jobs)
    results = {}
    for name, files in kept.items():
        runs = [
            {"seed": file["seed"], "commit": file["commit"], **file["result"]} for file in files
        ]
        section = config[preset]["arms"][name]["section"]
        results[name] = {
            "section": section,
            "settings": settings[name],
            "summary": summary(runs),
            "runs": runs,
        }
    return results


def main() -> None:
    """Runs what is left of a preset and saves all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    cifar.add_argument(parser)
    parser.add_argument("--preset", choices=list(FILES), default="laptop")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each")
    chosen = parser.parse_args()
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    path = cifar.require(chosen.data)
    results = collect(config, chosen.preset, path, device=chosen.device, jobs=chosen.jobs)
    packages = (*PACKAGES, *EXTRA[chosen.preset])
    save(FOLDER, config, results, packages=packages, name=FILES[chosen.preset])


if __name__ == "__main__":
    main()
