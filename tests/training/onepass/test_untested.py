"""A batch that is to be tested and leaves the path where the test looks is refused."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from dosimeter.errors import TicketError


def between(out):
    """A loss in which every record is divided by the mean of all."""
    return (out / out.detach().abs().mean()).mean()


def step(parts, loop):
    x, y = next(iter(parts.loader))
    parts.optimizer.zero_grad()
    loop(parts.model, x, y)
    parts.optimizer.step()
    return parts


def in_place(model, x, _):
    loss = between(model(x))
    loss += 0.0
    loss.backward()


def hook(model, x, _):
    out = model(x)
    out.register_hook(lambda grad: grad / out.detach().abs().mean())
    out.mean().backward()


def new_values(model, x, _):
    out = model(x)
    out.data = between(out).expand_as(out)
    out.square().mean().backward()


def column(model, x, _):
    (model(x) / 40).sum(1).backward(torch.ones(len(x)))


@pytest.mark.parametrize("loop", [in_place, hook, new_values, column])
def test_losses_that_cannot_be_played_again(build, loop):
    parts = build()
    with pytest.raises(TicketError, match=r"computed again.*loss = loss \+.*private_loss"):
        step(parts, loop)
    assert parts.engine.steps == 0


def other_backward(model, x, _):
    torch.autograd.backward(between(model(x)))


def plain(model, x, _):
    between(model(x).as_subclass(Tensor)).backward()


@pytest.mark.parametrize("loop", [other_backward, plain])
def test_losses_that_leave_the_tape(build, loop):
    parts = build()
    with pytest.raises(TicketError, match=r"all of its way.*loss\.backward.*private_loss"):
        step(parts, loop)
    assert parts.engine.steps == 0


@dataclasses.dataclass
class Batch:
    x: Tensor


class Own(nn.Module):
    """Mixes records where the self-test has no rows to choose."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, batch, *others):
        out = self.layer(batch.x)
        return out / out.detach().abs().mean()


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        out = self.layer(x)
        return {"loss": between(out), "out": out}


@pytest.mark.parametrize(
    ("make", "loop"),
    [
        (Own, lambda model, x, _: model(Batch(x)).mean().backward()),
        (Own, lambda model, x, _: model(Batch(x), torch.zeros(3)).mean().backward()),
        (WithLoss, lambda model, x, _: model(x)["loss"].backward()),
    ],
)
def test_models_that_hide_records_or_the_loss(build, make, loop):
    parts = build(model=make())
    with pytest.raises(TicketError, match="one row for each record"):
        step(parts, loop)
    assert parts.engine.steps == 0


def test_the_ends_of_the_outputs_are_tried(build):
    """Only the largest output of all moves the others."""

    def largest(model, x, _):
        out = model(x).sum(1)
        (out / out.detach().amax()).mean().backward()

    for _ in range(5):
        with pytest.raises(TicketError, match="must not depend on the other records"):
            step(build(), largest)


@pytest.mark.parametrize(
    "loop",
    [
        lambda model, x, y: (functional.cross_entropy(model(x), y) + 0.0).backward(),
        lambda model, x, y: functional.cross_entropy(model(x), y).mul(2).backward(),
    ],
)
def test_the_way_out(build, loop):
    assert step(step(build(), loop), loop).engine.steps == 2


def test_reading_is_not_writing(build):
    def loop(model, x, y):
        loss = functional.cross_entropy(model(x), y)
        assert int(loss) >= 0
        loss.backward()

    assert step(build(), loop).engine.steps == 1


def test_a_loss_for_each_record_needs_no_test(build):
    parts = build()
    loss_fn = parts.engine.private_loss(nn.CrossEntropyLoss())

    def loop(model, x, y):
        loss = loss_fn(model(x), y)
        loss += 0.0
        torch.autograd.backward(loss)

    assert step(parts, loop).engine.steps == 1
