"""Opacus' own loop on a gate: paid step by step, refused before the update."""

import copy

import numpy as np
import opacus
import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dosimeter as dm
from dosimeter.errors import BudgetExceeded
from dosimeter.integrations.opacus import GateAccountant, PrivacyEngine

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:.*expected_batch_size"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]
RECORDS, BATCH = 200, 20


def odometer():
    return dm.Odometer(delta=1e-6)


def made(engine, **options):
    torch.manual_seed(0)
    x = torch.randn(RECORDS, 6)
    data = TensorDataset(x, (x.sum(dim=1) > 0).long())
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    settings = {"noise_multiplier": 1.5, "max_grad_norm": 1.0, **options}
    return engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        data_loader=DataLoader(data, batch_size=BATCH), **settings)  # fmt: skip


def loop(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def test_every_step_is_paid_at_its_rate_and_noise():
    gate = odometer()
    engine = PrivacyEngine(gate)
    loop(*made(engine))
    other = odometer()
    other.spend(dm.SampledGaussian(BATCH / RECORDS, 1.5), RECORDS // BATCH)
    assert gate.epsilon == pytest.approx(other.epsilon, rel=1e-9)
    assert engine.get_epsilon(1e-6) == gate.epsilon
    assert len(engine.accountant) == RECORDS // BATCH


def test_it_trains_the_model_that_opacus_trains():
    found = []
    for engine in (PrivacyEngine(odometer()), opacus.PrivacyEngine(accountant="rdp")):
        model, optimizer, loader = made(engine)
        torch.manual_seed(1)
        loop(model, optimizer, loader)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*found)


def test_a_refusal_comes_before_the_update_and_says_what_was_done():
    gate = dm.Filter(epsilon=1.5, delta=1e-6)
    engine = PrivacyEngine(gate)
    model, optimizer, loader = made(engine)
    before, state = [], {}

    def until_refused():
        while True:
            for x, y in loader:
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                before[:] = [p.detach().clone() for p in model.parameters()]
                state.update(copy.deepcopy(optimizer.original_optimizer.state_dict()))
                optimizer.step()

    with pytest.raises(BudgetExceeded) as caught:
        until_refused()
    assert "gradients of this batch were already computed" in caught.value.__notes__[0]
    for one, two in zip(before, model.parameters(), strict=True):
        assert torch.equal(one, two)
        assert two.grad is None
        assert getattr(two, "summed_grad", None) is None
    now = optimizer.original_optimizer.state_dict()
    for one, two in zip(state["state"].values(), now["state"].values(), strict=True):
        assert torch.equal(one["momentum_buffer"], two["momentum_buffer"])
    assert 0 < len(engine.accountant)
    assert gate.epsilon <= 1.5
    assert not gate.admits(dm.SampledGaussian(BATCH / RECORDS, 1.5))


def test_one_budget_for_two_models():
    gate = odometer()
    for _ in range(2):
        loop(*made(PrivacyEngine(gate)))
    both = odometer()
    both.spend(dm.SampledGaussian(0.1, 1.5), 20)
    assert gate.epsilon == pytest.approx(both.epsilon, rel=1e-9)


def test_batches_in_pieces_are_paid_once():
    engine = PrivacyEngine(odometer())
    model, optimizer, loader = made(engine)
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=6, optimizer=optimizer
    ) as pieces:
        loop(model, optimizer, pieces)
    assert len(engine.accountant) == RECORDS // BATCH


def test_noise_that_changes_is_paid_as_it_was():
    gate = odometer()
    engine = PrivacyEngine(gate)
    model, optimizer, loader = made(engine)
    loop(model, optimizer, loader)
    optimizer.noise_multiplier = 3.0
    loop(model, optimizer, loader)
    assert engine.accountant.history == [(1.5, 0.1, 10), (3.0, 0.1, 10)]


class TestCheckpoints:
    def test_loading_charges_what_was_spent(self, tmp_path):
        engine = PrivacyEngine(odometer())
        model, optimizer, loader = made(engine)
        loop(model, optimizer, loader)
        engine.save_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
        gate = odometer()
        again = PrivacyEngine(gate)
        model, optimizer, _ = made(again)
        again.load_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
        assert gate.epsilon == pytest.approx(engine.accountant.gate.epsilon, rel=1e-9)
        assert len(again.accountant) == 10

    def test_a_gate_that_cannot_hold_it_refuses(self):
        engine = GateAccountant(odometer())
        for _ in range(10):
            engine.step(noise_multiplier=1.0, sample_rate=0.5)
        small = dm.Filter(epsilon=0.5, delta=1e-6)
        with pytest.raises(BudgetExceeded):
            GateAccountant(small).load_state_dict(engine.state_dict())
        kept = GateAccountant(small, spends_kept=True)
        kept.load_state_dict(engine.state_dict())
        assert len(kept) == 10
        assert small.epsilon == dm.Filter(epsilon=0.5, delta=1e-6).epsilon


class TestRefusals:
    def test_what_would_be_charged_too_little(self):
        gate = odometer()
        with pytest.raises(ValueError, match="poisson_sampling must be on"):
            made(PrivacyEngine(gate), poisson_sampling=False)
        with pytest.raises(ValueError, match="noise_for"):
            PrivacyEngine(gate).make_private_with_epsilon(target_epsilon=1)
        assert gate.epsilon == odometer().epsilon

    @pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
    def test_noise_that_is_none(self, bad):
        engine = PrivacyEngine(odometer())
        model, optimizer, loader = made(engine)
        optimizer.noise_multiplier = bad
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises((ValueError, RuntimeError)):
            loop(model, optimizer, loader)
        for one, two in zip(before, model.parameters(), strict=True):
            assert torch.equal(one, two)

    def test_no_gate_and_another_delta(self):
        with pytest.raises(TypeError, match="gate must be"):
            PrivacyEngine("prv")
        with pytest.raises(ValueError, match="delta must be at least"):
            PrivacyEngine(odometer()).get_epsilon(1e-9)

    def test_two_batches_in_one_step(self):
        """A record that is in both would move the sum by twice its norm."""
        engine = PrivacyEngine(odometer())
        model, optimizer, loader = made(engine)
        model.allow_grad_accumulation()
        for x, y in [next(iter(loader)), next(iter(loader))]:
            cross_entropy(model(x), y).backward()
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(ValueError, match="one batch"):
            optimizer.step()
        for one, two in zip(before, model.parameters(), strict=True):
            assert torch.equal(one, two)
        assert len(engine.accountant) == 0
