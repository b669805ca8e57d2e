"""A small data set, a small model, and the loop that everyone writes."""

import types

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import PrivateEngine

torch.set_num_threads(1)


class CountingGate:
    """A gate that writes down every spend it accepts."""

    def __init__(self, gate):
        self.gate, self.spends = gate, []

    def admits(self, cost, count=1):
        return self.gate.admits(cost, count)

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.spends.append((cost, count))

    @property
    def epsilon(self):
        return self.gate.epsilon


@pytest.fixture
def counting_gate():
    return CountingGate


@pytest.fixture
def points():
    """Makes a data set of two classes that a line can tell apart."""

    def make(count=200, features=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(count, features, generator=generator)
        return TensorDataset(x, (x.sum(dim=1) > 0).long())

    return make


@pytest.fixture
def classifier():
    def make(features=6, seed=0):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 2))

    return make


@pytest.fixture
def train():
    """The plain loop; says how many physical batches it saw."""

    def run(parts, epochs=1, loss_fn=cross_entropy):
        seen = 0
        for _ in range(epochs):
            for x, y in parts.loader:
                parts.optimizer.zero_grad()
                loss_fn(parts.model(x), y).backward()
                parts.optimizer.step()
                seen += 1
        return seen

    return run


@pytest.fixture
def build(points, classifier):
    """A ready engine with everything make_private gave."""

    def make(gate=None, dataset=None, model=None, *, seed=7, strict=False, lr=0.1, **options):
        gate = dm.Filter(epsilon=8, delta=1e-6) if gate is None else gate
        dataset = points() if dataset is None else dataset
        base = classifier() if model is None else model
        engine = PrivateEngine(gate, seed=seed, strict=strict)
        plain = torch.optim.SGD(base.parameters(), lr=lr, momentum=0.9)
        settings = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "batch_size": 40, **options}
        model, optimizer, loader = engine.make_private(base, plain, dataset, **settings)
        return types.SimpleNamespace(
            engine=engine,
            gate=gate,
            base=base,
            plain=plain,
            model=model,
            optimizer=optimizer,
            loader=loader,
            dataset=dataset,
        )

    return make


@pytest.fixture
def snapshot():
    """A copy of the parameters and the optimizer state, bit for bit."""

    def take(parts):
        return (
            [p.detach().clone() for p in parts.base.parameters()],
            [
                {key: torch.as_tensor(value).clone() for key, value in state.items()}
                for state in parts.plain.state.values()
            ],
        )

    return take
