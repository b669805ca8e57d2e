"""Signals are paid for first, exact on public data, and noisy as claimed on private data."""

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import CorrectCount, MeanLoss
from dosimeter.training.signals import with_noise


class Says(nn.Module):
    """Gives its input as logits, and writes down that it was run."""

    def __init__(self):
        super().__init__()
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return x


@pytest.fixture
def data():
    """1000 records; 700 have their largest logit at the label."""
    logits = torch.zeros(1000, 2)
    logits[:700, 1] = 1.0
    logits[700:, 0] = 1.0
    return TensorDataset(logits, torch.ones(1000, dtype=torch.long))


def test_public_data_is_exact_and_free(data):
    reading = CorrectCount(public=True).read(Says(), data)
    assert (reading.value, reading.deviation, reading.public) == (700, 0, True)
    assert reading.quality == 0.7
    loss = MeanLoss(public=True).read(Says(), data)
    exact = nn.functional.cross_entropy(*data.tensors).item()
    assert loss.value == pytest.approx(exact, abs=1e-5)
    assert loss.score == -loss.value


@pytest.mark.parametrize("signal", [CorrectCount, MeanLoss])
def test_private_data_is_charged_before_the_model_runs(data, signal):
    gate, model = dm.Filter(epsilon=0.1, delta=1e-6), Says()
    reading = signal(noise_multiplier=200).read(model, data, gate=gate)
    expected = dm.Filter(epsilon=0.1, delta=1e-6)
    expected.spend(dm.Gaussian(200))
    assert gate.epsilon == expected.epsilon
    assert reading.noise_multiplier == 200
    runs = model.runs
    with pytest.raises(dm.BudgetExceeded):
        signal(noise_multiplier=1.0).read(model, data, gate=gate)
    assert model.runs == runs
    assert gate.epsilon == expected.epsilon


def test_private_data_needs_a_gate(data):
    with pytest.raises(TypeError, match="public=True"):
        CorrectCount().read(Says(), data)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_noise_must_be_positive(data, value):
    gate = dm.Odometer(delta=1e-6)
    with pytest.raises(ValueError, match="noise_multiplier must"):
        CorrectCount(noise_multiplier=value).read(Says(), data, gate=gate)
    assert gate.epsilon == 0


def test_through_an_engine_it_is_part_of_the_run(build):
    parts = build()
    reading = CorrectCount(noise_multiplier=50).read(parts.model, parts.dataset, gate=parts.engine)
    assert parts.engine.spends == 1
    assert parts.engine.epsilon == parts.gate.epsilon > 0
    assert reading.records == 200
    assert parts.model.training


def test_reading_between_steps_disturbs_nothing(build, train):
    parts = build()
    loss = parts.engine.private_loss(nn.CrossEntropyLoss())
    train(parts, loss_fn=loss)
    CorrectCount().read(parts.model, parts.dataset, gate=parts.engine)
    train(parts, loss_fn=loss)
    assert parts.engine.steps == 10
    assert parts.engine.spends == 11


def test_losses_are_clipped_and_nan_counts_as_the_worst():
    logits = torch.tensor([[0.0, 1e9], [math.nan, 0.0], [1e9, 0.0]])
    data = TensorDataset(logits, torch.tensor([0, 0, 0]))
    reading = MeanLoss(public=True, bound=3.0).read(Says(), data)
    assert reading.value == pytest.approx(2.0)


def test_a_reduced_loss_is_refused(data):
    signal = MeanLoss(public=True, loss_fn=nn.functional.cross_entropy)
    with pytest.raises(ValueError, match="one loss per record"):
        signal.read(Says(), data)


def test_missing_labels(data):
    with pytest.raises(ValueError, match="pairs"):
        CorrectCount(public=True).read(Says(), TensorDataset(data.tensors[0]))


def test_the_count_has_rounded_gaussian_noise():
    """Variance and mean of 4000 draws; fails for a right sampler with probability 1e-6."""
    scale, count, share = 10.0, 4000, 1e-6 / 2
    draws = torch.tensor([with_noise(0, scale) for _ in range(count)]).double()
    # Rounding adds a twelfth to the variance.
    low, high = stats.chi2.ppf([share / 2, 1 - share / 2], count) / count
    assert low < (draws**2).mean().item() / (scale**2 + 1 / 12) < high
    assert abs(draws.mean().item()) * math.sqrt(count) / scale < stats.norm.isf(share / 2)
    assert torch.equal(draws, draws.round())


@pytest.mark.parametrize("noise", [0.5, 1.0, 1.5])
def test_a_count_has_the_law_of_a_gaussian_rounded(noise):
    """So a menu may price it as one; the discrete Gaussian at noise 1 would be 1.92 delta."""
    count = 4000
    draws = torch.tensor([with_noise(7, noise) - 7 for _ in range(count)])
    edges = [-math.inf, -1.5, -0.5, 0.5, 1.5, math.inf]
    chances = [
        stats.norm.cdf(high / noise) - stats.norm.cdf(low / noise)
        for low, high in itertools.pairwise(edges)
    ]
    clipped = draws.clamp(-2, 2)
    seen = [int((clipped == place).sum()) for place in range(-2, 3)]
    assert stats.chisquare(seen, [count * chance for chance in chances]).pvalue > 1e-6
