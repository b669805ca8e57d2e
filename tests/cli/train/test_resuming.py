"""Interrupted, killed, resumed: no spend is lost, and nothing is shown that was not paid for."""

import json
import pathlib
import shutil
import signal
import time

import pytest
import torch
from safetensors.torch import load_file

import dosimeter as dm
from cli.train.commands import TRAPPED, config, ledger_config, process, run, said
from dosimeter.ledger import Ledger
from dosimeter.runs.folder import RunFolder
from dosimeter.training import History

# A model during whose fifth step someone closes the budget.
CLOSING = """
from dosimeter.ledger import Ledger
from trap_of_mine import Trap

class Closing(Trap):
    def forward(self, x):
        if self.training and self.seen == 4:
            with Ledger.open("sqlite:///budgets.db") as ledger:
                ledger["patients"].close()
        return super().forward(x)

def make(shape, classes):
    return Closing(shape[0], classes)
"""


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
    step = dm.SampledGaussian(40 / 120, 2.0)
    expected = dm.Filter(4.0, 1e-5, menu=[step])
    for epoch in history:
        expected.spend(step, epoch.steps)
        assert epoch.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_a_finished_run_is_not_trained_further():
    config(budget={"menu": False}, stop={"target": 1e-9})
    run("config.toml")
    files = {path: path.read_bytes() for path in pathlib.Path("run").glob("[!r]*")}
    done = run("config.toml", "--resume", "--json")
    assert "is finished" in done.stderr
    assert json.loads(done.stdout) == said()
    assert files == {path: path.read_bytes() for path in pathlib.Path("run").glob("[!r]*")}


@pytest.mark.slow
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

    return lambda: monkeypatch.setattr("dosimeter.runs.run.shown", fail)


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

    monkeypatch.setattr("dosimeter.runs.folder.RunFolder.write_weights", fail)
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


def test_noise_that_was_left_out_is_kept_when_a_run_is_resumed(trap):
    """With its menu, from which all steps of all epochs are paid, those before included."""
    config(model=TRAPPED["model"], training={"epochs": 4, "seed": 1, "noise_multiplier": None})
    trap(5)
    run("config.toml", code=130)
    trap(0)
    told = run("config.toml", "--resume")
    assert "no menu" not in told.stderr
    history = History.load("run/history.json")
    (noise,) = {epoch.noise_multiplier for epoch in history}
    plain = dm.Filter(4.0, 1e-5)
    assert not plain.admits(dm.SampledGaussian(40 / 120, noise), 12)
    assert [epoch.steps for epoch in history] == [3, 2, 3, 3]
    assert said()["epsilon"] <= 4.0


@pytest.mark.parametrize("menu", [True, False])
def test_a_checkpoint_tells_whether_there_was_a_menu(menu):
    config(budget={"menu": menu})
    run("config.toml")
    saved = RunFolder("run").saved()
    assert (saved.menu, saved.noise) == (menu, 2.0)
