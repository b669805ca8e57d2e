# SPDX-License-Identifier: Apache-2.0
"""The demo's work: a digit classifier trained privately by four people, as four run folders.

All have the same budget and the same model, and leave to `fit` what they do not say. Three of them
say one number each, a guess that does well elsewhere and not here: a learning rate, a clipping
norm, a noise. The fourth says none.

Every run draws new noise from the operating system, so the figures differ a little each time.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cryptography  # noqa: F401  (noise needs it; better to know now than in the first run)
import sklearn  # noqa: F401  (has the digits; likewise)
import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.data import read_digits
from dosimeter.rounding import at_most, exact
from dosimeter.training import History, fit

EPSILON, DELTA = 4.0, 1e-5
DATA = (
    "1437 handwritten digits of scikit-learn, private; 360 others, declared public, for the "
    "accuracy. The rules that choose for those who say nothing were made while looking at digits, "
    "so that here they are at their best; the three guesses were picked to be wrong."
)


@dataclass(frozen=True)
class Way:
    """One person: a name, what is said to `fit` besides the budget, and why."""

    name: str
    says: tuple[tuple[str, float], ...]
    explained: str


WAYS = (
    Way(
        "guessed rate",
        (("learning_rate", 0.001),),
        "The learning rate 0.001, with which Adam often begins; all else is left to fit.",
    ),
    Way(
        "guessed norm",
        (("max_grad_norm", 30.0),),
        "Gradients clipped to 30, longer than nearly all of them; all else is left to fit.",
    ),
    Way(
        "guessed noise",
        (("noise_multiplier", 1.1),),
        "The noise 1.1 of Opacus' README; all else is left to fit. The filter ends the run.",
    ),
    Way("no guess", (), "Epsilon and delta, and no other number."),
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
    torch.set_num_threads(1)
    private, public = digits()
    return [
        fit(
            nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)),
            private,
            epsilon=EPSILON,
            delta=DELTA,
            public=public,
            name=f"{way.name:<13} {repeat + 1}/{repeats}",
            **dict[str, Any](way.says),
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
    """What the ways showed, in a few lines, and no more than they showed."""
    guessed = {way: found for way, found in results.items() if way.says}
    (none,) = (found for way, found in results.items() if not way.says)
    told = "; ".join(f"{_said(way)} {_mean(found)}" for way, found in guessed.items())
    ahead = all(_accuracy(none) > _accuracy(found) for found in guessed.values())
    verdict = "" if ahead else "Not every guess did worse than none this time.\n"
    return (
        f"In short, from the same budget: {told}; without a guess {_mean(none)}.\n{verdict}"
        "Means less than about a point apart say nothing with so few runs. What is certain: "
        f"no filter passed its limit of {exact(EPSILON)}, whatever was guessed."
    )


def _said(way: Way) -> str:
    return " and ".join(f"{name} {value:g}" for name, value in way.says)


def _accuracy(histories: list[History]) -> float:
    return statistics.mean(history.accuracy or 0.0 for history in histories)


def _mean(histories: list[History]) -> str:
    return f"{100 * _accuracy(histories):.1f} %"


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
