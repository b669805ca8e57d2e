"""Records that touch each other are refused on the first batch, and the layer is named."""

import pytest
import torch
from opacus.layers import DPGRU, DPLSTM, DPMultiheadAttention
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset

from dosimeter.errors import TicketError
from dosimeter.training.onepass import rules
from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.rules import convolution


def step(parts, loss_fn=functional.cross_entropy, change=lambda x: x):
    x, y = next(iter(parts.loader))
    parts.optimizer.zero_grad()
    loss_fn(parts.model(change(x)), y).backward()
    parts.optimizer.step()
    return parts


def some_steps(make):
    """The first batch of a few engines: its records may happen to be in order once."""
    for _ in range(12):
        step(make())


class Centred(nn.Module):
    def __init__(self, *, gradient):
        super().__init__()
        self.gradient = gradient

    def forward(self, x):
        mean = x.mean(dim=0)
        return x - (mean if self.gradient else mean.detach())


class Shuffled(nn.Module):
    """Works on the records in another order, and puts them back."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        order = x[:, 0].argsort()
        return self.last(self.inner(x[order])[order.argsort()])


class Looking(nn.Module):
    """Each record attends to the others."""

    def __init__(self):
        super().__init__()
        self.query, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(functional.softmax(self.query(x) @ x.T, dim=1) @ x)


@pytest.mark.parametrize("gradient", [True, False])
def test_a_layer_that_mixes_records_is_named(build, gradient):
    parts = build(model=nn.Sequential(nn.Linear(6, 4), Centred(gradient=gradient), nn.Linear(4, 2)))
    with pytest.raises(TicketError, match=r"must not mix the records.*'1'"):
        step(parts)
    assert parts.engine.steps == 0


def test_records_that_attend_to_each_other(build):
    with pytest.raises(TicketError, match="must not mix the records"):
        step(build(model=Looking()))


def test_records_in_another_order_inside(build):
    with pytest.raises(TicketError, match=r"autograd's own.*inner\.weight"):
        some_steps(lambda: build(model=Shuffled()))


def test_dropout_is_no_mixing(build):
    model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 2))
    parts = build(model=model)
    state = torch.get_rng_state()
    assert step(step(parts)).engine.steps == 2
    # What the test drew is given back: two masks of the loop, no more.
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    assert not torch.equal(state, after)


def penalty(parts):
    return sum(p.square().sum() for p in parts.base.parameters())


def test_a_penalty_is_refused_and_named(build):
    parts = build()
    with pytest.raises(TicketError, match=r"'_module\.0\.weight'.*weight_decay"):
        step(parts, lambda out, y: functional.cross_entropy(out, y) + 1e-9 * penalty(parts))


def test_a_weight_used_in_the_loss(build):
    parts = build()
    with pytest.raises(TicketError, match="in the loss"):
        step(parts, lambda out, y: functional.cross_entropy(out @ parts.base[2].weight, y))


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_labels_that_broadcast(build, points):
    data = TensorDataset(points().tensors[0], torch.randn(200))
    parts = build(dataset=data, model=nn.Linear(6, 1))
    with pytest.raises(TicketError, match=r"\(B, 1\) and \(B,\)"):
        step(parts, functional.mse_loss)
    safe = build(dataset=data, model=nn.Linear(6, 1))
    assert step(safe, safe.engine.private_loss(nn.MSELoss())).engine.steps == 1


def test_a_mean_over_labels_that_count(build, points):
    x, y = points().tensors
    labels = y.clone()
    labels[::2] = -100
    parts = build(dataset=TensorDataset(x, labels))
    with pytest.raises(TicketError, match="private_loss"):
        step(parts)
    safe = build(dataset=TensorDataset(x, labels))
    assert step(safe, safe.engine.private_loss(nn.CrossEntropyLoss())).engine.steps == 1


def test_class_weights_with_a_mean(build):
    weight = torch.tensor([1.0, 30.0])
    with pytest.raises(TicketError, match="must not depend on the other records"):
        step(build(), lambda out, y: functional.cross_entropy(out, y, weight=weight))
    parts = build(loss_reduction="sum")
    loss = nn.CrossEntropyLoss(weight=weight, reduction="sum")
    assert step(parts, loss).engine.steps == 1


def test_a_loss_between_records(build):
    def contrast(out, _):
        return functional.softmax(out @ out.T, dim=1).diagonal().log().neg().mean()

    with pytest.raises(TicketError, match="a loss between records"):
        step(build(), contrast)


@pytest.mark.parametrize(
    "loss_fn",
    [
        functional.cross_entropy,
        lambda out, y: nn.NLLLoss()(functional.log_softmax(out, dim=1), y),
        lambda out, y: functional.cross_entropy(out / 2.0, y) * 0.5 + out.square().mean(),
        lambda out, y: (out[:, 0] - y).abs().mean(),
        lambda out, y: functional.binary_cross_entropy_with_logits(out[:, 0], y.float()),
    ],
)
def test_healthy_losses_pass(build, loss_fn):
    assert step(step(build(), loss_fn), loss_fn).engine.steps == 2


@pytest.fixture
def pictures():
    return TensorDataset(torch.randn(200, 1, 4, 4), torch.randint(0, 2, (200,)))


@pytest.fixture
def reader():
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def mixup(x):
    return 0.7 * x + 0.3 * x[torch.randperm(len(x))]


def cutmix(x):
    mixed = x.clone()
    mixed[:, :, :2, :] = x.roll(1, dims=0)[:, :, :2, :]
    return mixed


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_mixed_inputs(build, pictures, reader, mix):
    with pytest.raises(TicketError, match="come from one record"):
        step(build(dataset=pictures, model=reader()), change=mix)


@pytest.mark.parametrize(
    "augment",
    [
        lambda x: x.flip(-1),
        lambda x: 1.3 * x + 0.1,
        lambda x: x + 0.1 * torch.randn_like(x),
        lambda x: x * (torch.rand_like(x) > 0.3),
        lambda x: x.roll(1, dims=-1),
    ],
)
def test_augmenting_each_record_is_fine(build, pictures, reader, augment):
    assert step(build(dataset=pictures, model=reader()), change=augment).engine.steps == 1


class Packed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(3, 2)

    def forward(self, x):
        lengths = 1 + (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        packed = pack_padded_sequence(
            x.view(len(x), 3, 2), lengths, batch_first=True, enforce_sorted=False
        )
        out, last = self.layer(packed)
        out = pad_packed_sequence(out, batch_first=True)[0]
        return self.head(out.sum(1) + last[0][-1])


def test_packed_sequences(build):
    assert step(build(model=Packed(nn.LSTM(2, 3, batch_first=True)))).engine.steps == 1


@pytest.mark.parametrize("kind", [DPLSTM, type("Own", (DPGRU,), {})])
def test_opacus_cells_on_packed_sequences_are_refused(build, kind):
    parts = build(model=Packed(kind(2, 3, batch_first=True)))
    with pytest.raises(ValueError, match=r"must not get packed.*torch\.nn\.LSTM"):
        step(parts)
    assert parts.engine.steps == 0


def test_opacus_cells_are_trained_on_whole_sequences(build):
    """Their gradients are compared with Opacus' own in test_opacus.py."""
    cells = nn.Sequential(nn.Unflatten(1, (3, 2)), DPLSTM(2, 3, batch_first=True))

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = cells, nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.cells(x)[0][:, -1])

    assert step(build(model=Whole())).engine.steps == 1


def test_opacus_attention_with_records_in_the_second_dimension_is_refused(build):
    class Attentive(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = DPMultiheadAttention(2, 1), nn.Linear(2, 2)

        def forward(self, x):
            steps = x.view(len(x), 3, 2).transpose(0, 1)
            return self.head(self.layer(steps, steps, steps)[0].mean(0))

    with pytest.raises(TicketError, match="in the first dimension"):
        step(build(model=Attentive()))


# -- the self-test itself: each defect, put in by hand, is caught -----------------------------


def convolutional():
    circular = nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular")
    return nn.Sequential(circular, nn.Tanh(), nn.Flatten(), nn.Linear(48, 2))


def no_norm_of_biases(monkeypatch):
    from dosimeter.training.onepass.use import Use

    add = Use.add_linear
    monkeypatch.setattr(
        Use, "add_linear", lambda s, x, g: add(Use(s.book, s.weight, None, s.steps_first), x, g)
    )


def second_use_instead_of_the_sum(monkeypatch):
    monkeypatch.setattr(Book, "add", lambda s, target, entry: s._entries.update({target: entry}))


def no_factor_on_biases(monkeypatch):
    from dosimeter.training.onepass.entries import Rows

    monkeypatch.setattr(Rows, "sum", lambda s, factors: s._rows.sum(0))


def padding_forgotten(monkeypatch):
    entry = convolution._entry

    def wrong(x, g, weight, options):
        return entry(x.roll(1, dims=-1), g, weight, options)

    monkeypatch.setattr(convolution, "_entry", wrong)


def norms_halved(monkeypatch):
    norms = Book.norms
    monkeypatch.setattr(Book, "norms", lambda s: 0.5 * norms(s))


def tied():
    first = nn.Linear(16, 16)
    second = nn.Linear(16, 16)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Linear(16, 2))


@pytest.mark.parametrize(
    ("model", "defect"),
    [
        (convolutional, no_norm_of_biases),
        (convolutional, no_factor_on_biases),
        (convolutional, padding_forgotten),
        (convolutional, norms_halved),
        (tied, second_use_instead_of_the_sum),
    ],
)
def test_defects_put_in_by_hand_are_seen(build, pictures, monkeypatch, model, defect):
    assert step(build(dataset=pictures, model=model())).engine.steps == 1
    defect(monkeypatch)
    with pytest.raises(TicketError, match="autograd's own"):
        step(build(dataset=pictures, model=model()))


def test_a_packed_order_that_is_not_undone_is_seen(build, monkeypatch):
    recur = rules.recurrent._Packed

    class Unsorted(recur):
        def __init__(self, data, sizes, order):
            super().__init__(data, sizes, None)

    monkeypatch.setattr(rules.recurrent, "_Packed", Unsorted)
    with pytest.raises(TicketError):
        some_steps(lambda: build(model=Packed(nn.LSTM(2, 3, batch_first=True))))
