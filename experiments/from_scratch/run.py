# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 at epsilon 3 without pretraining: python -m experiments.from_scratch.run

A linear layer on scattering features, trained by `fit`. What each map is normalised by is
released privately, and charged to the same filter as the steps.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import time
import tomllib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.accounting.calibrate import calibrated
from dosimeter.training import fit
from dosimeter.training.networks import linear
from experiments import cifar, seeds
from experiments.from_scratch import features
from experiments.record import PACKAGES, save

FOLDER = pathlib.Path(__file__).parent
_CHUNK = 500
_LEAST = 0.05
"""The least variance of a map that its noisy release is believed."""


class Widened(nn.Module):
    """Half precision made single, record by record."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float()


def planned(settings: dict[str, Any], records: int, noise: float) -> list[tuple[dm.Cost, int]]:
    """All that a run asks for: one release about the maps, and the steps."""
    chosen = settings["training"]
    steps = chosen["epochs"] * -(-records // chosen["batch_size"])
    step = dm.SampledGaussian(chosen["batch_size"] / records, noise)
    return [(dm.Gaussian(settings["normalisation"]["noise_multiplier"]), 1), (step, steps)]


def priced(settings: dict[str, Any], records: int) -> tuple[float, dm.Filter]:
    """The least noise for the steps, and the filter that pays for everything."""

    def refuse(error: Exception) -> None:
        raise error

    ask = functools.partial(planned, settings, records)
    return calibrated(
        settings["epsilon"],
        settings["delta"],
        menu=lambda noise: [cost for cost, _ in reversed(ask(noise))],
        planned=ask,
        note=refuse,
    )


def sums(x: np.ndarray) -> Tensor:
    """What records add up to: for each map its mean over the image, and the mean of its squares.

    Both are cut to a norm that is known without data, √maps and 2√maps, and divided by it: a
    record adds no more than √2.
    """
    total = torch.zeros(2, x.shape[1])
    for start in range(0, len(x), _CHUNK):
        values = torch.from_numpy(np.array(x[start : start + _CHUNK])).float().flatten(2)
        parts = torch.stack([values.mean(2), values.square().mean(2)], dim=1) / _bounds(x)
        total += (parts / parts.norm(dim=2, keepdim=True).clamp(min=1)).sum(0)
    return total


def _bounds(x: np.ndarray) -> Tensor:
    return torch.tensor([[1.0], [2.0]]) * x.shape[1] ** 0.5


def moments(x: np.ndarray, gate: dm.Filter, noise_multiplier: float, seed: int) -> Tensor:
    """Mean and spread of each map over all records, with noise, and charged."""
    gate.spend(dm.Gaussian(noise_multiplier))
    total, generator = sums(x), torch.Generator().manual_seed(seed)
    total += noise_multiplier * 2**0.5 * torch.randn(total.shape, generator=generator)
    mean, square = total * _bounds(x) / len(x)
    return torch.stack([mean, (square - mean**2).clamp(min=_LEAST).sqrt()])


def standardised(x: np.ndarray, found: Tensor) -> Tensor:
    """Each map less its mean, over its spread; in half precision."""
    mean, spread = found.unsqueeze(2).unsqueeze(3)
    out = torch.empty(x.shape, dtype=torch.float16)
    for start in range(0, len(x), _CHUNK):
        values = torch.from_numpy(np.array(x[start : start + _CHUNK])).float()
        out[start : start + _CHUNK] = (values - mean) / spread
    return out


def one(path: pathlib.Path, settings: dict[str, Any], seed: int, tell: seeds.Tell) -> Any:
    """One run: everything that reads a training record is charged to its filter."""
    train, test = features.datasets(path)
    began, records = time.process_time(), len(train["y"])
    noise, gate = priced(settings, records)
    found = moments(train["x"], gate, settings["normalisation"]["noise_multiplier"], seed)
    model = nn.Sequential(Widened(), linear(train["x"][0].size, 10))
    training = dict(settings["training"])
    optimizer = functools.partial(torch.optim.SGD, **training.pop("optimizer"))
    data = TensorDataset(standardised(train["x"], found), torch.from_numpy(train["y"]))
    history = fit(
        model, data, gate, noise_multiplier=noise, seed=seed, progress=False,
        optimizer=optimizer, physical_batch_size=512,
        callbacks=[lambda _, epoch: tell(epoch.epoch, training["epochs"], "")],
        **training,
    )  # fmt: skip
    return {
        "accuracy": accuracy(model, standardised(test["x"], found), torch.from_numpy(test["y"])),
        "epsilon": gate.epsilon,
        "steps": history.steps,
        "noise_multiplier": noise,
        "ended": history.ended,
        "feature_seconds": round(float(train["seconds"]) + float(test["seconds"]), 1),
        "training_seconds": round(time.process_time() - began, 1),
    }


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of records that come out right."""
    right = [model(x[at : at + _CHUNK]).argmax(1) == y[at : at + _CHUNK]
             for at in range(0, len(y), _CHUNK)]  # fmt: skip
    return float(torch.cat(right).double().mean())


def main() -> None:
    """Runs what is left and saves all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    cifar.add_argument(parser)
    path = cifar.require(parser.parse_args().data)
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    settings = {name: value for name, value in config.items() if name != "seeds"}
    keyed = {"linear": {**settings, "model": "linear", "data": cifar.identity(path)}}
    run = functools.partial(one, path)
    kept = seeds.run_all("from_scratch", keyed, config["seeds"], run, jobs=1)
    runs = [{"seed": each["seed"], "commit": each["commit"], **each["result"]}
            for each in kept["linear"]]  # fmt: skip
    save(FOLDER, config, {"runs": runs}, packages=(*PACKAGES, "torch", "kymatio"))


if __name__ == "__main__":
    main()
