"""What one record adds, from the smallest numbers to the largest."""

import pytest
import torch
from torch import nn

from dosimeter.training.clipping import Clipper
from dosimeter.training.losses import RecordLoss
from dosimeter.training.onepass import OnePassModule, module
from dosimeter.training.onepass.factors import Clipping

EXPONENTS = range(-30, 31, 5)
COARSE = EXPONENTS[::2]
"""Every size of a product is met with these on one side."""


def clipped(model, x, loss_fn, labels, *, mean=False, **how):
    """The clipped sum of a batch, with the bound at one, and no batch compared or tested."""
    wrapped = OnePassModule(model)
    clipper = Clipper(wrapped, mean=mean, **how)
    clipper.norm, wrapped._seen = 1.0, 10**9
    clipper.forget(len(x))
    RecordLoss(loss_fn, mean=mean)(wrapped(x), labels).backward()
    return torch.cat([found.double().flatten() for found in clipper.sums(len(x))])


def weighted(out, weight):
    return (out * weight).sum()


def most(make, shape, **how):
    """The most that a record of one direction adds, over all sizes of inputs and gradients."""
    found = 0.0
    for a in EXPONENTS:
        for g in COARSE:
            torch.manual_seed(0)
            x = (1.0 + torch.rand(1, *shape)) * 10.0**a
            total = clipped(make(), x, weighted, torch.full((1, 1), 1.3 * 10.0**g), **how)
            assert total.isfinite().all(), (a, g)
            found = max(found, float(total.norm()))
    return found


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_linear_layer(monkeypatch, outputs):
    monkeypatch.setattr(module, "happens", lambda _: False)
    assert 0.99 < most(lambda: nn.Linear(4, outputs, bias=False), (4,)) <= 1 + 1e-6


def test_gradients_that_are_all_given_one_length(monkeypatch):
    """Also those that are far too small to measure, or too large to square."""
    monkeypatch.setattr(module, "happens", lambda _: False)
    found = most(lambda: nn.Linear(4, 3, bias=False), (4,), clipping=Clipping.NORMALISED)
    assert 0.99 < found <= 1 + 1e-6


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Linear(40, 30, bias=False), (3, 40)),
        (lambda: nn.Linear(1, 1, bias=False), (9, 1)),
        (lambda: nn.Conv2d(1, 1, 2, bias=False), (1, 3, 3)),
        (lambda: nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 3)), (4,)),
    ],
)
def test_other_layers_in_one_pass(monkeypatch, make, shape):
    monkeypatch.setattr(module, "happens", lambda _: False)
    assert 0.99 < most(make, shape) <= 1 + 1e-6


def test_factors_too_small_for_fine_rounding(monkeypatch):
    """A factor below the smallest normal number might come out at twice what it should be."""
    monkeypatch.setattr(module, "happens", lambda _: False)
    for norm in torch.logspace(37.5, 46.0, 300, dtype=torch.float64).tolist():
        x, weight = torch.full((1, 1), 1e19), torch.tensor([[norm / 1e19]])
        total = clipped(nn.Linear(1, 1, bias=False), x, weighted, weight)
        assert float(total.norm()) <= 1 + 1e-6, norm


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_of_one_column(monkeypatch, reduction):
    """A loss of shape (B, 1) is one number a record, not a table with every factor."""
    monkeypatch.setattr(module, "happens", lambda _: False)
    torch.manual_seed(1)
    x, y, base = torch.rand(8, 4), 5 + torch.rand(8, 1), nn.Linear(4, 1, bias=False)
    loss_fn = nn.MSELoss(reduction=reduction)
    total = clipped(base, x, loss_fn, y, mean=reduction == "mean")
    # The gradient of a record lies along the record.
    expected = -(x / x.norm(dim=1, keepdim=True)).sum(0)
    torch.testing.assert_close(total, expected.double(), rtol=1e-4, atol=1e-4)
