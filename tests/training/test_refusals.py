"""What Opacus' modes would clip wrongly is refused, and the error names the way out."""

import pytest
import torch
from opacus.layers import DPLSTM
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from dosimeter.errors import TicketError

OPACUS = ["hooks", "ghost", "ew"]


def one_step(parts, loss_fn=None):
    loss_fn = parts.engine.private_loss(loss_fn or nn.CrossEntropyLoss())
    x, y = next(iter(parts.loader))
    parts.optimizer.zero_grad()
    loss_fn(parts.model(x), y).backward()
    parts.optimizer.step()


@pytest.mark.parametrize("mode", OPACUS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters(build, classifier, mode, dtype):
    with pytest.raises(ValueError, match=r"model\.float\(\)"):
        build(model=classifier().to(dtype), grad_sampling=mode)


@pytest.mark.parametrize("mode", OPACUS)
@pytest.mark.parametrize("padding", ["circular", "reflect", "replicate"])
def test_padding_that_is_not_zeros(build, mode, padding):
    model = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1, padding_mode=padding), nn.Flatten())
    with pytest.raises(ValueError, match="layer of its own"):
        build(model=model, grad_sampling=mode)


class Packed(nn.Module):
    def __init__(self, *, enforce_sorted):
        super().__init__()
        self.lstm, self.head = DPLSTM(2, 3, batch_first=True), nn.Linear(3, 2)
        self.enforce_sorted = enforce_sorted

    def forward(self, x):
        lengths = torch.full((len(x),), 3)
        if not self.enforce_sorted:
            lengths[::2] = 2
        packed = pack_padded_sequence(
            x.view(len(x), 3, 2), lengths, batch_first=True, enforce_sorted=self.enforce_sorted
        )
        return self.head(self.lstm(packed)[1][0][-1])


def test_packed_sequences_in_another_order(build):
    parts = build(model=Packed(enforce_sorted=False), grad_sampling="hooks")
    with pytest.raises(ValueError, match="enforce_sorted=True"):
        one_step(parts)
    parts = build(model=Packed(enforce_sorted=True), grad_sampling="hooks")
    one_step(parts)
    assert parts.engine.steps == 1


def test_ghost_norms_of_sequences(build):
    model = nn.Sequential(nn.Unflatten(1, (3, 2)), nn.Linear(2, 4), nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(ValueError, match="onepass"):
        one_step(build(model=model, grad_sampling="ghost"))


class Tied(nn.Module):
    """A head that uses the weight of another layer behind its back."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return functional.linear(self.first(x).tanh() @ self.first.weight, self.first.weight)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_weight_used_outside_its_layer(build, snapshot, mode):
    parts = build(model=Tied(), grad_sampling=mode)
    before = snapshot(parts)[0]
    with pytest.raises(TicketError, match="by its own layer only"):
        one_step(parts)
    assert torch.equal(before[0], snapshot(parts)[0][0])


class ChannelsLast(nn.Module):
    """Images as files have them, channels last: convolutions keep that layout in memory."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.second(self.first(x.permute(0, 3, 1, 2)).relu())
        return self.head(hidden.mean((2, 3)))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_channels_last_in_memory(build, mode):
    images = TensorDataset(torch.randn(200, 6, 6, 3), torch.randint(0, 2, (200,)))
    parts = build(dataset=images, model=ChannelsLast(), grad_sampling=mode)
    with pytest.raises(TicketError, match="in memory"):
        one_step(parts)
    parts = build(dataset=images, model=ChannelsLast())
    one_step(parts)
    assert parts.engine.steps == 1


@pytest.mark.parametrize("mode", ["hooks", "ew"])
def test_a_penalty_in_the_loss(build, mode):
    parts = build(grad_sampling=mode)

    def loss_fn(out, y):
        penalty = sum(p.square().sum() for p in parts.base.parameters())
        return functional.cross_entropy(out, y) + penalty

    with pytest.raises(TicketError, match="weight_decay"):
        one_step(parts, loss_fn)


@pytest.mark.parametrize("mode", OPACUS)
def test_healthy_models_pass_the_comparison(build, mode):
    images = TensorDataset(torch.randn(200, 1, 6, 6), torch.randint(0, 2, (200,)))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(64, 2))
    parts = build(model=model, dataset=images, grad_sampling=mode)
    for _ in range(2):
        one_step(parts)
    assert parts.engine.steps == 2
