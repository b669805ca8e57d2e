# SPDX-License-Identifier: Apache-2.0
"""Private steps to attack: one as a textbook writes it with torch's noise, one of the engine.

The model reads bags of words. Like the vocabularies of large language models, this one has words
that are reserved and never used, and these rows of the embedding never have a gradient. Needs the
extra `torch`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from dosimeter.accounting import Odometer
from dosimeter.rdp import SampledGaussian
from dosimeter.training import PrivateEngine
from experiments.noise_recovery.noise import Floats, View

VOCABULARY, WIDTH, CLASSES, LENGTH = 1024, 16, 16, 8
RESERVED = slice(104, 296)
"""Words that no record uses; 3,072 coordinates of the embedding show noise alone."""

HELD_OUT = 512
RECORDS, BATCH, NOISE, CLIP, RATE = 4096, 64, 2.0, 1.0, 1.0


@dataclass(frozen=True)
class Step:
    """A released step, and the secret that its noise should hide.

    Attributes:
        view: What everyone sees.
        secret: The sum of the clipped gradients, over the standard deviation of the noise.
    """

    view: View
    secret: Floats

    def error(self, noise: Floats) -> float:
        """Relative error of the sum after some noise was taken off the release."""
        left = self.view.released - noise - self.secret
        return float(np.linalg.norm(left) / np.linalg.norm(self.secret))

    def words_told(self, noise: Floats) -> float:
        """Share of the words of which the sum without that noise tells whether a record has it."""
        rows = [self.secret, self.view.released - noise]
        there, said = (
            np.abs(row[: VOCABULARY * WIDTH].reshape(-1, WIDTH)).max(axis=1) > 1e-3 for row in rows
        )
        used = np.ones(VOCABULARY, bool)
        used[RESERVED] = False
        return float((there == said)[used].mean())


def epsilon(delta: float) -> float:
    """What one step costs."""
    meter = Odometer(delta)
    meter.spend(SampledGaussian(BATCH / RECORDS, NOISE))
    return meter.epsilon


def plain_step() -> Step:
    """One step of DP-SGD with torch.normal, its generator filled from the operating system."""
    model, data = _model(), _records()
    chosen = np.flatnonzero(np.random.default_rng().random(RECORDS) < BATCH / RECORDS)
    x, y = data[chosen.tolist()]
    before, total = _flat(model), _clipped_sum(model, x, y)
    generator = _filled_generator()
    for parameter, part in zip(model.parameters(), total, strict=True):
        noise = torch.normal(0.0, NOISE * CLIP, parameter.shape, generator=generator)
        parameter.data.sub_(RATE * (part + noise) / BATCH)
    return _step(before, model, total)


def engine_step() -> Step:
    """The same step taken by `PrivateEngine`."""
    model, data = _model(), _records()
    engine = PrivateEngine(Odometer(1e-5))
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=RATE),
        data,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        batch_size=BATCH,
    )
    before = _flat(model)
    for x, y in loader:
        total = _clipped_sum(_copy(model), x, y)
        optimizer.zero_grad()
        loss = cross_entropy(private(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        break
    return _step(before, model, total)


class _BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.classes = nn.Linear(WIDTH, CLASSES, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classes(self.embedding(x).sum(dim=1))
        return scores


def _model() -> nn.Module:
    return _BagOfWords()


def _copy(model: nn.Module) -> nn.Module:
    """The same parameters without the hooks of private training."""
    other = _BagOfWords()
    with torch.no_grad():
        for old, new in zip(model.parameters(), other.parameters(), strict=True):
            new.copy_(old)
    return other


def _records() -> TensorDataset:
    words = torch.randint(0, VOCABULARY - (RESERVED.stop - RESERVED.start), (RECORDS, LENGTH))
    words[words >= RESERVED.start] += RESERVED.stop - RESERVED.start
    return TensorDataset(words, torch.randint(0, CLASSES, (RECORDS,)))


def _clipped_sum(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """The sum of per-record gradients, each clipped, one record after another."""
    parameters = list(model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for one, label in zip(x, y, strict=True):
        grads = torch.autograd.grad(cross_entropy(model(one[None]), label[None]), parameters)
        norm = torch.sqrt(sum((grad**2).sum() for grad in grads))  # type: ignore[arg-type]
        for part, grad in zip(total, grads, strict=True):
            part += grad * min(1.0, CLIP / float(norm))
    return total


def _filled_generator() -> torch.Generator:
    """A CPU generator with all 624 words of its state from the operating system."""
    state = torch.Generator().get_state()
    words = np.frombuffer(os.urandom(4 * 624), np.uint32)
    # seed, counters and position come first, then the words, each in 64 bits
    state.numpy().view(np.uint64)[3 : 3 + 624] = words
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _flat(model: nn.Module) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    return np.array(flat.numpy(), np.float32)


def _step(
    before: np.ndarray[tuple[int], np.dtype[np.float32]], model: nn.Module, total: list[Tensor]
) -> Step:
    after = _flat(model)
    silent = np.zeros(len(after), bool)
    silent[RESERVED.start * WIDTH : RESERVED.stop * WIDTH] = True
    held_out = np.zeros(len(after), bool)
    held_out[RESERVED.stop * WIDTH - HELD_OUT : RESERVED.stop * WIDTH] = True
    flat = torch.cat([part.flatten() for part in total]).double().numpy()
    view = View(before, after, RATE * NOISE * CLIP / BATCH, silent, held_out)
    return Step(view, flat / (NOISE * CLIP))
