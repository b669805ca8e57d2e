# SPDX-License-Identifier: Apache-2.0
"""The demo's work: a digit classifier trained privately in four ways, as four run folders.

Three begin with the same guess of the noise, and differ in what they do then:

1. Fixed noise under a filter, priced for that noise: the usual way; the filter ends the run.
2. Adaptive noise under the same filter: a private count of correct training digits says when
   noise can be added, which leaves budget for more epochs.
3. An odometer with early stopping: no limit is set; the run ends when the count is good, and
   what was spent by then is what it cost.
4. The yardstick: fixed noise again, at a value that was found by trying on the test part. Nobody
   has that beforehand, and whoever searches for it on private data has to pay for the search.

Every run draws new noise from the operating system, so the figures differ a little each time.
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cryptography  # noqa: F401  (noise needs it; better to know now than in the first run)
import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.data import read_digits
from dosimeter.rounding import at_most, exact
from dosimeter.training import AdaptNoise, CorrectCount, History, Policy, StopEarly, fit

EPSILON, DELTA = 4.0, 1e-5
GUESSED, TUNED = 2.27, 4.0
TARGET = 0.92
DATA = (
    "1437 handwritten digits of scikit-learn, private; 360 others, declared public, for the "
    "accuracy. The learning rate, the policy's step and the noise of the yardstick were chosen by "
    "looking at those same 360, so the accuracies flatter all four, and less than about a point "
    "means little."
)


@dataclass(frozen=True)
class Way:
    """One way to train: its gate, its policy and its noise."""

    name: str
    gate: Callable[[], dm.Odometer | tuple[float, float]]
    policy: Callable[[], list[Policy]]
    noise: float
    explained: str


WAYS = (
    Way(
        "fixed noise",
        lambda: (EPSILON, DELTA),
        list,
        GUESSED,
        f"A filter of ε {EPSILON:g}; the noise that was guessed, at every step.",
    ),
    Way(
        "adaptive noise",
        lambda: (EPSILON, DELTA),
        lambda: [AdaptNoise(1.0, every=2, horizon=5, levels=6)],
        GUESSED,
        "The same filter and the same start. While the private count of correct training digits "
        "rises, noise is added; when it does not, noise goes back towards where it began.",
    ),
    Way(
        "early stopping",
        lambda: dm.Odometer(DELTA),
        lambda: [StopEarly(target=TARGET, every=4)],
        GUESSED,
        "An odometer, no limit, and the same start. Training stops once the private count shows "
        f"{TARGET:.0%} of the training digits correct; the reading at that moment is the cost.",
    ),
    Way(
        "tuned noise",
        lambda: (EPSILON, DELTA),
        list,
        TUNED,
        f"The yardstick: a filter of ε {EPSILON:g} and the noise that did best on the test part, "
        "a search that is not in its ε.",
    ),
)


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1437 digits to train on, private, and 360 to test on, declared public."""
    every = read_digits().train
    x = torch.tensor(every.x, dtype=torch.float32).flatten(1) / 255
    y = torch.tensor(every.y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test])


def train(way: Way, repeats: int) -> list[History]:
    """Trains afresh a few times: one run of a noisy method shows little."""
    # Opacus hooks the first layer, whose input needs no gradient; torch remarks on it.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    torch.set_num_threads(1)
    private, public = digits()
    return [
        fit(
            nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)),
            private,
            way.gate(),
            epochs=60,
            noise_multiplier=way.noise,
            batch_size=256,
            max_grad_norm=1.0,
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            policy=way.policy(),
            signal=CorrectCount(noise_multiplier=20),
            public=public,
            name=f"{way.name:<14} {repeat + 1}/{repeats}",
        )
        for repeat in range(repeats)
    ]


def row(way: Way, histories: list[History]) -> tuple[str, str, str, str]:
    """The figures of one way: means with the range over its runs, and the largest epsilon."""
    accuracy = [100 * (history.accuracy or 0.0) for history in histories]
    epochs = [len(history) for history in histories]
    return (
        way.name,
        f"{statistics.mean(accuracy):.1f} % ({min(accuracy):.1f} to {max(accuracy):.1f})",
        _spent(histories),
        f"{statistics.mean(epochs):.0f} ({min(epochs)} to {max(epochs)})",
    )


def conclusion(results: dict[Way, list[History]]) -> str:
    """What the ways showed, in a few lines."""
    fixed, adaptive, stopped, tuned = results.values()
    return (
        f"In short, from the same guess of the noise: fixed {_mean(fixed)}, adaptive "
        f"{_mean(adaptive)}; stopped early {_mean(stopped)} for epsilon {_spent(stopped)}.\n"
        f"Noise tuned with hindsight got {_mean(tuned)}, and the search for it was not paid for.\n"
        "Means less than about a point apart say nothing with so few runs. What is certain: "
        f"no filter passed its limit of {exact(EPSILON)}, whatever its run decided."
    )


def _mean(histories: list[History]) -> str:
    return f"{statistics.mean(100 * (history.accuracy or 0.0) for history in histories):.1f} %"


def _spent(histories: list[History]) -> str:
    return at_most(max(history.epsilon for history in histories))


def save(way: Way, histories: list[History], folder: Path) -> Path:
    """Writes the run of median accuracy into a folder of its own; returns that folder."""
    typical = sorted(histories, key=lambda history: history.accuracy or 0.0)[len(histories) // 2]
    _, accuracy, epsilon, _ = row(way, histories)
    note = way.explained
    if len(histories) > 1:
        note += (
            f" Trained {len(histories)} times: accuracy {accuracy}, ε at most {epsilon}. Shown is "
            "the run of median accuracy."
        )
    run = folder / way.name.replace(" ", "-")
    run.mkdir(parents=True, exist_ok=True)
    typical.save(run / "history.json")
    about = {
        "name": way.name,
        "note": note,
        "data": DATA,
        "model": "64 inputs, 32 hidden units (tanh), 10 classes",
        "dosimeter": dm.__version__,
    }
    (run / "run.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return run
