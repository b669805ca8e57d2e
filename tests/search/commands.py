"""What the tests of `dosimeter tune` share: configs, the command, and what it left behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import torch
from typer.testing import CliRunner

import dosimeter as dm
from configs import write_config
from dosimeter.cli.app import app
from dosimeter.ledger import Kind, Ledger

torch.set_num_threads(1)

HALVING = "[search]\ntrials = 9\n[search.space]\ntraining.learning_rate = [0.1, 0.5, 2.0]\n"
LEDGER = {"kind": "ledger", "ledger": "sqlite:///budgets.db", "name": "people"}
OWN = {"epsilon": 8.0, "menu": False}
SHORT = "[search]\ntrials = 6\nreduction = 3\n[search.space]\n"
BEST = HALVING.replace("trials = 9", "method = 'best_of'\ntrials = 6")

# A model that ends its process, like kill -9, in a chosen step of any one trial.
TRAP = """
import os, signal
from torch import nn

class Trap(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer, self.seen = nn.Linear(columns, classes), 0

    def forward(self, x):
        if self.training and len(x) > 5:  # the self-test runs five records and fewer
            self.seen += 1
            if self.seen == int(os.environ.get("TRAP_STEP", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)

def make(shape, classes):
    return Trap(shape[0], classes)
"""

# A model whose outputs are finite, while the squares of its weights are not, nor they themselves
# after a long step; and one that raises in its first step, though it passes the self-test.
BROKEN = """
import torch
from torch import nn

class Large(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer = nn.Linear(columns, classes)
        self.large = nn.Parameter(torch.full((64,), 3.4e38))

    def forward(self, x):
        return self.layer(x) + (1e-38 * self.large).mean()

class Full(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer = nn.Linear(columns, classes)

    def forward(self, x):
        if self.training and len(x) > 5:
            raise RuntimeError("out of memory, say")
        return self.layer(x)

def large(shape, classes):
    return Large(shape[0], classes)

def full(shape, classes):
    return Full(shape[0], classes)
"""


def config(space=HALVING, budget=OWN, **changes):
    path = pathlib.Path("config.toml")
    if budget is LEDGER:
        budget = {**LEDGER, "epsilon": None, "delta": None}
    training = {"epochs": 9, "batch_size": 40, "noise_multiplier": 4.0}
    training |= changes.pop("training", {})
    write_config(path, budget=budget, training=training, **changes)
    path.write_text(path.read_text() + space)


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["tune", *arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def said():
    return json.loads(pathlib.Path("run/search.json").read_text())


def journal(url="sqlite:///run/budget.db", name="search"):
    """The spends of a budget, after its journal was replayed and fits."""
    with Ledger.open(url) as ledger:
        assert ledger.verify(name).ok
        entries = ledger[name].history(10_000)
        return ledger[name].epsilon, [entry for entry in entries if entry.kind is Kind.SPEND]


def steps_of(trial):
    return sum(n for cost, n in trial["charged"].items() if cost.startswith("SampledGaussian"))


def killed(**environment):
    """Runs the command until it is killed in the middle of a step."""
    source = str(pathlib.Path(dm.__file__).parents[1])
    path = os.pathsep.join([source, str(pathlib.Path.cwd()), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "from dosimeter.cli import main; main()", "tune"],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def proposing(monkeypatch, *settings):
    """Lets the trials of a halving have these settings, one after another."""
    from dosimeter.search.halving import Halving

    asked, propose = iter(settings), Halving._asked

    def enqueued(self):
        self.study.enqueue_trial(next(asked))
        return propose(self)

    monkeypatch.setattr(Halving, "_asked", enqueued)
