"""Models suit their inputs, or say so before any budget is touched."""

import math

import pytest
import torch
from opacus.validators import ModuleValidator
from torch.utils.data import TensorDataset

from dosimeter.runs.config import ModelTable
from dosimeter.runs.datasets import Records
from dosimeter.runs.networks import build, linear, mlp, small_cnn

MODULE = """
from torch import nn

def good(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

def narrow(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes + 1))

def features(shape):
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten())

class Mean(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0)

class OwnMean(Mean):
    def forward(self, x):
        return super().forward(x) if self.training else x

class Collapse(nn.Module):
    def forward(self, x):
        return x.mean(dim=0, keepdim=True)

def mixing(shape, classes):
    return nn.Sequential(nn.Flatten(), OwnMean(), nn.Linear(192, classes))

def running(shape, classes):
    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, classes))

def frozen(shape, classes):
    made = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(), nn.Linear(192, classes))
    made[0].requires_grad_(False).eval()
    return made

def mean(shape):
    return nn.Sequential(nn.Flatten(), Mean())

def collapse(shape):
    return nn.Sequential(nn.Flatten(), Collapse())

def batch_norm(shape):
    return nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten())

def nothing(shape, classes):
    return None

def broken(shape, classes):
    raise KeyError("sizes")
"""


def records(shape, classes=3):
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    return Records(TensorDataset(x, torch.zeros(5).long()), None, tuple("abcdef"[:classes]))


@pytest.fixture
def _user_module(tmp_path, monkeypatch):
    (tmp_path / "nets_of_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (ModelTable(kind="linear"), (4,)),
        (ModelTable(kind="linear"), (3, 8, 8)),
        (ModelTable(kind="mlp", hidden=7), (4,)),
        (ModelTable(kind="cnn"), (1, 8, 8)),
        (ModelTable(kind="features", extractor="random"), (4,)),
        (ModelTable(kind="features", extractor="random"), (3, 8, 8)),
    ],
)
def test_each_model_gives_a_score_for_each_class(model, shape):
    data = records(shape)
    network = build(model, data)
    prepared = network.prepared(data.private)
    assert network.trained(prepared.tensors[0]).shape == (5, 3)
    assert network.whole(data.private.tensors[0]).shape == (5, 3)
    assert network.trained.training


@pytest.mark.usefixtures("_user_module")
def test_a_factory_of_the_user_is_called_with_shape_and_classes():
    data = records((3, 8, 8))
    made = build(ModelTable(kind="nets_of_mine:good"), data)
    assert made.trained[1].in_features == 192
    frozen = build(ModelTable(kind="features", extractor="nets_of_mine:features"), data)
    assert frozen.prepared(data.private).tensors[0].shape == (5, 12)
    assert frozen.trained[1].in_features == 12


@pytest.mark.usefixtures("_user_module")
def test_trying_a_model_leaves_it_as_it_was_made():
    made = build(ModelTable(kind="nets_of_mine:frozen"), records((3, 8, 8))).trained
    assert [layer.training for layer in made] == [False, True, True, True]
    assert made[0].running_mean.tolist() == [0, 0, 0]


def test_random_features_are_the_same_in_every_process_and_approximate_a_kernel():
    first, second = (
        build(ModelTable(kind="features", extractor="random"), records((4,))) for _ in "ab"
    )
    torch.testing.assert_close(first.frozen.directions, second.frozen.directions, rtol=0, atol=0)
    x = torch.tensor([[1.0, 0, 0, 0], [1.0, 1.0, 0, 0]])
    features = first.frozen(x)
    distance = (2 * torch.nn.functional.normalize(x, dim=1)).diff(dim=0).norm().item()
    # 512 cosines: a deviation of at most 1/sqrt(512), and five of them.
    expected = math.exp(-(distance**2) / 2)
    assert abs((features[0] @ features[1]).item() - expected) < 5 / math.sqrt(512)


@pytest.mark.usefixtures("_user_module")
@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        ({"kind": "cnn"}, (4,), r"model.kind must suit inputs of shape \(4,\), got 'cnn'"),
        ({"kind": "cnn"}, (3, 4, 4), "8×8 and up"),
        ({"kind": "nets_of_mine:narrow"}, (3, 8, 8), "one score for each of the 3 classes"),
        ({"kind": "nets_of_mine:narrow"}, (3, 9, 9), r"take inputs of shape \(3, 9, 9\)"),
        ({"kind": "nets_of_mine:nothing"}, (3, 8, 8), "factory of a torch.nn.Module, got None"),
        ({"kind": "nets_of_mine:broken"}, (3, 8, 8), "failed with KeyError: 'sizes'"),
        ({"kind": "nets_of_mine:absent"}, (3, 8, 8), "AttributeError"),
        ({"kind": "no_such_module:make"}, (3, 8, 8), "ModuleNotFoundError"),
        ({"kind": "features", "extractor": "nets_of_mine:broken"}, (3, 8, 8), "model.extractor"),
        ({"kind": "nets_of_mine:mixing"}, (3, 8, 8), "model.kind must treat each record by"),
        ({"kind": "nets_of_mine:running"}, (3, 8, 8), "model.kind must treat each record by"),
        *(
            (
                {"kind": "features", "extractor": f"nets_of_mine:{name}"},
                (3, 8, 8),
                "model.extractor must treat each record by itself",
            )
            for name in ("mean", "collapse", "batch_norm")
        ),
    ],
)
def test_a_model_that_does_not_suit_is_refused(model, shape, said):
    with pytest.raises(ValueError, match=said):
        build(ModelTable(**model), records(shape))


@pytest.mark.parametrize(
    "model",
    [
        linear(3 * 32 * 32, 10),
        mlp(3 * 32 * 32, 10),
        small_cnn(3, 10),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scores_do_not_depend_on_the_other_records(model):
    x = torch.randn(5, 3, 32, 32)
    scores = model(x)
    assert scores.shape == (5, 10)
    torch.testing.assert_close(model(x[2:3]), scores[2:3], atol=1e-5, rtol=1e-4)
    assert ModuleValidator.is_valid(model)
