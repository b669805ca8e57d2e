# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ImageNet models on CIFAR-10 under an odometer: python -m experiments.fine_tuning.run

The preset `laptop` trains the last layer on frozen features of EfficientNet-Lite0. `paper` is
the ResNet18 of Lécuyer (2021), Section 5.2, for which a GPU and a file of its weights are
wanted (`--preset paper --weights FILE --device cuda`). Finished runs are kept, so an
interrupted experiment goes on where it was.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import pathlib
import sys
import tomllib
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.data import Labelled
from dosimeter.runs.networks import linear
from dosimeter.training import CorrectCount, LowerNoise, fit
from experiments import cifar, seeds
from experiments.fine_tuning import costs, features, resnet18
from experiments.record import PACKAGES, save

FOLDER = pathlib.Path(__file__).parent
FILES = {"laptop": "results.json", "paper": "paper.json"}
EXTRA = {
    "laptop": ("torch", *features.PACKAGES),
    "paper": ("torch",),
}


def arms(config: dict[str, Any], preset: str) -> dict[str, dict[str, Any]]:
    """The settings of every arm: all that a run depends on, save data, weights and seed."""
    chosen = config[preset]
    common = {key: config[key] for key in ("delta", "batch_size", "signal_noise")}
    same = ("epochs", "pixels", "learning_rate", "max_grad_norm", "physical_batch_size")
    common |= {"preset": preset} | {key: chosen[key] for key in same}
    made = {}
    for layers in chosen["layers"]:
        policy = config["policy"]
        own = {"noise_multiplier": policy["start"], "policy": policy}
        made[f"{layers} adaptive"] = {**common, "layers": layers, **own}
        for noise in chosen["noises"]:
            own = {"noise_multiplier": noise, "policy": None}
            made[f"{layers} {noise:g}"] = {**common, "layers": layers, **own}
    return made


def material(
    arm: dict[str, Any], data: pathlib.Path, weights: pathlib.Path | None, device: str
) -> tuple[nn.Module, TensorDataset, TensorDataset]:
    """A model to fine-tune, the private records and the test records."""
    if arm["preset"] == "laptop":
        train, test = features.load(data, arm["pixels"])
        inputs, classes = train.tensors[0].shape[1], int(train.tensors[1].max()) + 1
        return linear(inputs, classes), train, test
    assert weights is not None
    split = cifar.read(data)
    assert split.test is not None
    chosen = {"classes": len(split.classes), "pixels": arm["pixels"], "layers": arm["layers"]}
    model = resnet18.pretrained(weights, **chosen).to(device)
    return model, _tensors(split.train, device), _tensors(split.test, device)


def run_arm(
    data: pathlib.Path,
    weights: pathlib.Path | None,
    device: str,
    arm: dict[str, Any],
    seed: int,
    tell: seeds.Tell,
) -> dict[str, Any]:
    """One run of one arm: its schedule, and its accuracy after every epoch."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model, train, test = material(arm, data, weights, device)
    policy = arm["policy"]
    history = fit(
        model,
        train,
        dm.Odometer(arm["delta"], cut=0),
        epochs=arm["epochs"],
        noise_multiplier=arm["noise_multiplier"],
        batch_size=arm["batch_size"],
        max_grad_norm=arm["max_grad_norm"],
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=arm["learning_rate"]),
        policy=[LowerNoise(**policy)] if policy else [],
        signal=CorrectCount(noise_multiplier=arm["signal_noise"]),
        public=test,
        callbacks=[lambda _, e: tell(e.epoch, arm["epochs"], f"{e.accuracy:.4f}")],
        progress=False,
        seed=seed,
        physical_batch_size=arm["physical_batch_size"],
    )
    return {
        "records": history.records,
        "reads": policy is not None,
        "noise": [round(epoch.noise_multiplier, 6) for epoch in history],
        "steps": [epoch.steps for epoch in history],
        "accuracy": [epoch.accuracy for epoch in history],
        "charged": [epoch.epsilon for epoch in history],
    }


def gather(
    kept: dict[str, list[dict[str, Any]]], config: dict[str, Any], preset: str
) -> dict[str, Any]:
    """The runs with epsilon at every epoch, and what they come to."""
    records = next(iter(kept.values()))[0]["result"]["records"]
    made: dict[str, list[dict[str, Any]]] = {}
    for name, entries in kept.items():
        made[name] = []
        for entry in entries:
            run = {key: entry["result"][key] for key in ("reads", "noise", "steps", "accuracy")}
            run["epsilon"] = costs.readings(run, config, records)
            # The gate that the run was charged to must say the same.
            far = max(
                abs(a - b)
                for a, b in zip(run["epsilon"]["ours"], entry["result"]["charged"], strict=True)
            )
            assert far < 1e-3, f"{name} seed {entry['seed']} was charged otherwise, by {far}"
            facts = {key: entry[key] for key in ("seed", "commit", "seconds")}
            made[name].append(facts | run)
    facts = costs.summary(made, config, preset, records)
    return {"records": records, "summary": facts, "runs": made}


def main() -> None:
    """Runs what was not run yet, and saves."""
    parser = argparse.ArgumentParser(description=__doc__)
    cifar.add_argument(parser)
    parser.add_argument("--preset", choices=FILES, default="laptop")
    parser.add_argument("--weights", type=pathlib.Path, help="ImageNet weights of ResNet18")
    parser.add_argument("--device", default="cpu", help="where the preset paper trains")
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at a time")
    given = parser.parse_args()
    data = cifar.require(given.data)
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    facts = {"data": cifar.identity(data)}
    if given.preset == "laptop":
        # Once, before several processes want them.
        features.load(data, config["laptop"]["pixels"])
    else:
        facts["weights"] = _digest(given.weights)
    work = functools.partial(run_arm, data, given.weights, given.device)
    settings = {name: {**arm, **facts} for name, arm in arms(config, given.preset).items()}
    kept = seeds.run_all("fine_tuning", settings, config["seeds"], work, jobs=given.jobs)
    results = gather(kept, config, given.preset)
    packages = (*PACKAGES, *EXTRA[given.preset])
    save(FOLDER, config, results, packages, FILES[given.preset])


def _digest(weights: pathlib.Path | None) -> str:
    if weights is None or not weights.is_file():
        sys.exit(
            f"skipped: --weights must be a file with torchvision's ResNet18 weights for ImageNet "
            f"(safetensors or a torch state dictionary), got {weights}"
        )
    return hashlib.sha256(weights.read_bytes()).hexdigest()


def _tensors(labelled: Labelled, device: str) -> TensorDataset:
    pair = torch.tensor(labelled.x), torch.tensor(labelled.y)
    return TensorDataset(*(tensor.to(device) for tensor in pair))


if __name__ == "__main__":
    main()
