"""`dosimeter train`: each kind of data, each kind of end, and going on after it."""

import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import dosimeter as dm
from configs import points, write_config, write_points
from dosimeter.cli.app import app
from dosimeter.data.cifar import FOLDER
from dosimeter.ledger import Ledger
from dosimeter.rounding import at_most
from dosimeter.training import History

torch.set_num_threads(1)

# A model of the user's own that ends its process, or interrupts it, in a chosen step.
TRAP = """
import os, signal
from torch import nn

class Trap(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer = nn.Linear(columns, classes)
        self.seen = 0

    def forward(self, x):
        if self.training:
            self.seen += 1
            if self.seen == int(os.environ.get("TRAP_STEP", 0)):
                os.kill(os.getpid(), getattr(signal, os.environ["TRAP_SIGNAL"]))
        return self.layer(x)

def make(shape, classes):
    return Trap(shape[0], classes)
"""

# One during whose fifth step someone closes the budget.
CLOSING = """
from dosimeter.ledger import Ledger
from trap_of_mine import Trap

class Closing(Trap):
    def forward(self, x):
        if self.training and self.seen == 4:
            with Ledger.open("sqlite:///budgets.db") as ledger:
                ledger.close("patients")
        return super().forward(x)

def make(shape, classes):
    return Closing(shape[0], classes)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_points(tmp_path / "points.csv")
    (tmp_path / "trap_of_mine.py").write_text(TRAP)
    return tmp_path


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["train", *arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def process(*arguments, **environment):
    command = [sys.executable, "-c", "from dosimeter.cli import main; main()", "train"]
    source = str(pathlib.Path(dm.__file__).parents[1])
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def said(folder="run"):
    return json.loads(pathlib.Path(folder, "run.json").read_text())


def config(**changes):
    write_config(pathlib.Path("config.toml"), **changes)


# -- what comes out ------------------------------------------------------------------------


def test_a_run_leaves_weights_history_guarantee_and_its_config():
    config(data={"public_share": 0.2})
    done = run("config.toml")
    assert "epsilon" in done.stdout
    assert "right" in done.stdout
    folder = pathlib.Path("run")
    assert {file.name for file in folder.iterdir()} >= {
        "model.safetensors", "history.json", "guarantee.txt", "run.json", "config.toml",
        "checkpoint.pt",
    }  # fmt: skip
    assert not list(folder.glob("*.part"))
    assert folder.joinpath("config.toml").read_text() == pathlib.Path("config.toml").read_text()
    history = History.load(folder / "history.json")
    result = said()
    assert result["finished"] is True
    assert result["kind"] == "filter"
    assert result["limit"] == 4.0
    assert result["seed"] is None
    assert result["epsilon"] == history.epsilon <= 4.0
    assert load_file(folder / "model.safetensors")["1.weight"].shape == (2, 3)
    expected = dm.Filter(4.0, 1e-5)
    expected.spend(dm.SampledGaussian(40 / result["records"], 2.0), history.steps)
    assert history.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_the_guarantee_is_said_in_words():
    config(data={"public_share": 0.2}, training={"seed": 3})
    warned = run("config.toml").stderr
    assert "warning: training.seed makes the noise predictable" in warned
    text = " ".join(pathlib.Path("run", "guarantee.txt").read_text().split())
    for words in (
        "(4.0, 1e-05)-DP, add/remove one record",
        "at most 54.6 (e^4) times the probability, plus 1e-05",
        f"A record is one row of the {said()['records']}",
        "The number of records",
        "nor copied and resumed twice",
        f"The {120 - said()['records']} records that accuracy was measured on are public",
        "A SEED WAS GIVEN",
    ):
        assert words in text, words


def test_without_public_records_no_accuracy_is_shown():
    config()
    assert "right" not in run("config.toml").output
    assert said()["accuracy"] is None
    assert "accuracy was measured" not in pathlib.Path("run", "guarantee.txt").read_text()


def test_a_delta_that_promises_little_is_warned_of():
    config(budget={"delta": 0.01})
    assert "warning: delta 0.01 promises little to 120 records" in run("config.toml").stderr


def test_json_is_the_only_thing_on_standard_output():
    config()
    assert json.loads(run("config.toml", "--json").stdout) == said()


def test_a_report_is_written_if_the_report_can_be_imported(monkeypatch, tmp_path):
    written = []

    class Report:
        @staticmethod
        def write(folders, out):
            written.append((list(folders), out, said()["finished"]))

    monkeypatch.setitem(sys.modules, "dosimeter.report", Report)
    config()
    run("config.toml")
    folder = pathlib.Path("run")
    assert written == [([folder], folder / "report.html", True)]


def test_init_writes_a_config_that_runs_as_it_is():
    assert "dosimeter train config.toml" in run("--init").output
    run()
    assert said()["accuracy"] > 0.8
    assert said()["epsilon"] <= 4.0
    assert said()["ended"] == "all 30 epochs were done"


# -- each kind of data, model, budget and rule -----------------------------------------------


def images(folder, size=8):
    rng = np.random.default_rng(0)
    for part, count in (("train", 8), ("test", 3)):
        for number, label in enumerate(("cat", "dog")):
            place = folder / part / label
            place.mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 128, (size, size, 3), dtype=np.uint8) + 100 * number
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.png")


def cifar(folder):
    place = folder / FOLDER
    place.mkdir()
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        values = {"data": rng.integers(0, 256, (3, 3072), dtype=np.uint8), "labels": [3, 9, 0]}
        (place / name).write_bytes(pickle.dumps(values, protocol=2))
    names = {"label_names": [f"kind {i}" for i in range(10)]}
    (place / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))


TABLE_KEYS = dict.fromkeys(("label", "classes", "low", "high"))
SMALL = {"epochs": 1, "batch_size": 8}


def test_an_image_folder_trains_a_cnn(tmp_path):
    images(tmp_path / "photos")
    data = {**TABLE_KEYS, "kind": "images", "path": "photos", "public_test": True}
    config(data=data, model={"kind": "cnn"}, training=SMALL)
    run("config.toml")
    assert (said()["records"], said()["accuracy"] is not None) == (16, True)


def test_an_archive_of_images_trains_a_model_on_frozen_features(tmp_path):
    images(tmp_path / "photos")
    shutil.make_archive("photos", "zip", tmp_path / "photos")
    data = {**TABLE_KEYS, "kind": "images", "path": "photos.zip"}
    config(data=data, model={"kind": "features", "extractor": "random"}, training=SMALL)
    run("config.toml")
    weights = load_file("run/model.safetensors")
    assert weights["1.1.weight"].shape == (2, 512)
    assert weights["0.directions"].shape == (512, 192)


def test_the_cifar_files_train_a_resnet(tmp_path):
    cifar(tmp_path)
    data = {**TABLE_KEYS, "kind": "cifar", "path": FOLDER, "public_test": True}
    model = {"kind": "resnet9", "width": 4}
    config(data=data, model=model, training={**SMALL, "physical_batch_size": 3})
    run("config.toml")
    assert said()["records"] == 15


def test_an_npz_trains_an_mlp_under_an_odometer(tmp_path):
    x, y = points()
    np.savez("points.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = {**TABLE_KEYS, "kind": "npz", "path": "points.npz", "classes": 2, "public_test": True}
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
    config(data={"public_share": 0.2}, budget={"epsilon": 20.0}, **changes)
    run("config.toml")
    history = History.load("run/history.json")
    assert noise in {epoch.noise_multiplier for epoch in history}
    assert batch in {epoch.batch_size for epoch in history}


@pytest.mark.parametrize("kind", ["correct_count", "mean_loss"])
def test_a_stop_rule_ends_the_run_and_the_readings_are_charged(kind):
    target = 1e-9 if kind == "correct_count" else 1e9
    config(stop={"target": target}, signal={"kind": kind, "noise_multiplier": 5.0})
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


@pytest.mark.parametrize(("epsilon", "much"), [(4.0, False), (0.2, True)])
def test_noise_that_drowns_the_data_is_warned_of_with_the_way_out(epsilon, much):
    config(budget={"epsilon": epsilon}, training={"noise_multiplier": None, "epochs": 1})
    told = run("config.toml").stderr
    noise = History.load("run/history.json")[0].noise_multiplier
    assert (noise > 0.1 * 40) is much
    start = "warning" if much else "note"
    assert f"{start}: noise_multiplier {noise:g}" in told
    way_out = "take a larger budget.epsilon, more data with a larger batch, or fewer epochs"
    assert (way_out in told) is much


# -- interrupted, killed, resumed --------------------------------------------------------------

TRAPPED = {"model": {"kind": "trap_of_mine:make"}, "training": {"epochs": 4, "seed": 1}}


@pytest.fixture
def trap(monkeypatch):
    def set_trap(step, name="SIGINT"):
        monkeypatch.setenv("TRAP_STEP", str(step))
        monkeypatch.setenv("TRAP_SIGNAL", name)

    return set_trap


def test_ctrl_c_stops_after_the_step_and_resume_goes_on(trap):
    config(**TRAPPED)
    trap(5)  # the second of three steps of the second epoch
    before = signal.getsignal(signal.SIGINT)
    done = run("config.toml", code=130)
    assert signal.getsignal(signal.SIGINT) is before
    assert "Ctrl-C again kills" in done.stderr
    assert "dosimeter train config.toml --resume" in done.stdout
    stopped = History.load("run/history.json")
    assert [epoch.steps for epoch in stopped] == [3, 2]
    assert said()["finished"] is False
    assert said()["ended"] == "it was interrupted"

    trap(0)
    run("config.toml", "--resume")
    history = History.load("run/history.json")
    assert said()["finished"] is True
    assert [epoch.steps for epoch in history] == [3, 2, 3, 3]
    epsilons = [epoch.epsilon for epoch in history]
    assert epsilons[:2] == [epoch.epsilon for epoch in stopped]
    assert epsilons == sorted(epsilons)
    expected = dm.Filter(4.0, 1e-5)
    for epoch in history:
        expected.spend(dm.SampledGaussian(40 / 120, 2.0), epoch.steps)
        assert epoch.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_a_finished_run_is_not_trained_further():
    config(stop={"target": 1e-9})
    run("config.toml")
    files = {path: path.read_bytes() for path in pathlib.Path("run").glob("[!r]*")}
    done = run("config.toml", "--resume", "--json")
    assert "is finished" in done.stderr
    assert json.loads(done.stdout) == said()
    assert files == {path: path.read_bytes() for path in pathlib.Path("run").glob("[!r]*")}


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_killed_in_the_middle_of_an_epoch_it_goes_on_as_if_nothing_had_happened(name, trap):
    """With a seed the weights and every epsilon are those of a run that was left alone."""
    config(**TRAPPED)
    killed = process("config.toml", TRAP_STEP="5", TRAP_SIGNAL=name)
    output, _ = killed.communicate(timeout=120)
    assert killed.returncode == -getattr(signal, name)
    assert not output.strip()
    assert sorted(path.name for path in pathlib.Path("run").glob("[!.]*")) == [
        "checkpoint.pt",
        "config.toml",
    ]
    trap(0)
    run("config.toml", "--resume")
    config(**TRAPPED, output={"folder": "alone"})
    run("config.toml")
    resumed, alone = (History.load(f"{name}/history.json") for name in ("run", "alone"))
    assert [epoch.epsilon for epoch in resumed] == pytest.approx(
        [epoch.epsilon for epoch in alone], rel=1e-9
    )
    assert [epoch.steps for epoch in resumed] == [epoch.steps for epoch in alone]
    ours, theirs = (load_file(f"{name}/model.safetensors") for name in ("run", "alone"))
    for key, value in ours.items():
        torch.testing.assert_close(value, theirs[key], rtol=0, atol=0)


def ledger_config(**changes):
    budget = {"kind": "ledger", "epsilon": None, "delta": None}
    config(budget={**budget, "ledger": "sqlite:///budgets.db", "name": "patients"}, **changes)


def test_killed_under_a_ledger_no_spend_is_lost(trap):
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
    ledger_config(**TRAPPED)
    killed = process("config.toml", TRAP_STEP="5", TRAP_SIGNAL="SIGKILL")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    trap(0)
    with Ledger.open("sqlite:///budgets.db") as ledger:
        after_kill = ledger["patients"].epsilon
        assert len(ledger["patients"].history(100)) == 1 + 5
    run("config.toml", "--resume")
    history = History.load("run/history.json")
    with Ledger.open("sqlite:///budgets.db") as ledger:
        # The two steps of the epoch that was lost stay spent; those of its checkpoint are
        # not charged again.
        assert len(ledger["patients"].history(100)) == 1 + 5 + 9
        assert said()["epsilon"] == ledger["patients"].epsilon == history.epsilon
        assert ledger.verify("patients").ok
    expected = dm.Filter(6.0, 1e-5)
    expected.spend(dm.SampledGaussian(40 / 120, 2.0), 14)
    assert history.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
    assert history[0].epsilon < after_kill < history[1].epsilon
    assert said()["kind"] == "ledger"
    assert "all others that spend from the same budget" in said()["in_words"]


def test_a_ledger_that_has_forgotten_the_run_is_refused(trap):
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
    ledger_config(**TRAPPED)
    trap(5)
    run("config.toml", code=130)
    pathlib.Path("budgets.db").unlink()
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
    done = run("config.toml", "--resume", code=2)
    assert "budget.name must be the budget that the run spent epsilon" in done.stderr


def test_a_ledger_other_than_the_run_spent_from_is_refused_however_much_was_spent(trap):
    """A backup of before, another database of the same names, both with more spent."""
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
    shutil.copy("budgets.db", "backup.db")
    with Ledger.open("sqlite:///other.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
    ledger_config(**TRAPPED)
    trap(5)
    run("config.toml", code=130)
    trap(0)
    shutil.copy("budgets.db", "right.db")
    for wrong in ("backup.db", "other.db"):
        with Ledger.open(f"sqlite:///{wrong}") as ledger:
            for _ in range(9):
                ledger["patients"].spend(dm.Gaussian(4.0))
            assert ledger["patients"].epsilon > said()["epsilon"]
        shutil.copy(wrong, "budgets.db")
        done = run("config.toml", "--resume", code=2)
        assert "journal does not hold the entry that the checkpoint names" in done.stderr
    shutil.copy("right.db", "budgets.db")
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger["patients"].spend(dm.Gaussian(50.0))  # someone else, meanwhile
    run("config.toml", "--resume")
    assert said()["finished"] is True


@pytest.fixture
def broken_fit(monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr("dosimeter.recipe.run.fit", fail)


def test_no_epsilon_smaller_than_what_was_spent_is_left_by_a_resume_that_fails(trap, broken_fit):
    config(budget={"kind": "odometer", "epsilon": None}, **TRAPPED)
    trap(5)
    run("config.toml", code=130)
    folder = pathlib.Path("run")
    folder.joinpath("checkpoint.pt.part").write_bytes(b"weights that nobody paid for")
    broken_fit()
    run("config.toml", "--resume", code=2)
    assert {file.name for file in folder.iterdir()} - {".lock"} == {
        "model.safetensors", "history.json", "config.toml", "checkpoint.pt"
    }  # fmt: skip


def test_the_guarantee_is_there_before_the_weights(monkeypatch):
    def fail(folder, model):
        assert folder.path.joinpath("guarantee.txt").is_file()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dosimeter.recipe.folder.RunFolder.write_weights", fail)
    config()
    assert "no space left" in run("config.toml", code=2).stderr
    assert not pathlib.Path("run", "model.safetensors").exists()


def test_a_resume_that_fails_without_a_checkpoint_keeps_the_config(broken_fit):
    config()
    pathlib.Path("run").mkdir()
    broken_fit()
    shutil.copy("config.toml", "run/config.toml")
    run("config.toml", "--resume", code=2)
    assert pathlib.Path("run", "config.toml").is_file()


def test_the_config_is_read_once(monkeypatch):
    """Edited while torch loads, it is still the one that was checked that runs and is kept."""
    config()
    checked = pathlib.Path("config.toml").read_text()
    read = pathlib.Path.read_text

    def edit(path, *arguments, **options):
        text = read(path, *arguments, **options)
        if path == pathlib.Path("config.toml"):
            path.write_text(text.replace("epsilon = 4.0", "epsilon = 1.0"))
        return text

    monkeypatch.setattr(pathlib.Path, "read_text", edit)
    run("config.toml")
    assert said()["limit"] == 4.0
    assert read(pathlib.Path("run", "config.toml")) == checked


def test_a_budget_that_someone_closes_ends_the_run_with_its_results(here):
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
    here.joinpath("closing_of_mine.py").write_text(CLOSING)
    ledger_config(model={"kind": "closing_of_mine:make"})
    assert "ended because the budget was closed" in run("config.toml").stdout
    assert said()["finished"] is True
    assert [epoch.steps for epoch in History.load("run/history.json")] == [3, 2]
    assert pathlib.Path("run", "model.safetensors").is_file()


@pytest.mark.slow
def test_the_keyboard_stops_a_process_of_its_own():
    config(training={"epochs": 3000})
    running = process("config.toml")
    checkpoint = pathlib.Path("run", "checkpoint.pt")
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
    assert "--resume" in output
    assert History.load("run/history.json").ended == "it was interrupted"


def test_a_checkpoint_older_than_the_results_is_refused(trap):
    """Its spends would be forgotten: those of the second epoch were shown."""
    config(**TRAPPED)
    trap(5, "SIGINT")
    run("config.toml", code=130)
    checkpoint = pathlib.Path("run", "checkpoint.pt")
    state = torch.load(checkpoint)
    del state["history"]["epochs"][1]
    torch.save(state, checkpoint)
    refused = run("config.toml", "--resume", code=2)
    assert "must hold the 2 epochs of history.json, got 1" in refused.stderr
    checkpoint.unlink()
    refused = run("config.toml", "--resume", code=2)
    assert "must hold the 2 epochs of history.json, got 0" in refused.stderr


def test_two_processes_never_train_in_one_folder(trap):
    config(**TRAPPED)
    trap(5)
    run("config.toml", code=130)
    from filelock import FileLock

    with FileLock("run/.lock"):
        done = run("config.toml", "--resume", code=2)
    assert "must be held by one process" in done.stderr


# -- what is wrong is said in one line -----------------------------------------------------------


def one_line(*arguments, code=2):
    done = run(*arguments, code=code)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.output
    assert not done.stdout
    return done.stderr


WRONG = [
    ({"training": {"epoch": 3}}, "line 20: training.epoch must be a known name"),
    ({"trainig": {"epochs": 3}}, "did you mean 'training'?"),
    ({"training": {"epochs": "3"}}, "training.epochs must be a whole number, got '3'"),
    ({"training": {"batch_size": 500}}, "training.batch_size must be at most the 120 private"),
    ({"data": {"path": "nowhere.csv"}}, "data.path must lead to data, got no file or folder"),
    ({"data": {"path": "."}}, "data.path must be a file for csv"),
    ({"data": {"label": "ill"}}, "data.label must be one of the columns a, sick, b, c, got 'ill'"),
    ({"data": {"classes": ["no", "maybe"]}}, "column 'sick' must be one of the classes no, maybe"),
    ({"data": {"classes": ["no"]}}, "line 17: data.classes must be at least two different ones"),
    ({"data": {"kind": "npz", "label": None, "classes": 2}}, "plain arrays that numpy.savez wrote"),
    ({"data": {**TABLE_KEYS, "kind": "cifar", "path": "."}}, "batches.meta"),
    ({"data": {"low": 200}}, "data.low must be below data.high"),
    ({"data": {"low": [0, 0]}}, "data.low must be one number, or one for each column"),
    ({"data": {"public_test": True}}, "data.public_test must be false for data without a test"),
    ({"model": {"kind": "resnet9"}}, "model.kind must suit inputs of shape (3,), got 'resnet9'"),
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
    assert "got 'patients'; did you mean 'patient'?" in one_line(code=4)


def test_a_closed_budget_is_told_before_anything_is_trained():
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("patients", 6.0, 1e-5)
        ledger.close("patients")
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
