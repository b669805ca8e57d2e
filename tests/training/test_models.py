"""Models that mix the records of a batch are refused, with the way out."""

import pytest
import torch
from opacus.validators import ModuleValidator
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.errors import TicketError
from dosimeter.training import PrivateEngine, models
from dosimeter.training.onepass import OnePassModule


def images(count=40):
    return TensorDataset(torch.randn(count, 1, 6, 6), torch.randint(0, 2, (count,)))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )


def test_batch_norm_is_refused_with_the_way_out(build):
    with pytest.raises(ValueError, match="fix=True"):
        build(dataset=images(), model=network(), batch_size=8)


def test_batch_norm_without_parameters_is_refused_too(build):
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="must not mix the records"):
        build(model=model)


def test_frozen_batch_norm_in_training_mode_is_refused(build):
    model = network()
    model[1].requires_grad_(False)
    with pytest.raises(ValueError, match="must not mix the records"):
        build(dataset=images(), model=model, batch_size=8)


def test_fix_converts_in_place_and_the_optimizer_still_fits(build, train):
    model = network()
    scale = model[1].weight
    parts = build(dataset=images(), model=model, batch_size=8, fix=True)
    assert isinstance(model[1], nn.GroupNorm)
    assert model[1].weight is scale
    before = scale.detach().clone()
    train(parts)
    assert not torch.equal(before, scale)


LAYERS = [nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (4, 4), (33, 1), (48, 16), (128, 32)])
def test_fix_makes_the_groups_that_opacus_makes(kind, channels, groups):
    model = nn.Sequential(nn.Linear(1, 1), kind(channels), kind(channels, affine=False))
    theirs = [ModuleValidator.FIXERS[kind](layer) for layer in model[1:]]
    models.validate(model, torch.optim.SGD(model.parameters(), lr=0.1), fix=True)
    for ours, other in zip(model[1:], theirs, strict=True):
        assert type(ours) is type(other) is nn.GroupNorm
        assert ours.num_groups == other.num_groups == groups
        assert (ours.num_channels, ours.eps) == (other.num_channels, other.eps)
        assert ours.affine == other.affine == (ours.weight is not None) == (ours.bias is not None)


@pytest.mark.parametrize("channels", [2, 16, 32, 48])
def test_fix_keeps_what_vectors_say(channels):
    """In groups of one channel each value would become zero, and all records alike."""
    model = nn.Sequential(nn.Linear(3, channels), nn.BatchNorm1d(channels))
    models.validate(model, torch.optim.SGD(model.parameters(), lr=0.1), fix=True)
    out = model[1](torch.randn(50, channels))
    assert model[1].num_groups == 1
    assert len(out.detach().round(decimals=4).unique(dim=0)) > (40 if channels > 2 else 1)


def test_fix_converts_a_layer_under_two_names_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.second = nn.BatchNorm2d(4)
            self.inner = nn.Sequential(self.first)

    model = Twice()
    models.validate(model, torch.optim.SGD(model.parameters(), lr=0.1), fix=True)
    assert isinstance(model.first, nn.GroupNorm)
    assert model.first is model.second is model.inner[0]


def test_fix_converts_in_nested_layers_and_leaves_frozen_ones(build, train):
    frozen = nn.BatchNorm2d(4).requires_grad_(False).eval()
    block = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(nn.BatchNorm2d(4), frozen))
    model = nn.Sequential(block, nn.Flatten(), nn.Linear(64, 2))
    parts = build(dataset=images(), model=model, batch_size=8, fix=True)
    assert isinstance(model[0][1][0], nn.GroupNorm)
    assert model[0][1][1] is frozen
    train(parts)
    assert parts.engine.steps == 5


def test_fix_leaves_batch_norm_of_another_class_which_is_refused(build):
    class Active(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    model = nn.Sequential(nn.Conv2d(1, 4, 3), Active(4), nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(ValueError, match="must not mix the records of a batch, got Active"):
        build(dataset=images(), model=model, batch_size=8, fix=True)


def test_frozen_batch_norm_is_allowed_and_stays_frozen(build, train):
    model = network()
    model[1].requires_grad_(False).eval()
    parts = build(dataset=images(), model=model, batch_size=8)
    before = {name: value.clone() for name, value in model[1].state_dict().items()}
    parts.model.train()  # reaches the frozen layer as well
    train(parts, epochs=2)
    assert all(torch.equal(before[name], value) for name, value in model[1].state_dict().items())
    assert parts.engine.steps == 10


class Remembers(nn.Module):
    """A layer without parameters that keeps a mean of what it saw."""

    def __init__(self, *, in_place):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.in_place = in_place

    def forward(self, x):
        mean = 0.9 * self.mean + 0.1 * x.mean(dim=0).detach()
        if self.in_place:
            self.mean.copy_(mean)
        else:
            self.mean = mean
        return x


@pytest.mark.parametrize("in_place", [True, False])
def test_a_buffer_that_learns_from_raw_data_is_refused(build, train, snapshot, in_place):
    parts = build(model=nn.Sequential(Remembers(in_place=in_place), nn.Linear(6, 2)))
    before = snapshot(parts)[0]
    with pytest.raises(TicketError, match="raw data"):
        train(parts)
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(parts)[0], strict=True))


@pytest.mark.parametrize("write", [lambda p: p.add_(1.0), lambda p: p.data.add_(1.0)])
@pytest.mark.parametrize(
    ("tested", "words"), [(True, "must not mix the records"), (False, "raw data")]
)
def test_a_frozen_weight_that_is_written_to_is_refused(
    build, train, monkeypatch, write, tested, words
):
    """The self-test sees it first; on a batch without one the comparison of weights does."""
    monkeypatch.setattr(OnePassModule, "_due", lambda _: tested)
    frozen = nn.Linear(6, 6).requires_grad_(False)
    frozen.register_forward_pre_hook(lambda *_: (write(frozen.weight), None)[1])
    with pytest.raises(TicketError, match=words):
        train(build(model=nn.Sequential(frozen, nn.Linear(6, 2))))


def test_constant_buffers_and_loaded_weights_are_fine(build, train):
    layer = Remembers(in_place=True)
    layer.forward = lambda x: x + layer.mean
    parts = build(model=nn.Sequential(layer, nn.Linear(6, 2)))
    train(parts)
    parts.base.load_state_dict({k: v.clone() for k, v in parts.base.state_dict().items()})
    train(parts)
    assert parts.engine.steps == 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_are_refused(build, classifier, dtype):
    with pytest.raises(ValueError, match=r"model\.float\(\)"):
        build(model=classifier().to(dtype))


def test_compiled_layers_are_refused(build, classifier):
    model = classifier()
    model[0]._compiled_call_impl = model[0]._call_impl  # as compile() leaves it, seconds later
    with pytest.raises(ValueError, match="must not be compiled, got '0'"):
        build(model=model)


def test_eval_mode_is_refused(build, classifier):
    with pytest.raises(ValueError, match=r"model\.train"):
        build(model=classifier().eval())


def test_no_trainable_parameter(build, classifier):
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.requires_grad_(False)
    engine = PrivateEngine(dm.Odometer(delta=1e-6))
    with pytest.raises(ValueError, match="requires a gradient"):
        engine.make_private(
            model, optimizer, images(), noise_multiplier=1.0, max_grad_norm=1.0, batch_size=4
        )


def test_the_optimizer_must_hold_the_models_parameters(classifier, points):
    model = classifier()
    engine = PrivateEngine(dm.Odometer(delta=1e-6))
    for optimizer in (
        torch.optim.SGD(classifier().parameters(), lr=0.1),
        torch.optim.SGD(model[0].parameters(), lr=0.1),
    ):
        with pytest.raises(ValueError, match="exactly the trainable parameters"):
            engine.make_private(
                model, optimizer, points(), noise_multiplier=1.0, max_grad_norm=1.0, batch_size=4
            )


def test_training_the_last_layer_only(build, train, classifier, points):
    model = classifier()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    parts = build(model=model)
    train(parts)
    assert torch.equal(before, model[0].weight)
    assert parts.engine.steps == 5
