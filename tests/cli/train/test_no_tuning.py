"""A config of data, model and budget is enough for `dosimeter train`."""

import json

import pytest
from typer.testing import CliRunner

from configs import write_config, write_points
from dosimeter.cli.app import app


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_points(tmp_path / "points.csv")

    def start(*options, **changes):
        write_config(tmp_path / "config.toml", training=None, **changes)
        return CliRunner().invoke(app, ["train", "config.toml", *options])

    return start


def test_no_table_of_training(train, tmp_path):
    done = train()
    assert done.exit_code == 0, done.output
    assert "batch_size 60 and 200 epochs follow from 120 records" in done.output
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (run["steps"], run["epsilon"] <= 4) == (400, True)
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert len({epoch["learning_rate"] for epoch in history["epochs"]}) > 1


def test_a_budget_too_small_for_anything_is_blamed_by_its_line(train, tmp_path):
    done = train(budget={"epsilon": 0.01})
    assert done.exit_code == 2
    assert "budget.epsilon must leave more signal than noise for 120 records" in done.output
    assert "It takes epsilon 0." in done.output
    assert not (tmp_path / "run").exists()
