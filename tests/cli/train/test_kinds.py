"""Each kind of data, model, budget and rule."""

import pathlib

import numpy as np
import pytest
from safetensors.torch import load_file

import dosimeter as dm
from cli.train.commands import TABLE_KEYS, config, run, said
from configs import points
from dosimeter.rounding import at_most
from dosimeter.training import History

SMALL = {"epochs": 1, "batch_size": 8}


@pytest.fixture
def photos():
    """The keys of [data] for arrays of bytes, as images are."""
    rng = np.random.default_rng(0)
    y, y_test = np.arange(16) % 2, np.arange(6) % 2
    x, x_test = (
        (rng.integers(0, 128, (len(each), 8, 8, 3)) + 100 * each[:, None, None, None]).astype(
            np.uint8
        )
        for each in (y, y_test)
    )
    np.savez("photos.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    return {**TABLE_KEYS, "kind": "npz", "path": "photos.npz", "classes": ["cat", "dog"]}


def test_arrays_of_bytes_train_a_cnn(photos):
    training = {**SMALL, "physical_batch_size": 3}
    config(data={**photos, "public_test": True}, model={"kind": "cnn"}, training=training)
    run("config.toml")
    assert (said()["records"], said()["accuracy"] is not None) == (16, True)


def test_arrays_of_bytes_train_a_model_on_frozen_features(photos):
    config(data=photos, model={"kind": "features", "extractor": "random"}, training=SMALL)
    run("config.toml")
    weights = load_file("run/model.safetensors")
    assert weights["1.1.weight"].shape == (2, 512)
    assert weights["0.directions"].shape == (512, 192)


def test_an_npz_trains_an_mlp_under_an_odometer(tmp_path):
    x, y = points()
    np.savez("points.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = {"label": None, "kind": "npz", "path": "points.npz", "classes": 2, "public_test": True}
    budget = {"kind": "odometer", "epsilon": None}
    config(data=data, model={"kind": "mlp", "hidden": 4}, budget=budget)
    run("config.toml")
    assert said()["limit"] is None
    assert "ex-post" in said()["guarantee"]
    assert "odometer is valid at whatever moment" in said()["in_words"]
    assert repr(said()["epsilon"]) in said()["guarantee"]
    assert (
        f"ex-post ({at_most(said()['epsilon'])}, " in pathlib.Path("run/guarantee.txt").read_text()
    )


@pytest.mark.parametrize(
    ("changes", "noise", "batch"),
    [
        ({"policy": {"kind": "adapt_noise", "step": 0.5, "every": 1, "horizon": 1},
          "signal": {"public": True}}, 2.5, 40),
        ({"policy": {"kind": "adapt_batch", "step": 8, "minimum": 16, "every": 1, "horizon": 1},
          "signal": {"public": True}}, 2.0, 32),
        ({"policy": {"kind": "lower_noise", "start": 3.0, "step": 0.5, "minimum": 2.0},
          "signal": {"noise_multiplier": 1e6}, "training": {"noise_multiplier": None}}, 2.5, 40),
    ],
)  # fmt: skip
def test_policies_adapt(changes, noise, batch):
    """An exact count rises from nothing at once; one with so much noise does not.

    It would seem to rise in both of the two readings once in half a million runs.
    """
    config(data={"public_share": 0.2}, budget={"epsilon": 20.0, "menu": False}, **changes)
    run("config.toml")
    history = History.load("run/history.json")
    assert noise in {epoch.noise_multiplier for epoch in history}
    assert batch in {epoch.batch_size for epoch in history}


@pytest.mark.parametrize("kind", ["correct_count", "mean_loss"])
def test_a_stop_rule_ends_the_run_and_the_readings_are_charged(kind):
    target = 1e-9 if kind == "correct_count" else 1e9
    read = {"kind": kind, "noise_multiplier": 5.0}
    config(budget={"menu": False}, stop={"target": target}, signal=read)
    done = run("config.toml")
    assert "reached its target" in done.stdout
    history = History.load("run/history.json")
    assert len(history) == 1
    expected = dm.Filter(4.0, 1e-5)
    expected.spend(dm.SampledGaussian(40 / 120, 2.0), 3)
    expected.spend(dm.Gaussian(5.0))
    assert history.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_a_filter_ends_the_run_and_the_budget_is_said_to_be_short():
    config(budget={"epsilon": 3.0}, training={"epochs": 1000})
    done = run("config.toml")
    assert "the budget lasts for about" in done.stderr
    assert said()["ended"] == "the gate refused the next step"
    assert said()["finished"] is True
    assert said()["epsilon"] <= 3.0


def test_chosen_noise_is_told_beside_the_gradients_that_it_is_added_to():
    config(budget={"epsilon": 0.2}, training={"noise_multiplier": None, "epochs": 1})
    told = run("config.toml").stderr
    noise = History.load("run/history.json")[0].noise_multiplier
    assert f"note: noise_multiplier {noise:g} lets the budget last for 1 epochs" in told
    assert f"noise {noise / 40:.2g} in each coordinate, that of all 3 steps" in told
    assert "warning" not in told
