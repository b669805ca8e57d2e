"""What a run left behind says about new records, from a shell and in Python."""

import csv
import io
import json
import pathlib

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import dosimeter as dm
from cli.train.commands import TABLE_KEYS, config, run
from configs import points
from dosimeter.cli.app import app
from dosimeter.errors import StateError


def predict(*arguments, code=0):
    done = CliRunner().invoke(app, ["predict", *arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def trained(here):
    config(training={"epochs": 1})
    run("--json")
    return dm.load_run("run")


def test_a_table_by_the_names_of_its_columns(trained):
    x, _ = points()
    with pathlib.Path("new.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "c", "a", "b"])
        writer.writerows([(f"p{i}", c, a, b) for i, (a, b, c) in enumerate(x)])
    done = predict("run", "new.csv", "--out", "out.csv")
    assert "ignored id" in done.stderr
    assert "120 predictions are in out.csv" in done.stderr
    found = rows(pathlib.Path("out.csv").read_text())
    expected = trained.probabilities(x)
    assert [row["record"] for row in found] == [str(i) for i in range(1, 121)]
    assert [row["label"] for row in found] == trained.predict(x)
    given = [[float(row["probability no"]), float(row["probability yes"])] for row in found]
    np.testing.assert_allclose(given, expected, rtol=1e-5)
    np.testing.assert_allclose(np.sum(given, axis=1), 1, rtol=1e-5)


def test_the_training_file_itself_and_lines_of_json(trained):
    lines = predict("run", "points.csv", "--jsonl").stdout.splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 120
    assert set(first["probabilities"]) == {"no", "yes"}
    assert first["label"] == max(first["probabilities"], key=first["probabilities"].get)


def test_it_is_the_model_that_was_trained(trained):
    """Scaled by hand from the bounds, and multiplied by the weights in the file."""
    from safetensors.torch import load_file

    weight, bias = load_file("run/model.safetensors").values()
    if weight.ndim == 1:
        weight, bias = bias, weight
    x, _ = points()
    by_hand = torch.tensor(x / 50 - 1, dtype=torch.float32) @ weight.T + bias
    torch.testing.assert_close(trained(x), by_hand)
    assert not trained.training


def test_what_lies_outside_of_the_bounds_is_clipped_as_in_training(trained):
    torch.testing.assert_close(trained([[-50.0, 120.0, 3.0]]), trained([[0.0, 100.0, 3.0]]))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[1.0, 2.0]], "of shape (3,)"),
        ([], "one or more"),
        ([[1.0, 2.0, float("nan")]], "finite"),
    ],
)
def test_other_inputs_are_refused(trained, x, words):
    with pytest.raises(ValueError, match="inputs must") as caught:
        trained.predict(np.array(x))
    assert words in str(caught.value)


def test_arrays_of_bytes(here):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (40, 8, 8, 3), dtype=np.uint8)
    np.savez("photos.npz", x=x, y=np.arange(40) % 2)
    config(
        data={**TABLE_KEYS, "kind": "npz", "path": "photos.npz", "classes": ["cat", "dog"]},
        training={"epochs": 1, "batch_size": 10},
    )
    run("--json")
    found = rows(predict("run", "photos.npz").stdout)
    assert {row["label"] for row in found} <= {"cat", "dog"}
    np.savez("one.npz", x=x[:1])
    alone = rows(predict("run", "one.npz").stdout)
    # Single precision rounds differently in batches of another size.
    both = [float(rows[0]["probability cat"]) for rows in (alone, found)]
    assert both[0] == pytest.approx(both[1], rel=1e-4)
    np.savez("wide.npz", x=np.zeros((1, 8, 9, 3), np.uint8))
    assert "of shape (8, 8, 3)" in predict("run", "wide.npz", code=2).stderr
    np.savez("floats.npz", x=np.zeros((1, 8, 8, 3)))
    assert "bytes (uint8)" in predict("run", "floats.npz", code=2).stderr


def test_arrays(here):
    x, y = points()
    np.savez("points.npz", x=x, y=y)
    config(
        data={"kind": "npz", "path": "points.npz", "classes": 2, "label": None},
        training={"epochs": 1},
    )
    run("--json")
    assert len(rows(predict("run", "points.npz").stdout)) == 120
    np.savez("other.npz", z=x)
    assert "must hold an array x" in predict("run", "other.npz", code=2).stderr


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("a,b,cc", "1,2,3", "column 'c', as in training, got a, b, cc; did you mean 'cc'?"),
        ("a,b,c,c", "1,2,3,4", "several of that name"),
        ("x,y", "1,2", "the 3 columns of training, got none of them: 'a', 'b', 'c' are missing"),
        ("a,y", "1,2", "got 1 of them: 'b', 'c' are missing; it has a, y"),
        ("a,b,c", "1,2", "line 2 must have 3 values"),
        ("a,b,c", "1,2,old", "line 2, column 'c' must be a finite number"),
        ("a,b,c", "", "at least one record"),
    ],
)
def test_a_table_that_does_not_fit_is_named(trained, header, row, words):
    pathlib.Path("new.csv").write_text(f"{header}\n{row}\n")
    assert words in predict("run", "new.csv", "--out", "out.csv", code=2).stderr
    assert not pathlib.Path("out.csv").exists()


def test_what_is_no_run_or_no_data_is_named(trained):
    assert "no run.json" in predict("nowhere", "points.csv", code=2).stderr
    assert "got nothing at" in predict("run", "nothing.csv", code=2).stderr
    assert "which is neither" in predict("run", "trap_of_mine.py", code=2).stderr
    pathlib.Path("run/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(StateError, match="weights of this run"):
        dm.load_run("run")


def test_a_run_json_that_says_too_little_is_refused(trained):
    pathlib.Path("run/run.json").write_text('{"finished": true}')
    with pytest.raises(StateError, match="train again"):
        dm.load_run("run")
