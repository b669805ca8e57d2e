"""How far one record moves the sum, in the arithmetic that is used: searched for, not assumed."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import PrivateEngine
from dosimeter.training.grid import ARITHMETIC
from dosimeter.training.onepass import Book, OnePassModule, entries
from dosimeter.training.onepass.book import MARGIN

BOUND = 1.0
CLIPPED = BOUND * (1 - ARITHMETIC)
"""What the engine clips to, to have room for arithmetic."""


def total(model, inputs, weights):
    book = Book(len(weights))
    (OnePassModule(model).recorded(book, inputs) * weights).sum().backward()
    parameters = list(model.parameters())
    return torch.cat([s.flatten() for s in book.clipped_sums(parameters, CLIPPED)])


def moved(model, inputs, weights, record):
    """By how much the sum changes when one record is taken out."""
    rest = [i for i in range(len(weights)) if i != record]
    whole = total(model, inputs, weights)
    return float((whole - total(model, inputs[rest], weights[rest])).norm()) / BOUND


def sequence(*, offset, steps=30, width=4, records=8):
    """Features far from zero that hardly change from step to step; backprops that cancel."""
    x = offset + 5.0 * torch.randn(records, steps, width)
    g = torch.randn(records, steps, 3)
    return x, g - g.mean(dim=1, keepdim=True)


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1.7e9])
@pytest.mark.parametrize("wide", [False, True])
def test_sequences_far_from_zero(offset, wide):
    torch.manual_seed(1)
    x, g = sequence(offset=offset, steps=5 if wide else 30, width=200 if wide else 4)
    g = torch.randn(8, x.shape[1], 100).sub_(0.01) if wide else g
    model = nn.Linear(x.shape[2], g.shape[2])
    assert max(moved(model, x, g, record) for record in range(8)) <= 1.0


def test_writing_out_is_what_saves_sequences_that_cancel(monkeypatch):
    """Without it the sum loses more than the norm knows of: this test would see the defect."""
    torch.manual_seed(1)
    x = 1e7 + torch.randn(8, 20, 200)
    g = torch.randn(8, 20, 100)
    g -= g.mean(dim=1, keepdim=True)
    model = nn.Linear(200, 100, bias=False)
    assert isinstance(entries.linear_entry(x, g), entries.Steps)
    assert max(moved(model, x, g, record) for record in range(8)) <= 1.0
    monkeypatch.setattr(entries, "CANCELS", 1e300)
    monkeypatch.setattr(entries, "_unit", lambda _: 0.0)
    assert max(moved(model, x, g, record) for record in range(8)) > 1.05


def test_norms_of_rows_lose_less_than_the_margin():
    worst = 0.0
    for length in (3, 100, 1000, 2047, 2048, 2049, 5000):
        for value in torch.rand(40).tolist():
            for rows in (torch.full((3, length), value), torch.full((length, 3), value).T):
                true = rows.double().square().sum(1)
                worst = max(worst, float(((true - entries.row_squares(rows)) / true).max()))
    assert 0 < worst / 2 <= MARGIN


def test_tokens_that_cancel():
    torch.manual_seed(2)
    tokens = torch.zeros(8, 40, dtype=torch.long)
    g = 1e4 * torch.randn(8, 40, 4)
    g -= g.mean(dim=1, keepdim=True)
    assert max(moved(nn.Embedding(3, 4), tokens, g, record) for record in range(8)) <= 1.0


@pytest.mark.parametrize("records", [255, 256, 257, 1000, 4096])
def test_records_that_are_all_alike(records):
    """Every rounding goes the same way, and all gradients add up."""
    for seed in range(6):
        torch.manual_seed(seed)
        x, g = torch.rand(1, 50).expand(records, -1), torch.rand(1, 3).expand(records, -1)
        assert moved(nn.Linear(50, 3), x.contiguous(), g.contiguous(), records // 2) <= 1.0


def worst(models, tries):
    """The most that a record moved in a random search over scales, directions and sizes."""
    most = 0.0
    generator = torch.Generator().manual_seed(3)
    for number in range(tries):
        make, shape, out = models[number % len(models)]
        records = int(torch.randint(2, 40, (), generator=generator))
        torch.manual_seed(number)
        direction = torch.randn(1, *shape)
        scale = 10 ** (6 * torch.rand(records, *[1] * len(shape)) - 3)
        x = scale * (direction + 0.1 * torch.randn(records, *shape) * torch.rand(1))
        g = torch.randn(1, *out) + 0.1 * torch.randn(records, *out)
        most = max(most, moved(make(), x, g * 10 ** (4 * torch.rand(1) - 1), 0))
    return most


def test_random_search():
    models = [
        (lambda: nn.Linear(30, 4), (30,), (4,)),
        (lambda: nn.Linear(700, 2), (700,), (2,)),
        (lambda: nn.Linear(6, 4), (7, 6), (7, 4)),
        (lambda: nn.Linear(40, 30), (3, 40), (3, 30)),
        (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 6, 6), (3, 6, 6)),
        (lambda: nn.Conv2d(2, 3, 3), (2, 12, 12), (3, 10, 10)),
        (lambda: nn.LayerNorm(9), (5, 9), (5, 9)),
        (lambda: nn.GroupNorm(2, 4), (4, 9), (4, 9)),
    ]
    most = worst(models, 240)
    # Clipped records are there, and within the bound with room for arithmetic to spare.
    assert 0.999 < most <= 1.0


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-12, 1.0, 1e12, 1e18, 1e25, 1e38])
def test_gradients_of_any_size(scale):
    """Too small for squares, or too large for them: never more than the bound, never infinite."""
    torch.manual_seed(4)
    x, g = torch.randn(5, 6), torch.randn(5, 3)
    g[2] *= scale
    model = nn.Linear(6, 3)
    assert total(model, x, g).isfinite().all()
    assert moved(model, x, g, 2) <= 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["input", "backprop"])
def test_a_record_that_is_not_finite_adds_nothing(bad, place):
    torch.manual_seed(5)
    x, g = torch.randn(300, 6), torch.randn(300, 3)
    (x if place == "input" else g)[7, 1] = bad
    model = nn.Linear(6, 3)
    found = total(model, x, g)
    # Taken out, the records behind it move up, and sums of them round otherwise.
    assert moved(model, x, g, 7) <= 1e-5
    x[7], g[7] = 0.0, 0.0
    assert torch.equal(found, total(model, x, g))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_activations(dtype):
    """Autocast may be on from first to last: norms and sums stay in single precision."""
    torch.manual_seed(6)
    x, g = 3 + torch.randn(600, 30), 1 + 0.1 * torch.randn(600, 4)
    model = nn.Sequential(nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 4))
    with torch.autocast("cpu", dtype=dtype):
        assert moved(model, x, g, 11) <= 1.0


def test_physical_batches_give_the_same_sums():
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(600, 1, 8, 8), torch.randint(0, 3, (600,)))
    releases = []
    for physical in (None, 600, 300, 64, 7):
        torch.manual_seed(8)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.GELU(), nn.Flatten(),
            nn.Linear(256, 3),
        )  # fmt: skip
        engine = PrivateEngine(dm.Odometer(1e-6), seed=1)
        private, optimizer, loader = engine.make_private(
            model, torch.optim.SGD(model.parameters(), lr=0.1), data, noise_multiplier=1.0,
            max_grad_norm=1.0, batch_size=600, physical_batch_size=physical,
        )  # fmt: skip
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(x), y).backward()
            optimizer.step()
        grads = [p.grad.flatten().double() * 600 for p in model.parameters()]
        releases.append(torch.cat(grads))
    for release in releases[1:]:
        # How the layers round depends on the size of a matrix product.
        assert float((release - releases[0]).norm()) <= 2e-5


def test_squares_that_vanish_in_many_narrow_parameters():
    """The room for them is that of all parameters together."""
    parameters = [nn.Parameter(torch.zeros(n)) for n in (1, 600, 400)]
    book, bound = Book(1), 1e-18
    for parameter in parameters:
        book.add(parameter, entries.Rows(torch.full((1, parameter.numel()), 1e-19)))
    assert torch.set_flush_denormal(True)
    try:
        sums = book.clipped_sums(parameters, bound)
    finally:
        torch.set_flush_denormal(False)
    assert [each.shape for each in sums] == [each.shape for each in parameters]
    assert 0 < float(torch.cat(sums).double().norm()) <= bound
