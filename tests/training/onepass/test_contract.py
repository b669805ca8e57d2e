"""Every layer, shape and precision against brute force: one record at a time, in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

RECORDS = 5


class Lambda(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            if isinstance(module, nn.Parameter):
                self.register_parameter(name, module)
            else:
                self.add_module(name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def tokens(*shape):
    return torch.randint(0, 7, shape)


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape))


def recurrent(kind, **options):
    return Lambda(lambda s, x: s.rnn(x)[0], rnn=kind(3, 4, batch_first=True, **options))


def steps_first(kind, **options):
    return Lambda(
        lambda s, x: s.rnn(x.transpose(0, 1))[0].transpose(0, 1), rnn=kind(3, 4, **options)
    )


def packed(kind, **options):
    def forward(s, x, lengths):
        sequence = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = s.rnn(sequence)
        last = last[0] if isinstance(last, tuple) else last
        padded = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]
        return torch.cat([padded.flatten(1), last.transpose(0, 1).flatten(1)], dim=1)

    return Lambda(forward, rnn=kind(3, 4, batch_first=True, **options))


def attention(**options):
    layer = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    return Lambda(lambda s, x: s.layer(x, x, x)[0], layer=layer)


def cross_attention():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, kdim=3, vdim=3)
    return Lambda(lambda s, x, y: s.layer(x, y, y)[0], layer=layer)


def shared_memory():
    layer = nn.MultiheadAttention(8, 2)
    return Lambda(
        lambda s, x, y: s.layer(x.transpose(0, 1), y.transpose(0, 1), y.transpose(0, 1))[0]
        .transpose(0, 1), layer=layer,
    )  # fmt: skip


def tied():
    return Lambda(
        lambda s, x: functional.linear(s.embedding(x).mean(1), s.embedding.weight),
        embedding=nn.Embedding(7, 4),
    )


def tied_layers():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


def behind_its_back():
    """Use the weight of a layer outside of the layer too."""
    return Lambda(
        lambda s, x: functional.linear(s.first(x).tanh() @ s.first.weight, s.first.weight),
        first=nn.Linear(6, 2, bias=False),
    )


def pictures_from_files():
    """Take channels last, a layout that convolutions keep in memory."""

    def forward(s, x):
        hidden = s.second(s.first(x.permute(0, 3, 1, 2)).relu())
        return s.head(hidden.mean((2, 3)))

    return Lambda(
        forward, first=nn.Conv2d(3, 8, 3, padding=1), second=nn.Conv2d(8, 8, 3, padding=1),
        head=nn.Linear(8, 2),
    )  # fmt: skip


def class_token():
    def forward(s, x):
        x = torch.cat([s.token.expand(len(x), -1, -1), s.embed(x)], dim=1)
        return s.head((x + s.positions)[:, 0] * s.scale)

    return Lambda(
        forward, token=parameter(1, 1, 4), positions=parameter(1, 4, 4), scale=parameter(4),
        embed=nn.Linear(3, 4), head=nn.Linear(4, 2),
    )  # fmt: skip


def positions():
    def forward(s, x):
        return s.head(s.embed(x) + s.place(torch.arange(x.shape[1])))

    return Lambda(forward, embed=nn.Embedding(7, 4), place=nn.Embedding(9, 4), head=nn.Linear(4, 2))


def position_rows():
    def forward(s, x):
        places = torch.arange(x.shape[1]).expand(x.shape)
        return s.head(s.embed(x) + s.place(places))

    return Lambda(forward, embed=nn.Embedding(7, 4), place=nn.Embedding(9, 4), head=nn.Linear(4, 2))


def lora():
    base = nn.Linear(6, 5).requires_grad_(False)
    return Lambda(
        lambda s, x: s.base(x) + s.up(s.down(x)),
        base=base, down=nn.Linear(6, 2, bias=False), up=nn.Linear(2, 5, bias=False),
    )  # fmt: skip


def merged():
    base = nn.Linear(6, 5).requires_grad_(False)
    return Lambda(
        lambda s, x: functional.linear(x, s.base.weight + s.up @ s.down, s.base.bias),
        base=base, down=parameter(2, 6), up=parameter(5, 2),
    )  # fmt: skip


def cells():
    def forward(s, x):
        h = torch.zeros(len(x), 4, dtype=x.dtype)
        for step in range(x.shape[1]):
            h = s.cell(x[:, step], h)
        return h

    return Lambda(forward, cell=nn.GRUCell(3, 4))


def bias_only():
    layer = nn.Linear(6, 5)
    layer.weight.requires_grad_(False)
    return layer


def image(*shape):
    return lambda: (torch.randn(RECORDS, *shape),)


def words(*shape):
    return lambda: (tokens(RECORDS, *shape),)


def sequences():
    return torch.randn(RECORDS, 6, 3), torch.tensor([3, 6, 1, 5, 6])


CASES = {
    "linear": (lambda: nn.Linear(6, 5), image(6)),
    "linear without bias": (lambda: nn.Linear(6, 5, bias=False), image(6)),
    "bias only": (bias_only, image(6)),
    "linear, short sequence": (lambda: nn.Linear(40, 30), image(3, 40)),
    "linear, long sequence": (lambda: nn.Linear(4, 3), image(20, 4)),
    "linear, two sequence dimensions": (lambda: nn.Linear(4, 3), image(3, 5, 4)),
    "linear, sequence of one": (lambda: nn.Linear(4, 3), image(1, 4)),
    "linear layers on a sequence and a vector": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (3, 2)), nn.Linear(2, 4), nn.Flatten(), nn.Linear(12, 2)
        ),
        image(6),
    ),
    "linear, thousands of features": (lambda: nn.Linear(3000, 2), image(3000)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), image(3, 90)),
    "conv1d, few places": (
        lambda: nn.Conv1d(3, 4, 3, stride=2, padding=3, dilation=2), image(3, 9),
    ),
    **{
        f"conv1d, {mode}": (
            lambda mode=mode: nn.Conv1d(1, 2, 3, padding=1, padding_mode=mode), image(1, 6),
        )
        for mode in ("circular", "reflect", "replicate")
    },
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), image(3, 12, 12)),
    "conv2d, few places": (lambda: nn.Conv2d(3, 4, 3), image(3, 6, 6)),
    "conv2d, few places, no side like the other": (
        lambda: nn.Conv2d(3, 4, (2, 4), stride=(3, 1), padding=(0, 2), dilation=(1, 2)),
        image(3, 11, 7),
    ),
    "conv2d, few places, channels last": (
        lambda: nn.Conv2d(5, 4, 3, padding=1),
        lambda: (torch.randn(RECORDS, 6, 7, 5).permute(0, 3, 1, 2),),
    ),
    "conv2d, few places, wide": (lambda: nn.Conv2d(40, 30, 3, padding=1), image(40, 2, 2)),
    "conv2d, few places, used twice": (
        lambda: (lambda one: nn.Sequential(one, nn.Tanh(), one))(nn.Conv2d(4, 4, 3, padding=1)),
        image(4, 5, 5),
    ),
    "conv2d, one by one": (lambda: nn.Conv2d(3, 4, 1), image(3, 6, 6)),
    "conv2d, stride": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=2), image(3, 17, 15)),
    "conv2d, one by one with a stride": (lambda: nn.Conv2d(3, 4, 1, stride=2), image(3, 6, 6)),
    "conv2d, dilation": (lambda: nn.Conv2d(3, 4, 3, dilation=2), image(3, 13, 12)),
    "conv2d, groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), image(4, 6, 6)),
    "conv2d, depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), image(4, 12, 12)),
    "conv2d, same": (lambda: nn.Conv2d(3, 4, 4, padding="same"), image(3, 12, 12)),
    "conv2d, valid": (lambda: nn.Conv2d(3, 4, 4, padding="valid"), image(3, 12, 12)),
    **{
        f"conv2d, {mode}": (
            lambda mode=mode: nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), image(3, 6, 6),
        )
        for mode in ("circular", "reflect", "replicate")
    },
    "conv2d, channels last": (
        lambda: nn.Conv2d(3, 4, 3), lambda: (torch.randn(RECORDS, 12, 12, 3).permute(0, 3, 1, 2),),
    ),
    "conv2d, channels last through two layers": (pictures_from_files, image(6, 6, 3)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, padding=(1, 0, 1)), image(2, 5, 4, 5)),
    "conv3d, few places": (
        lambda: nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 2), dilation=(1, 1, 2)),
        image(2, 3, 4, 3),
    ),
    "transposed conv": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), image(3, 4, 4)),
    "embedding": (lambda: nn.Embedding(7, 4), words(6)),
    "embedding of one token": (lambda: nn.Embedding(7, 4), words()),
    "embedding with padding": (lambda: nn.Embedding(7, 4, padding_idx=2), words(6)),
    "layer norm": (lambda: nn.LayerNorm(6), image(6)),
    "layer norm on a sequence": (lambda: nn.LayerNorm(6), image(3, 6)),
    "layer norm over two dimensions": (lambda: nn.LayerNorm((3, 6)), image(2, 3, 6)),
    "layer norm without bias": (lambda: nn.LayerNorm(6, bias=False), image(3, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 4), image(4, 3, 3)),
    "group norm on vectors": (lambda: nn.GroupNorm(2, 4), image(4)),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), image(4, 3, 3)),
    "rms norm": (lambda: nn.RMSNorm(6), image(3, 6)),
    "attention": (attention, image(5, 8)),
    "attention without bias": (lambda: attention(bias=False), image(5, 8)),
    "attention to other widths": (
        cross_attention, lambda: (torch.randn(RECORDS, 4, 8), torch.randn(RECORDS, 6, 3)),
    ),
    "attention to another sequence": (
        shared_memory, lambda: (torch.randn(RECORDS, 4, 8), torch.randn(RECORDS, 6, 8)),
    ),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), image(5, 8),
    ),
    **{
        f"{kind.__name__}{name}": (lambda kind=kind, options=options: recurrent(kind, **options),
                                   image(6, 3))
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for name, options in {
            "": {}, ", two layers, both ways": {"num_layers": 2, "bidirectional": True},
            ", no bias": {"bias": False},
        }.items()
    },
    "RNN, rectified": (lambda: recurrent(nn.RNN, nonlinearity="relu"), image(6, 3)),
    "LSTM, steps first": (lambda: steps_first(nn.LSTM), image(6, 3)),
    **{
        f"{kind.__name__}, packed{name}": (
            lambda kind=kind, options=options: packed(kind, **options), sequences,
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for name, options in {
            "": {}, ", two layers, both ways": {"num_layers": 2, "bidirectional": True},
        }.items()
    },
    "recurrent cells": (cells, image(6, 3)),
    "prelu": (lambda: nn.PReLU(4), image(4, 3)),
    "bilinear": (
        lambda: nn.Bilinear(3, 4, 2), lambda: (torch.randn(RECORDS, 3), torch.randn(RECORDS, 4)),
    ),
    "weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), image(6),
    ),
    "tied embedding": (tied, words(6)),
    "a weight used outside of its layer": (behind_its_back, image(6)),
    "tied layers": (tied_layers, image(4)),
    "class token": (class_token, image(3, 3)),
    "positions without records": (positions, words(6)),
    "as many positions as records": (positions, words(RECORDS)),
    "positions for each record": (position_rows, words(6)),
    "lora": (lora, image(3, 6)),
    "lora, merged": (merged, image(3, 6)),
}  # fmt: skip


def output_weights(model, inputs):
    with torch.no_grad():
        return torch.randn_like(model(*inputs).float())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_clipped_sums_agree_with_brute_force(case, dtype, brute_force, one_pass):
    torch.manual_seed(5)
    make, draw = CASES[case]
    model = make().to(dtype)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in draw())
    weights = output_weights(model, inputs)
    rows = brute_force(model, inputs, weights)
    true = rows.norm(dim=1)
    # Half of the records are clipped, by very different factors.
    bound = float(true.median())
    sums, norms, left = one_pass(model, inputs, weights, bound)
    assert left == []
    # Norms are rounded up, by what rounding may have taken off and no more.
    assert (norms >= true).all()
    assert (norms <= true * (1 + 1e-4)).all()
    expected = (rows * (bound / norms).clamp(max=1.0).unsqueeze(1)).sum(0)
    assert float((sums - expected).norm()) <= 2e-6 * float(expected.norm())


@pytest.mark.parametrize("case", [
    "linear", "linear, short sequence", "linear, long sequence", "conv2d", "conv2d, few places",
    "conv2d, few places, wide", "conv2d, few places, used twice", "embedding", "layer norm",
    "attention", "LSTM", "tied layers",
])  # fmt: skip
def test_a_record_without_a_finite_gradient_adds_nothing(case, brute_force, one_pass):
    torch.manual_seed(6)
    make, draw = CASES[case]
    model, inputs = make(), draw()
    weights = output_weights(model, inputs)
    rows = brute_force(model, inputs, weights)[1:]
    bound = float(rows.norm(dim=1).median())
    weights[0] = float("nan")
    sums, norms, _ = one_pass(model, inputs, weights, bound)
    expected = (rows * (bound / norms[1:]).clamp(max=1.0).unsqueeze(1)).sum(0)
    assert float((sums - expected).norm()) <= 2e-6 * float(expected.norm())
