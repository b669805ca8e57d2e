"""Untuned runs beside tuned ones: the arms are what they say, the page says what was found."""

import math
import tomllib

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import dosimeter as dm
from dosimeter.search import approximate, selection
from experiments import record
from experiments.no_tuning import __main__ as main
from experiments.no_tuning import arms, outcome, plain, table, tasks

pytest.importorskip("sklearn")

CONFIG = tomllib.loads((main.FOLDER / "config.toml").read_text())


@pytest.fixture(scope="module")
def document():
    return record.load(main.FOLDER)


def test_the_page_holds_the_table(document):
    page = (main.FOLDER / "README.md").read_text().splitlines()
    for line in (*table.HEAD, *table.rows(document)):
        assert line in page


def test_settings_are_those_of_the_configuration(document):
    assert document["config"] == CONFIG
    assert set(CONFIG["held_out"]) <= set(CONFIG["tasks"])


def test_no_run_of_ours_passed_its_epsilon(document):
    for name, found in document["results"].items():
        epsilon = float(name.split(" at ")[1])
        assert found.get("epsilon", 0.0) <= epsilon


def test_sums_in_closed_form_are_autograds():
    task = tasks.load("digits")
    model = task.model(0)
    parameters = list(model.parameters())
    expected = [torch.zeros_like(p) for p in parameters]
    for x, y in zip(task.x[:9], task.y[:9], strict=True):
        loss = cross_entropy(model(x.unsqueeze(0)), y.unsqueeze(0))
        grads = torch.autograd.grad(loss, parameters)
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
        for total, grad in zip(expected, grads, strict=True):
            total += grad * min(1.0, 0.9 / norm)
    found = plain.clipped_sums([p.detach() for p in parameters], task.x[:9], task.y[:9], 0.9)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_fixed_run_learns():
    task = tasks.load("cancer")
    how = plain.Fixed(steps=60, batch_size=200, noise_multiplier=2.0, max_grad_norm=1.0, lr=0.1,
                      momentum=0.9)  # fmt: skip
    assert plain.train(task, how, 0)["average"] > 0.85


def test_the_search_is_within_the_budget_and_pays_for_it_with_noise():
    batch, steps = plain.sizes("small", 1437)
    alone = arms.fitting(3.0, 1e-6, steps, batch / 1437)
    noise = arms.searching(3.0, 1e-6, "small", 1437)
    assert noise > 1.1 * alone
    step, score = dm.SampledGaussian(batch / 1437, noise), dm.Gaussian(arms.score_noise(3.0, 1437))
    search = selection(step, steps, mean=arms.TRIALS, score=score)
    assert approximate(search, 1e-6).epsilon <= 3
    assert not dm.Filter(3.0, 1e-6).admits(search)  # by its Rényi curve it would be dearer


def test_a_summary_has_the_spread_of_each_arm_and_the_most_that_ours_spent():
    ours = [{"accuracy": 0.5, "epsilon": 2.9}, {"accuracy": 0.7, "epsilon": 2.8}]
    finalists = {
        "fixed digits, small": [{"average": 0.6, "last": 0.8}],
        "fixed digits, large": [{"average": 0.7, "last": 0.1}],
    }
    facts = outcome.summary({"ours": ours, "fixed": {"finalists": finalists}})
    assert facts["ours"] == [60.0, 50.0, 70.0]
    assert facts["epsilon"] == 2.9
    assert facts["fixed"] == [80.0, 80.0, 80.0]
    assert facts["setting"] == "small, last iterate"


def test_the_number_of_trials_has_the_mean_that_is_paid_for():
    drawn = outcome.trials(np.random.default_rng(1), 200_000)
    assert drawn.min() == 1
    assert drawn.mean() == pytest.approx(arms.TRIALS, rel=0.05)


def test_what_is_absent_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(tasks, "FASHION", tmp_path)
    with pytest.raises(tasks.Absent, match="dataset-fashion-mnist"):
        tasks.require("fashion")
    monkeypatch.setitem(tasks.WITHIN, "names", ("no_such_package", "names.txt"))
    with pytest.raises(tasks.Absent, match="no_such_package, which is not installed"):
        tasks.require("names")


def test_rows_that_cannot_be_run_here_stay(document):
    rows = main.before(CONFIG, "fashion")
    assert list(rows) == [f"fashion at {epsilon:g}" for epsilon in CONFIG["epsilons"]]
    for name, row in rows.items():
        assert row["commit"]
        assert row == {"commit": row["commit"], **document["results"][name]}
    assert main.before({**CONFIG, "delta": 1e-5}, "fashion") == {}  # of other settings
