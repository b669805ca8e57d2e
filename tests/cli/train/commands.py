"""`dosimeter train` as the suites call it, and the configs they give it."""

import json
import os
import pathlib
import subprocess
import sys

import torch
from typer.testing import CliRunner

import dosimeter as dm
from configs import write_config
from dosimeter.cli.app import app

torch.set_num_threads(1)

TABLE_KEYS = dict.fromkeys(("label", "classes", "bounds"))
TRAPPED = {"model": {"kind": "trap_of_mine:make"}, "training": {"epochs": 4, "seed": 1}}


def run(*arguments, code=0):
    """Runs the command in this process; what it printed, once it has ended with the code."""
    done = CliRunner().invoke(app, ["train", *arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def process(*arguments, **environment):
    """Starts the command as a process of its own."""
    command = [sys.executable, "-c", "from dosimeter.cli import main; main()", "train"]
    source = str(pathlib.Path(dm.__file__).parents[1])
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def said(folder="run"):
    """What run.json says."""
    return json.loads(pathlib.Path(folder, "run.json").read_text())


def config(**changes):
    """Writes config.toml, changed."""
    write_config(pathlib.Path("config.toml"), **changes)


def ledger_config(**changes):
    """Writes one whose budget is in a ledger."""
    budget = {"kind": "ledger", "epsilon": None, "delta": None}
    config(budget={**budget, "ledger": "sqlite:///budgets.db", "name": "patients"}, **changes)
