"""What is wrong with a config, a file or a folder is said in one line."""

import pathlib

import pytest

from cli.train.commands import TRAPPED, config, ledger_config, run
from dosimeter.ledger import Ledger


def one_line(*arguments, code=2):
    done = run(*arguments, code=code)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.output
    assert not done.stdout
    return done.stderr


WRONG = [
    ({"training": {"epoch": 3}}, "line 19: training.epoch must be a known name"),
    ({"trainig": {"epochs": 3}}, "did you mean 'training'?"),
    ({"training": {"epochs": "3"}}, "training.epochs must be a whole number, got '3'"),
    ({"training": {"batch_size": 500}}, "training.batch_size must be at most the 120 private"),
    ({"data": {"path": "nowhere.csv"}}, "data.path must lead to data, got no file at"),
    ({"data": {"path": "."}}, "data.path must be a file for csv"),
    ({"data": {"label": "ill"}}, "data.label must be one of the columns a, sick, b, c, got 'ill'"),
    ({"data": {"classes": ["no", "maybe"]}}, "column 'sick' must be one of the classes no, maybe"),
    ({"data": {"classes": ["no"]}}, "line 17: data.classes must be at least two different ones"),
    ({"data": {"kind": "npz", "label": None, "classes": 2}}, "plain arrays that numpy.savez wrote"),
    ({"data": {"bounds": [200, 100]}}, "data.bounds must be a lower and a higher finite number"),
    ({"data": {"bounds": [[0, 1], [0, 1]]}}, "data.bounds must be one pair, or a pair for each"),
    ({"data": {"bounds": None}}, "data.bounds must be given for csv"),
    ({"data": {"bounds": None}}, "train --init new.toml --data points.csv --label sick writes"),
    ({"data": {"label": "sik"}}, "a, sick, b, c, got 'sik'; did you mean 'sick'?"),
    ({"data": {"public_test": True}}, "data.public_test must be false for data without a test"),
    ({"model": {"kind": "cnn"}}, "model.kind must suit inputs of shape (3,), got 'cnn'"),
    ({"model": {"kind": "no_such_module:make"}}, "ModuleNotFoundError"),
    ({"model": {"kind": "perceptron"}}, "model.kind must be linear, mlp"),
    ({"budget": {"epsilon": 0.01}}, "3 epochs fit from noise_multiplier"),
    ({"budget": {"epsilon": "four"}}, "budget.epsilon must be a number, got 'four'"),
    ({"budget": {"kind": "ledger", "epsilon": None, "delta": None, "ledger": "sqlite:///no/x.db",
                 "name": "p"}}, "database must exist, got 'no/x.db'; name it by budget.ledger"),
    ({"policy": {"kind": "adapt_noise", "levels": 0}}, "policy.levels must be between 1"),
    ({"output": {"folder": "points.csv"}}, "output.folder must be new, got 'points.csv'"),
    ({"output": {"folder": 3}}, "output.folder must be text, got 3"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_a_config_that_is_wrong_is_told_in_one_line(changes, words):
    config(**changes)
    code = 6 if "database" in words else 2
    assert words in one_line("config.toml", code=code)
    assert not pathlib.Path("run").exists()


def test_files_that_are_missing_or_no_config_are_told_in_one_line():
    assert "dosimeter train --init" in one_line()
    pathlib.Path("config.toml").write_text("[data\n")
    assert "line 1" in one_line()
    pathlib.Path("config.toml").write_text("[data]\nbounds = { mean radius = [0, 100] }\n")
    assert 'line 2, column 17); a name with spaces or signs goes in quotes, as in { "' in one_line()
    assert "config must be a new file, got 'config.toml'" in one_line("--init")


def test_a_model_that_cannot_be_private_is_told_and_leaves_the_folder_new(here):
    module = "from torch import nn\ndef make(shape, classes):\n    return nn.Sequential("
    here.joinpath("norms.py").write_text(f"{module}nn.Linear(3, 2), nn.BatchNorm1d(2))\n")
    config(model={"kind": "norms:make"})
    assert "BatchNorm" in one_line("config.toml")
    config()
    run("config.toml")


def test_a_csv_with_a_word_in_it_is_told_by_line_and_column():
    text = pathlib.Path("points.csv").read_text().splitlines()
    text[4] = "1,no,tall,3"
    pathlib.Path("points.csv").write_text("\n".join(text))
    config()
    assert "line 5, column 'b' must be a finite number, got 'tall'" in one_line()


def test_a_budget_of_another_name_is_told_in_one_line():
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("doctors", 6.0, 1e-5)
    ledger_config()
    assert "got 'patients'; dosimeter budget list shows" in one_line(code=4)
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patient", 6.0, 1e-5)
    assert "got 'patients'; nothing was spent; did you mean 'patient'?" in one_line(code=4)


def test_a_closed_budget_is_told_before_anything_is_trained():
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
        ledger["patients"].close()
    ledger_config()
    assert "got 'patients', which is closed and stays so; name another" in one_line()


def test_a_database_that_is_not_there_is_told_and_not_made():
    ledger_config()
    assert "database must exist, got 'budgets.db'" in one_line(code=6)
    assert not pathlib.Path("budgets.db").exists()


def test_a_run_is_never_overwritten_nor_resumed_with_another_config():
    assert "config" in one_line("--resume")
    config()
    assert "must hold a run to resume" in one_line("--resume")
    run()
    kept = pathlib.Path("run", "model.safetensors").read_bytes()
    assert "output.folder must be new, got 'run'" in one_line()
    config(training={"epochs": 5})
    assert "training.epochs must stay 3, got 5" in one_line("--resume")
    assert pathlib.Path("run", "model.safetensors").read_bytes() == kept


def test_data_that_changed_and_a_broken_checkpoint_are_told(trap):
    config(**TRAPPED)
    trap(5)
    run(code=130)
    trap(0)
    whole = pathlib.Path("points.csv").read_text()
    pathlib.Path("points.csv").write_text(whole + "1,no,2,3\n")
    refused = run("--resume", code=2)
    assert "state must be of a run on 121 records, got one on 120" in refused.stderr
    pathlib.Path("points.csv").write_text(whole)
    pathlib.Path("run", "checkpoint.pt").write_bytes(b"broken")
    refused = run("--resume", code=2)
    assert "checkpoint.pt must be as training wrote it" in refused.stderr
