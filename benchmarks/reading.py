# SPDX-License-Identifier: Apache-2.0
"""Reading: an epoch of JPEGs with two workers, beside PyTorch's own DataLoader with as many.

Both read the same files into batches of about the same size and train the same small model, one
privately and one not, in turns and in one process; the best epoch of each counts. A Poisson epoch
reads a number of records that is left to chance, so times are per record.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import dosimeter as dm
from benchmarks.measure import Result
from dosimeter.training import PrivateEngine

RECORDS, SIDE, BATCH, WORKERS, ROUNDS = 1000, 256, 100, 2, 7


class Folder(Dataset[tuple[torch.Tensor, int]]):
    """Files in folders that are named for their class, read and shrunk one by one."""

    def __init__(self, path: pathlib.Path) -> None:
        self._files = sorted(path.glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self._files[index]
        with Image.open(file) as image:
            small = np.asarray(image.convert("RGB").resize((32, 32)), dtype=np.float32)
        return torch.from_numpy(small).permute(2, 0, 1) / 255, int(file.parent.name)


def _write(path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(RECORDS):
        file = path / str(number % 2) / f"{number}.jpg"
        file.parent.mkdir(exist_ok=True)
        small = rng.integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((SIDE, SIDE)).save(file, quality=90)


def _network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))


def _epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Any) -> float:
    """Seconds for each record."""
    start, seen = time.perf_counter(), 0
    for x, y in loader:
        seen += len(x)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return (time.perf_counter() - start) / seen


def run() -> list[Result]:
    """Measures how much longer a record takes."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        _write(pathlib.Path(folder))
        data = Folder(pathlib.Path(folder))
        plain = _network()
        sgd = torch.optim.SGD(plain.parameters(), lr=0.1)
        loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
        engine, base = PrivateEngine(dm.Odometer(delta=1e-6)), _network()
        private = engine.make_private(
            base, torch.optim.SGD(base.parameters(), lr=0.1), data, noise_multiplier=1.0,
            max_grad_norm=1.0, batch_size=BATCH, num_workers=WORKERS)  # fmt: skip
        times = [(_epoch(*private), _epoch(plain, sgd, loader)) for _ in range(ROUNDS)]
    ours, theirs = (min(each) for each in zip(*times, strict=True))
    name = f"an epoch of JPEGs with {WORKERS} workers, over PyTorch's DataLoader"
    return [Result.at_most(name, ours / theirs, 1.1, "times")]
