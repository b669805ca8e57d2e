"""The models that training gives, bit by bit, and what resumption charges.

Models are trained in double precision, and their parameters are hashed after rounding to single.
Processors disagree about the last bits of a double. The engine rounds gradients to a public grid
some 2**30 times as coarse, before whole numbers of noise join them, and so these bits hardly ever
show: the hashes are the same on all machines. Single precision is compared with double by value.
"""

import collections
import copy
import json
import os

import pytest
import torch
from torch import multiprocessing, nn
from torch.utils.data import TensorDataset

import dosimeter as dm
import goldens
from dosimeter.training import (
    AdaptBatch,
    AdaptNoise,
    CorrectCount,
    LowerNoise,
    MeanLoss,
    StopEarly,
    fit,
)
from golden.runs import CONVERTED, MODELS, STEPS, Run, data, digest, end_on_ranks

VARIANTS = {
    "pieces of 3": {"physical_batch_size": 3},
    "normalised": {"clipping": "normalised"},
    "50 public records": {"records": 50},
}

FITS = {
    "all chosen but the noise": {},
    "flat clipping, a rate, batches of 7": {
        "max_grad_norm": 0.5,
        "learning_rate": 0.5,
        "batch_size": 7,
    },
    "adaptive noise, a public signal": {
        "policy": AdaptNoise(0.5, every=1, horizon=1),
        "signal": CorrectCount(noise_multiplier=1.0, public=True),
    },
}

COUNT, LOSS = CorrectCount(noise_multiplier=1.0), MeanLoss(noise_multiplier=1.0)
LEVELS = AdaptNoise(0.5, every=1, horizon=2, levels=2)
SMALLER = AdaptBatch(2, minimum=4, every=1, horizon=2)

POLICIES = {
    "adaptive noise, a count": {"policy": LEVELS, "signal": COUNT},
    "adaptive noise, a loss": {"policy": LEVELS, "signal": LOSS},
    "adaptive noise, a small limit": {"policy": LEVELS, "signal": COUNT, "limit": 12.0},
    # After the first reading it lasts for 10 steps more, which are the horizon.
    "adaptive noise, no more than the horizon": {"policy": LEVELS, "signal": COUNT, "limit": 8.9},
    "adaptive batch, a count": {"policy": SMALLER, "signal": COUNT},
    "adaptive batch, a loss": {"policy": SMALLER, "signal": LOSS},
    "adaptive batch, no more than the horizon": {"policy": SMALLER, "signal": COUNT, "limit": 8.9},
    "lower noise, a count": {"policy": LowerNoise(2.0, 0.6, 1.0), "signal": COUNT},
    "lower noise, a loss": {"policy": LowerNoise(2.0, 0.6, 1.0, every=2), "signal": LOSS},
    "patience that ends, a count": {"policy": StopEarly(patience=3), "signal": COUNT},
    "patience that ends, a loss": {"policy": StopEarly(patience=2, every=2), "signal": LOSS},
    "patience that lasts": {"policy": StopEarly(patience=50), "signal": COUNT},
    "a target that is met": {"policy": StopEarly(target=0.65), "signal": COUNT},
    "a target that is not met": {"policy": StopEarly(target=0.5, patience=50), "signal": LOSS},
    "adaptive noise and patience": {
        "policy": [
            AdaptNoise(0.5, every=2, horizon=2, levels=2),
            StopEarly(patience=3, every=3),
        ],
        "signal": COUNT,
    },
}

EMPTY = {
    "batches of 1": {"batch_size": 1},
    "batches of 8 of 320 public records": {"records": 320},
    "batches of 8 of 320 public records, pieces of 2": {"records": 320, "physical_batch_size": 2},
}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_parameters_after_seeded_steps():
    found = {name: Run(name).train(STEPS).ended() for name in MODELS}
    for words, options in VARIANTS.items():
        found[f"linear, {words}"] = Run("linear", **options).train(STEPS).ended()
    for words, options in FITS.items():
        model = _classifier()
        found[f"fit, {words}"] = {
            "history": _history(_fit(model, **options)),
            "parameters": digest(model.parameters()),
        }
    goldens.compare("training", found, near=1e-9)


def test_policies_empty_batches_and_fix(monkeypatch):
    """Compares runs with private readings, with batches that are often empty, and with `fix`."""
    # Readings take their noise from the operating system, whatever the seed.
    monkeypatch.setattr(os, "urandom", lambda count: b"\x01" * count)
    found = {}
    for words, options in POLICIES.items():
        found[words] = _read(**options)
    for words, options in EMPTY.items():
        found[words] = Run("linear", **options).train(STEPS).ended()
    for name in CONVERTED:
        found[name] = Run(name, fix=True).train(STEPS).ended()
    goldens.compare("training_policies", found, near=1e-9)


class Charged(dm.Filter):
    """A filter that counts what it was charged with."""

    def __init__(self, *limits):
        super().__init__(*limits)
        self.charged = collections.Counter()

    def spend(self, cost, count=1):
        super().spend(cost, count)
        self.charged[repr(cost)] += count


def _read(limit=50.0, **options):
    """Return the epochs, the end, the charges and the parameters of a run with policies."""
    gate = Charged(limit, 1e-5)
    model, x = _classifier(), data((5,), torch.float64).tensors[0]
    how = {"noise_multiplier": 1.0, "batch_size": 8, "epochs": 12, "seed": 5, "progress": False}
    records = TensorDataset(x, x[:, :3].argmax(dim=1))
    history = fit(model, records, gate, **how, **copy.deepcopy(options))
    return {
        "history": [
            [
                epoch.steps,
                epoch.epsilon.hex(),
                epoch.noise_multiplier.hex(),
                epoch.batch_size,
                epoch.signal and _short(epoch.signal.value),
            ]
            for epoch in history
        ],
        "ended": history.ended,
        "charged": gate.charged,
        "parameters": digest(model.parameters()),
    }


def _classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def _fit(model, **options):
    records = data((5,), torch.float64)
    how = {"noise_multiplier": 1.0, "batch_size": 8, "epochs": 4, "seed": 5, "progress": False}
    return fit(
        model,
        records,
        epsilon=50.0,
        delta=1e-5,
        public=records,
        **{**how, **copy.deepcopy(options)},
    )


def _history(history):
    """What was decided after each epoch; doubles that follow from gradients to 9 digits."""
    return [
        {
            "steps": epoch.steps,
            "epsilon": epoch.epsilon.hex(),
            "noise": epoch.noise_multiplier.hex(),
            "accuracy": epoch.accuracy,
            "loss": _short(epoch.loss),
            "learning_rate": _short(epoch.learning_rate),
        }
        for epoch in history
    ]


def _short(value):
    return None if value is None else f"{value:.9g}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_single_precision_gives_what_double_does(name):
    double, single = (
        torch.cat([each.detach().double().flatten() for each in run.model.parameters()])
        for run in (Run(name).train(STEPS), Run(name, torch.float32).train(STEPS))
    )
    assert torch.allclose(double, single, rtol=0, atol=4e-6)  # found: 4e-7


@pytest.mark.parametrize("name", MODELS)
def test_stop_and_resume_is_no_stop(name):
    whole, half = Run(name).train(STEPS).ended(), Run(name).train(STEPS // 2)
    resumed = Run(name).load(half.saved()).train(STEPS).ended()
    assert _but_for_roundings([resumed]) == _but_for_roundings([whole])


class Stop(Exception):
    """Ends a run as if its process was killed."""


def _stop_after(epochs):
    def stop(engine, epoch):
        if epoch.epoch == epochs:
            raise Stop

    return [stop]


def test_fit_stopped_and_resumed_is_no_stop(tmp_path):
    whole, first, again = _classifier(), _classifier(), _classifier()
    expected = _but_for_roundings(_history(_fit(whole)))
    with pytest.raises(Stop):
        _fit(first, checkpoint=tmp_path / "run.pt", callbacks=_stop_after(2))
    resumed = _history(_fit(again, checkpoint=tmp_path / "run.pt"))
    assert _but_for_roundings(resumed) == expected
    assert digest(again.parameters()) == digest(whole.parameters())


def _but_for_roundings(history):
    """Without what differs because spends of ten and of one are added in another order."""
    return [{**epoch, "epsilon": f"{float.fromhex(epoch['epsilon']):.12g}"} for epoch in history]


@pytest.mark.slow
def test_parameters_after_seeded_steps_on_two_ranks(tmp_path):
    multiprocessing.get_context("forkserver").set_forkserver_preload(["dosimeter.training"])
    names = [*MODELS]
    multiprocessing.start_processes(
        end_on_ranks, args=(str(tmp_path), names), nprocs=2, start_method="forkserver"
    )
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert found[0] == {
        name: {**ended, "epsilon": found[0][name]["epsilon"]} for name, ended in found[1].items()
    }
    goldens.compare("training_ranks", found[0], near=1e-9)
