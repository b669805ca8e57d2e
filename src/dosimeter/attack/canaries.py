# SPDX-License-Identifier: Apache-2.0
"""Canaries: a run of training in which every record shows at coordinates of its own.

Record i has a gradient at row i of every table and nowhere else, far above the clipping norm. So
each released gradient shows, canary by canary, noise alone or noise around an equal share of the
norm. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from dosimeter.accounting import Gate
from dosimeter.attack.bounds import Flags, Floats
from dosimeter.attack.watch import Watch
from dosimeter.rdp import Cost, SampledGaussian
from dosimeter.training import PrivateEngine

TABLES = 2
"""Two, so that clipping and noise are seen to reach every parameter, not only the first."""

NORM = 0.5
_PULL = 100.0
_FAR = 1e6

Policy = Callable[[PrivateEngine, "Floats | None"], None]
"""Called in the middle of every step with what the step before released."""


class WatchedGate:
    """A gate that remembers what it was last charged for a step."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._step: SampledGaussian | None = None

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether the gate would accept this now; changes nothing."""
        return self._gate.admits(cost, count)

    def spend(self, cost: Cost, count: int = 1) -> object:
        """Spends, or raises BudgetExceeded and changes nothing."""
        receipt = self._gate.spend(cost, count)
        if isinstance(cost, SampledGaussian):
            self._step = cost
        return receipt

    def last_step(self) -> SampledGaussian:
        """What the last step was charged as."""
        if self._step is None:
            raise ValueError(
                "engine must charge its gate before every step, got a step that nothing was paid "
                "for. Spend in the gate that the factory was given."
            )
        return self._step

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far."""
        return self._gate.epsilon

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)


class _Tables(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 1) for _ in range(TABLES))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return _PULL * torch.cat([table(x).flatten(1) for table in self.tables], 1).sum(dim=1)


class Wander:
    """A policy that changes noise and batch size at every step, by what was released.

    Args:
        noise_multiplier: The noise that others are multiples of.
        batch_size: The batch size that others are multiples of.
    """

    def __init__(self, noise_multiplier: float, batch_size: int) -> None:
        self._noise, self._batch = noise_multiplier, batch_size

    def __call__(self, engine: PrivateEngine, released: Floats | None) -> None:
        """Sets what must hold from the next step on, and not for the step under way."""
        turn = 0 if released is None else int(1e4 * float(np.abs(released[0, :50]).mean()))
        engine.noise_multiplier = self._noise * (0.8, 1.0, 1.6)[turn % 3]
        batch = int(self._batch * (0.5, 1.0, 2.0)[turn // 3 % 3])
        engine.batch_size = max(1, min(batch, engine.records))


def run(
    engine_factory: Callable[[Gate], PrivateEngine],
    gate: Gate,
    present: Flags,
    *,
    noise_multiplier: float,
    batch_size: int,
    steps: int | None,
    policy: Policy | None,
    tell: Callable[[int], None],
    options: dict[str, Any],
) -> Watch:
    """Trains on the canaries that are present until the gate or the steps end it."""
    watched, watch = WatchedGate(gate), Watch(present, TABLES)
    engine = engine_factory(watched)
    model, data = _Tables(len(present)), _data(present)
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-3),
        data,
        noise_multiplier=noise_multiplier,
        max_grad_norm=NORM,
        batch_size=batch_size,
        records=len(present),
        **options,
    )
    policy = Wander(noise_multiplier, batch_size) if policy is None else policy
    loss_fn = engine.private_loss(nn.L1Loss())
    last: list[Floats] = []

    def after() -> None:
        cost = watched.last_step()
        last[:] = [_released(model, cost)]
        watch.see(cost, last[0])
        tell(engine.steps)
        if engine.steps == steps:
            engine.stop("the audit has seen its steps")

    engine.after_step(after)
    while not engine.exhausted and engine.stopped is None:
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(private(x), y).backward()
            # Here a change must still be one of the next step, whatever the engine does with it.
            policy(engine, last[0] if last else None)
            optimizer.step()
    return watch


def _data(present: Flags) -> TensorDataset:
    rows = torch.from_numpy(np.flatnonzero(present))
    return TensorDataset(rows[:, None], torch.full((len(rows),), _FAR))


def _released(model: _Tables, cost: SampledGaussian) -> Floats:
    """The noisy sum over the clipping norm, a row for each table."""
    rows = []
    for parameter in model.parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        rows.append(grad.flatten().double().cpu().numpy())
    released = np.stack(rows)
    return np.asarray(-released * (cost.sample_rate * released.shape[1] / NORM))
