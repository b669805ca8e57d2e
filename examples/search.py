"""A search over learning rates under one budget: every step and every score is charged to it.

Run it with: python examples/search.py
"""

from collections.abc import Iterator
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.search import Uniform, tune
from dosimeter.training import CorrectCount, fit

torch.set_num_threads(1)

x, y = load_digits(return_X_y=True)
inputs, labels = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
private = TensorDataset(inputs[:1400], labels[:1400])
held_out = TensorDataset(inputs[1400:], labels[1400:])  # private too: scores on it are charged
score = CorrectCount(noise_multiplier=15.0)


def objective(settings: dict[str, Any], gate: dm.Gate) -> Iterator[tuple[float, Any]]:
    """Train a linear model in three rungs, and score it privately after each."""
    model, rate = torch.nn.Linear(64, 10), settings["rate"]
    for epochs in (1, 3, 9):
        fit(model, private, gate, epochs=epochs, batch_size=128, noise_multiplier=2.0,
            learning_rate=rate, progress=False)  # fmt: skip
        yield score.read(model, held_out, gate=gate).value / len(held_out), model


budget = dm.Filter(epsilon=6, delta=1e-5)
found = tune(objective, {"rate": Uniform(0.02, 20, log=True)}, budget, trials=(9, 3, 1))
print(found)
