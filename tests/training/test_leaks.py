"""Ways in which raw data once got past the clipping and the noise; each is refused."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.errors import TicketError
from dosimeter.training import CorrectCount, PrivateEngine, fit


def private(model, inputs=None, gate=None):
    x = torch.randn(40, 3) if inputs is None else inputs
    engine = PrivateEngine(gate or dm.Odometer(1e-6))
    parts = engine.make_private(
        model,
        torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1),
        TensorDataset(x, torch.zeros(len(x)).long()),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        batch_size=20,
    )
    return engine, *parts


class Keeps(nn.Module):
    """A model that writes the mean of a batch where nobody looks."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.linear = nn.Linear(3, 2)
        self.register_buffer("mean", torch.zeros(3))
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x):
        kept = self.mean if self.where == "buffer" else self.frozen
        kept.data.copy_(x.mean(0))
        return self.linear(x)


@pytest.mark.parametrize("where", ["buffer", "frozen parameter"])
def test_writes_through_data_are_noticed(where):
    _, model, optimizer, loader = private(Keeps(where))
    x, y = next(iter(loader))
    cross_entropy(model(x), y).backward()
    with pytest.raises(TicketError, match="must not write to its buffers or parameters"):
        optimizer.step()


def test_freezing_between_backward_and_step_is_refused():
    bare = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    _, model, optimizer, loader = private(bare)
    before = bare[0].weight.detach().clone()
    x, y = next(iter(loader))
    cross_entropy(model(x), y).backward()
    bare[0].requires_grad_(False)
    with pytest.raises(TicketError, match="frozen and its trainable parameters"):
        optimizer.step()
    assert torch.equal(bare[0].weight, before)


def test_embeddings_that_renormalise_are_refused():
    model = nn.Sequential(nn.Embedding(5, 4, max_norm=1.0), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="must not renormalise the rows"):
        private(model, torch.zeros(40, 1).long())


def test_batch_norm_without_averages_is_not_frozen():
    norm = nn.BatchNorm1d(3, affine=False, track_running_stats=False).eval()
    with pytest.raises(ValueError, match="must not mix the records"):
        private(nn.Sequential(norm, nn.Linear(3, 2)))


@pytest.mark.parametrize("shape", [(40, 1), (40, 5)])
def test_a_count_takes_one_label_per_record(shape):
    data = TensorDataset(torch.randn(40, 3), torch.zeros(shape).long())
    with pytest.raises(ValueError, match="labels must be one class index per record"):
        CorrectCount(noise_multiplier=10).read(nn.Linear(3, 2), data, gate=dm.Odometer(1e-6))


def test_class_weights_that_rescale_a_batch_are_refused():
    data = TensorDataset(torch.randn(40, 3), torch.zeros(40).long())
    with pytest.raises(ValueError, match="must not divide by the weights of a batch"):
        fit(
            nn.Linear(3, 2),
            data,
            dm.Odometer(1e-6),
            epochs=1,
            noise_multiplier=1.0,
            batch_size=20,
            max_grad_norm=1.0,
            loss_fn=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0])),
            progress=False,
        )


def test_an_equal_gate_is_not_taken_for_the_same_spends():
    def one_epoch():
        engine, model, optimizer, loader = private(nn.Linear(3, 2))
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        return engine

    first, second = one_epoch(), one_epoch()
    before = second.epsilon
    second.load_state_dict(first.state_dict())
    assert second.epsilon > before


def test_fit_saves_before_it_tells(tmp_path):
    """What a callback publishes must be charged again after a crash: it is in the checkpoint."""
    saved = tmp_path / "run.pt"
    data = TensorDataset(torch.randn(40, 3), torch.zeros(40).long())

    def publish(*_):
        assert saved.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(
            nn.Linear(3, 2),
            data,
            dm.Odometer(1e-6),
            epochs=2,
            noise_multiplier=1.0,
            batch_size=20,
            max_grad_norm=1.0,
            callbacks=[publish],
            checkpoint=saved,
            progress=False,
        )
    assert saved.exists()
