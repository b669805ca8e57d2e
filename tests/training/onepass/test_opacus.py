"""The gradient of each record against Opacus, which has it from hooks on its own layers."""

import copy

import pytest
import torch
from opacus import GradSampleModule
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from torch import nn

from dosimeter.runs import networks
from dosimeter.training.onepass import Book, OnePassModule

# Opacus hooks the first layer, whose input needs no gradient; torch remarks on it.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

RECORDS = 7


class Last(nn.Module):
    """Score the last step of a sequence."""

    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(4, 5, batch_first=True, **options)
        self.head = nn.Linear(10 if options.get("bidirectional") else 5, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = DPMultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.layer(x, x, x)[0].mean(1))


class Tables(nn.Module):
    """Look each record up in two tables, as the canaries of an audit do."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(9, 1) for _ in range(2))

    def forward(self, x):
        return torch.cat([table(x).flatten(1) for table in self.tables], 1)


def vectors(*shape):
    return lambda: torch.randn(RECORDS, *shape)


MODELS = {
    "two linear layers": (lambda: networks.mlp(6, 3), vectors(6)),
    "a linear layer on a sequence": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(15, 3)),
        vectors(5, 4),
    ),
    "a convolution and two linear layers": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 3), nn.Linear(3, 3)
        ),
        vectors(1, 12, 12),
    ),
    "a convolution, smoothly": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(64, 2)),
        vectors(1, 6, 6),
    ),
    "convolutions of one and three dimensions": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 2, 2), nn.Flatten(2), nn.Conv1d(2, 3, 4), nn.Flatten(), nn.Linear(15, 2)
        ),
        vectors(1, 3, 3, 3),
    ),
    "a small convolutional network": (lambda: networks.small_cnn(3, 10), vectors(3, 32, 32)),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
        ),
        vectors(1, 6, 6),
    ),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2)), vectors(6)),
    "instance norm": (
        lambda: nn.Sequential(nn.InstanceNorm2d(2, affine=True), nn.Flatten(), nn.Linear(18, 2)),
        vectors(2, 3, 3),
    ),
    "embeddings": (Tables, lambda: torch.randint(0, 9, (RECORDS, 1))),
    "Opacus' LSTM": (lambda: Last(DPLSTM), vectors(6, 4)),
    "Opacus' LSTM, two layers, both ways": (
        lambda: Last(DPLSTM, num_layers=2, bidirectional=True), vectors(6, 4),
    ),
    "Opacus' GRU": (lambda: Last(DPGRU), vectors(6, 4)),
    "Opacus' RNN": (lambda: Last(DPRNN), vectors(6, 4)),
    "Opacus' attention": (Attentive, vectors(5, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_records(name):
    torch.manual_seed(3)
    make, draw = MODELS[name]
    model, x = make(), draw()
    theirs = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    weights = torch.randn_like(model(x).detach())
    (theirs(x) * weights).sum().backward()

    book = Book(RECORDS)
    (OnePassModule(model).recorded(book, x) * weights).sum().backward()
    book.settle()
    whole = []
    for mine, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is None
        expected = other.grad_sample.flatten(1).double()
        torch.testing.assert_close(book.gradients(mine), expected, rtol=1e-4, atol=1e-5)
        whole.append(expected)
    true = torch.cat(whole, dim=1).norm(dim=1)
    torch.testing.assert_close(book.norms(), true, rtol=1e-4, atol=0.0)
