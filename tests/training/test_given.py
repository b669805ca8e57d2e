"""A DataLoader is taken for its dataset and batch size; nothing else is lost quietly."""

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import dosimeter as dm
from dosimeter.training import PrivateEngine, fit
from dosimeter.training.given import given


def test_its_dataset_batch_size_and_collate_function_are_used(points):
    data = points()
    found = given(DataLoader(data, batch_size=20, shuffle=True), None, None)
    assert found.dataset is data
    assert found.batch_size == 20
    assert found.collate is None  # the default is told apart, so that tensors are read at once
    assert given(DataLoader(data, batch_size=20, collate_fn=list), None, None).collate is list
    assert given(DataLoader(data, batch_size=20, collate_fn=list), 20, tuple).collate is tuple


def test_a_run_from_a_loader_is_charged_like_one_from_its_dataset(points, classifier):
    readings = []
    for data in (DataLoader(points(), batch_size=20, shuffle=True), points()):
        engine = PrivateEngine(dm.Odometer(delta=1e-6))
        model = classifier()
        model, optimizer, loader = engine.make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            data,
            noise_multiplier=2.0,
            max_grad_norm=1.0,
            batch_size=None if isinstance(data, DataLoader) else 20,
        )
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        readings.append((engine.steps, engine.epsilon))
    assert readings[0] == readings[1] == (10, readings[0][1])


def test_fit_takes_one_too(points, classifier):
    history = fit(
        classifier(),
        DataLoader(points(), batch_size=50),
        dm.Odometer(delta=1e-6),
        epochs=1,
        noise_multiplier=2.0,
        progress=False,
    )
    assert history.steps == 4


def test_what_is_ignored_is_named(points):
    loader = DataLoader(points(), batch_size=20, num_workers=2, drop_last=True)
    with pytest.warns(UserWarning, match="num_workers=2, drop_last=True of the DataLoader must"):
        given(loader, None, None)


@pytest.mark.parametrize(
    "chosen",
    [
        lambda data: {"sampler": SubsetRandomSampler(range(10))},
        lambda data: {"sampler": WeightedRandomSampler([1.0] * len(data), 10)},
        lambda data: {"sampler": RandomSampler(data, replacement=True)},
        lambda data: {"sampler": RandomSampler(data, num_samples=10)},
    ],
)
def test_a_choice_of_records_is_refused(points, chosen):
    data = points()
    with pytest.raises(ValueError, match="must have no sampler of its own"):
        given(DataLoader(data, batch_size=5, **chosen(data)), None, None)


def test_batches_of_ones_own_are_refused(points):
    class Mine(BatchSampler):
        pass

    data = points()
    batches = Mine(SequentialSampler(data), 5, False)
    for loader in (DataLoader(data, batch_sampler=batches), DataLoader(data, batch_size=None)):
        with pytest.raises(ValueError, match="must have no sampler of its own"):
            given(loader, None, None)


def test_a_stream_of_records_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(ValueError, match="must have no sampler of its own"):
        given(DataLoader(Stream(), batch_size=2), None, None)


def test_two_batch_sizes_are_refused(points):
    with pytest.raises(ValueError, match="left out or that of the DataLoader, 20, got 30"):
        given(DataLoader(points(), batch_size=20), 30, None)
    with pytest.raises(ValueError, match="batch_size must be given with a dataset"):
        given(points(), None, None)
