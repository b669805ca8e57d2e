"""No batch gets into another, and none into a copy or a file."""

import copy
import io

import pytest
import torch
from torch import nn

from dosimeter.training.onepass import Book, OnePassModule, module


@pytest.fixture(autouse=True)
def untested(monkeypatch):
    """No batch is tested: a test keeps what it sees, and refuses some of what is tried here."""
    monkeypatch.setattr(module, "FIRST", 0)
    monkeypatch.setattr(module, "ONE_IN", 10**9)


class Twice(nn.Module):
    """Uses one weight twice, so that its gradients are added up."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


MODELS = {
    "linear": lambda: nn.Linear(12, 20),
    "thin": lambda: nn.Linear(20, 12),
    "twice": Twice,
}


def batch(model, records):
    width = next(model.parameters()).shape[1]
    return torch.randn(records, 30, width), torch.randn(records, 30, 1)


def sums(book, model):
    return [s.clone() for s in book.clipped_sums(list(model.parameters()), 0.5)]


def alone(model, x, weights):
    """What a module that saw no other batch gives."""
    book = Book(len(x))
    (OnePassModule(model).recorded(book, x) * weights).sum().backward()
    return sums(book, model)


def stepped(private, model, x, weights):
    private.begin(len(x))
    (private(x) * weights).sum().backward()
    return sums(private.take()[0], model)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_batches_of_any_size_give_what_a_new_module_gives(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    private = OnePassModule(model).train()
    for records in (8, 3, 40, 8, 41, 1):
        x, weights = batch(model, records)
        assert same(stepped(private, model, x, weights), alone(model, x, weights))


@pytest.mark.parametrize("taken", [False, True])
def test_a_late_backward_pass_writes_into_no_other_batch(taken):
    """Its gradients would be added with the factors of another batch."""
    torch.manual_seed(1)
    model = nn.Linear(12, 20)
    private = OnePassModule(model).train()
    x, weights = batch(model, 8)
    private.begin(8)
    late = (private(1e3 * x) * weights).sum()
    if taken:
        late.backward(retain_graph=True)
        sums(private.take()[0], model)
    private.begin(8)
    (private(x) * weights).sum().backward()
    late.backward()
    assert same(sums(private.take()[0], model), alone(model, x, weights))


def test_copies_and_files_hold_no_gradients_of_records():
    model = nn.Linear(12, 20)
    private = OnePassModule(model).train()
    stepped(private, model, *batch(model, 500))
    copied = copy.deepcopy(private)
    assert copied.take() == (None, 1)
    file = io.BytesIO()
    torch.save(private, file)
    assert len(file.getvalue()) < 4 * 500 * 12 * 20
