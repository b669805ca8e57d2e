"""A budget of a ledger is a gate like any other: training needs no new code."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.ledger import Ledger
from dosimeter.training import AdaptNoise, AutoRate, CorrectCount, PrivateEngine, fit


def train(gate, epochs=50):
    x = torch.randn(200, 4)
    engine = PrivateEngine(gate)
    model = torch.nn.Linear(4, 2)
    model, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        TensorDataset(x, (x.sum(dim=1) > 0).long()),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        batch_size=40,
    )
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return engine


def test_every_step_is_in_the_journal(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        budget = ledger.create("patients", epsilon=2.0, delta=1e-5)
        step = dm.SampledGaussian(0.2, 2.0)
        affordable = budget.affordable(step)
        engine = train(budget)
        assert engine.exhausted
        assert engine.steps == affordable
        kinds = [entry.kind for entry in budget.history(1000)]
        assert kinds.count("spend") == affordable
        assert set(kinds) == {"open", "spend", "refuse"}
        assert kinds.count("refuse") == 1  # however many epochs asked again
        assert not budget.admits(step)
        assert engine.epsilon == budget.epsilon <= 2.0
        assert ledger.verify("patients").ok


def test_reserved_steps_cost_one_entry_a_block(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        budget = ledger.create("patients", epsilon=2.0, delta=1e-5)
        affordable = budget.affordable(dm.SampledGaussian(0.2, 2.0))
        with budget.buffered(block=6) as gate:
            engine = train(gate)
        assert engine.exhausted
        assert engine.steps == affordable
        blocks = -(-affordable // 6)
        assert budget.statement().entries == 1 + 2 * blocks  # each block reserved, then noted
        assert ledger.verify("patients").ok


def test_the_journal_and_the_history_tell_the_same_run(points, classifier, tmp_path):
    """Readings and steps of a run that sets its own rate: nothing is charged beside the journal."""
    how = {"policy": [AdaptNoise(every=1, horizon=3)], "signal": CorrectCount(noise_multiplier=20)}
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        budget = ledger.create("patients", epsilon=8.0, delta=1e-6)
        history = fit(
            classifier(), points(), budget, noise_multiplier=4.0, batch_size=50, epochs=6, seed=1,
            progress=False, **how,
        )  # fmt: skip
        spends = [entry for entry in budget.history(1000) if entry.kind == "spend"]
        journal, gate = dm.Filter(8.0, 1e-6), dm.Filter(8.0, 1e-6)
        for entry in spends:
            journal.spend(entry.priced(), entry.count)
        chosen = history.replay([AdaptNoise(every=1, horizon=3)], gate)
        assert ledger.verify("patients").ok
        assert history.epsilon == budget.epsilon == journal.epsilon == gate.epsilon
    readings = sum(epoch.signal is not None for epoch in history)
    assert sum(entry.count for entry in spends) == history.steps + readings
    assert readings
    assert len({epoch.noise_multiplier for epoch in history}) > 1
    for before, after in zip(chosen, history.epochs[1:], strict=False):
        assert before == (after.noise_multiplier, after.batch_size, None)
    values = sum(p.numel() for p in classifier().parameters())
    began = {"steps": 24, "noise": 4.0 * math.sqrt(values) / 50, "bound": 1.0}
    assert history.began == pytest.approx(began)
    assert history.replay_rates(AutoRate()) == [epoch.learning_rate for epoch in history]
