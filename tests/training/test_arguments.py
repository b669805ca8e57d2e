"""fit refuses arguments that cannot be, in words and before anything is charged or trained."""

import math
import types

import numpy as np
import pytest
import torch
from torch import nn

from dosimeter.training import AutoRate, fit

HOW = {"epsilon": 8.0, "delta": 1e-6, "epochs": 2, "batch_size": 40, "progress": False}


class Rule:
    """A rule for the rate with whatever rates a test wants, the last of them for ever."""

    momentum = 0.0

    def __init__(self, *rates):
        self.rates = list(rates)

    @property
    def rate(self):
        return self.rates[0]

    def begin(self, **told):
        pass

    def update(self, length):
        self.rates = self.rates[1:] or self.rates

    def state(self):
        return {}

    def restore(self, state):
        pass


def only(**members):
    """An object with some members of a rule."""
    return types.SimpleNamespace(**members)


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"epochs": 0}, ValueError, "epochs must be between 1 and"),
        ({"epochs": -1}, ValueError, "epochs must be between 1 and"),
        ({"epochs": 2.5}, TypeError, "epochs must be a whole number"),
        ({"epochs": lambda _: 0}, ValueError, "epochs must be between 1 and"),
        ({"batch_size": 0}, ValueError, "batch_size must be between 1 and"),
        ({"batch_size": 0.5}, TypeError, "batch_size must be a whole number"),
        ({"batch_size": lambda _: 2.5}, TypeError, "batch_size must be a whole number"),
        ({"epsilon": "three"}, TypeError, "epsilon must be a real number"),
        ({"epsilon": None, "delta": None, "gate": (8.0,)}, ValueError, "gate must be one, or "),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)}, TypeError,
         r"optimizer must be a function that makes one .*, got an object of SGD"),
        ({"optimizer": lambda p: list(p)}, TypeError, "got one that makes an object of list"),
        ({"learning_rate": "fast"}, ValueError, "learning_rate must be a number, a rule or 'auto'"),
        ({"learning_rate": AutoRate}, TypeError, r"got the class AutoRate; make one, .*AutoRate\("),
        ({"learning_rate": only(rate=0.1, begin=print)}, TypeError,
         "without momentum, update, state, restore"),
        ({"learning_rate": Rule(-0.1)}, ValueError, "learning_rate of Rule must be finite"),
        ({"learning_rate": Rule(math.nan)}, ValueError, "learning_rate of Rule must not be NaN"),
        ({"learning_rate": Rule("fast")}, TypeError, "learning_rate of Rule must be a real number"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be(points, classifier, changed, kind, words):
    model = classifier()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(kind, match=words):
        fit(model, points(), **{**HOW, **changed})
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        ("model", TypeError, "model must be a torch.nn.Module, got 'model'"),
        (nn.Linear, TypeError, "model must be a torch.nn.Module, got"),
        (nn.ReLU(), ValueError, "model must have a parameter that requires a gradient, got none"),
        (nn.Linear(6, 2).requires_grad_(False), ValueError, "got none; unfreeze one with"),
    ],
)
def test_models_that_cannot_be_trained(points, model, kind, words):
    with pytest.raises(kind, match=words):
        fit(model, points(), **HOW)


def test_whole_numbers_of_numpy_are_whole_numbers(points, classifier):
    whole = {"epochs": np.int64(2), "batch_size": np.int64(40)}
    history = fit(classifier(), points(), **{**HOW, **whole})
    assert (len(history), history[0].batch_size) == (2, 40)


def test_a_class_makes_an_optimizer(points, classifier):
    assert len(fit(classifier(), points(), optimizer=torch.optim.Adam, **HOW)) == 2


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (-0.1, "learning_rate of Rule must be finite and >= 0, got -0.1, after step 3"),
        (math.nan, "learning_rate of Rule must not be NaN, got nan, after step 3"),
        (math.inf, "learning_rate of Rule must be finite and >= 0, got inf, after step 3"),
        (None, "learning_rate of Rule must be a real number, got None, after step 3"),
    ],
)
def test_a_rule_that_gives_no_rate_any_more_ends_the_run(points, classifier, tmp_path, rate, words):
    model = classifier()
    history = fit(model, points(), learning_rate=Rule(0.1, 0.1, 0.1, rate), **HOW)
    assert history.ended == f"the {words}"
    assert history.steps == 3
    assert history[-1].learning_rate is None
    assert all(p.isfinite().all() for p in model.parameters())
    history.save(tmp_path / "history.json")
    assert type(history).load(tmp_path / "history.json") == history
