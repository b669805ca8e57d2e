"""Memory that is kept from batch to batch never lets one batch into another."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from dosimeter.training.onepass import Book, OnePassModule, module
from dosimeter.training.onepass import room as rooms
from dosimeter.training.onepass.entries import Rows
from dosimeter.training.onepass.room import Room


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
    """What a book with memory of its own gives."""
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
def test_batches_of_any_size_give_what_new_memory_gives(name):
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


def test_a_parameter_that_is_used_twice_has_two_places():
    target, book = torch.zeros(3, requires_grad=True), Book(2, Room())
    first = book.empty(target, (2, 3)).fill_(1.0)
    book.add(target, Rows(first))
    assert book.empty(target, (2, 3)).data_ptr() != first.data_ptr()


def test_no_more_is_kept_than_the_most(monkeypatch):
    monkeypatch.setattr(rooms, "MOST", 4 * 250)
    room, one, two = Room(), torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    kept = room.of(one, (10, 10)).data_ptr()
    assert room.of(one, (5, 20)).data_ptr() == kept
    assert room.of(two, (10, 10)).data_ptr() == room.of(two, (10, 10)).data_ptr()
    first, second = room.of(one, (20, 20)), room.of(one, (20, 20))
    assert first.data_ptr() != second.data_ptr()
    made = one * 2  # lives no longer than its batch
    first, second = room.of(made, (2, 2)), room.of(made, (2, 2))
    assert first.data_ptr() != second.data_ptr()


def test_copies_and_files_hold_no_gradients_of_records():
    model = nn.Linear(12, 20)
    private = OnePassModule(model).train()
    stepped(private, model, *batch(model, 500))
    size = len(pickle.dumps(private._room))
    assert size < 200
    assert copy.deepcopy(private._room)._kept == {}
    file = io.BytesIO()
    torch.save(private, file)
    assert len(file.getvalue()) < 4 * 500 * 12 * 20
