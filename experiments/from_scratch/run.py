# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 at epsilon 3 without pretraining: python -m experiments.from_scratch.run

A linear layer on scattering features, trained by `fit`. The covariance that maps are whitened
with is released privately, and charged to the same filter as the steps.
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
from dosimeter.runs.networks import linear
from dosimeter.training import fit
from experiments import cifar, seeds
from experiments.from_scratch import features
from experiments.record import PACKAGES, save

FOLDER = pathlib.Path(__file__).parent
_CHUNK = 500

Whitening = tuple[Tensor, Tensor]
"""The mean of each map, and a matrix to mix maps with."""


class Widened(nn.Module):
    """Half precision made single, record by record."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float()


def planned(settings: dict[str, Any], records: int, noise: float) -> list[tuple[dm.Cost, int]]:
    """All that a run asks for: one release about the maps, and the steps."""
    chosen = settings["training"]
    steps = chosen["epochs"] * -(-records // chosen["batch_size"])
    step = dm.SampledGaussian(chosen["batch_size"] / records, noise)
    return [(dm.Gaussian(settings["whitening"]["noise_multiplier"]), 1), (step, steps)]


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


def sums(x: np.ndarray, norm: float) -> Tensor:
    """What records add up to: products of each two maps, and of maps and one, over all places.

    The matrix of a record, a mean over the places of its image, is cut to a Frobenius norm and
    divided by it, so that a record adds no more than one.
    """
    total = torch.zeros(x.shape[1] + 1, x.shape[1] + 1)
    for start in range(0, len(x), _CHUNK):
        values = torch.from_numpy(np.array(x[start : start + _CHUNK])).float().flatten(2)
        values = torch.cat([torch.ones_like(values[:, :1]), values], dim=1)
        parts = values @ values.transpose(1, 2) / (values.shape[2] * norm)
        total += (parts / parts.flatten(1).norm(dim=1).clamp(min=1)[:, None, None]).sum(0)
    return total


def whitening(x: np.ndarray, gate: dm.Filter, how: dict[str, float], seed: int) -> Whitening:
    """What makes maps alike: from their covariance over all records, with noise, and charged."""
    gate.spend(dm.Gaussian(how["noise_multiplier"]))
    total, generator = sums(x, how["norm"]), torch.Generator().manual_seed(seed)
    total += how["noise_multiplier"] * torch.randn(total.shape, generator=generator)
    means = (total + total.T) / 2 * how["norm"] / len(x)
    mean = means[0, 1:]
    sizes, axes = torch.linalg.eigh(means[1:, 1:] - torch.outer(mean, mean))
    sizes = sizes.clamp(min=0)
    spread = (sizes / (sizes + how["least"])).mean().sqrt()
    return mean, axes @ torch.diag((sizes + how["least"]).rsqrt() / spread) @ axes.T


def whitened(x: np.ndarray, found: Whitening) -> Tensor:
    """Maps less their means, mixed so that they vary alike; in half precision."""
    mean, mix = found
    out = torch.empty(x.shape, dtype=torch.float16)
    for start in range(0, len(x), _CHUNK):
        values = torch.from_numpy(np.array(x[start : start + _CHUNK])).float()
        mixed = mix @ (values.flatten(2) - mean.unsqueeze(1))
        out[start : start + _CHUNK] = mixed.view(values.shape)
    return out


def one(path: pathlib.Path, settings: dict[str, Any], seed: int, tell: seeds.Tell) -> Any:
    """One run: everything that reads a training record is charged to its filter."""
    train, test = features.datasets(path)
    began, records = time.process_time(), len(train["y"])
    noise, gate = priced(settings, records)
    found = whitening(train["x"], gate, settings["whitening"], seed)
    model = nn.Sequential(Widened(), linear(train["x"][0].size, 10))
    training = dict(settings["training"])
    optimizer = functools.partial(torch.optim.SGD, **training.pop("optimizer"))
    data = TensorDataset(whitened(train["x"], found), torch.from_numpy(train["y"]))
    history = fit(
        model, data, gate, noise_multiplier=noise, seed=seed, progress=False,
        optimizer=optimizer, physical_batch_size=512,
        callbacks=[lambda _, epoch: tell(epoch.epoch, training["epochs"], "")],
        **training,
    )  # fmt: skip
    return {
        "accuracy": accuracy(model, whitened(test["x"], found), torch.from_numpy(test["y"])),
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
