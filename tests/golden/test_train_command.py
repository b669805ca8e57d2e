"""What `dosimeter train` writes and says: a whole run, and one that is interrupted and resumed.

Floats that follow from gradients are kept to 4 digits, and epsilons to the last bit. The model that
is interrupted computes in double precision, so that its weights are the same on all machines; see
`test_training.py`. Files with a dot before their name are not recorded.
"""

import json
import os
import pathlib
import re

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import dosimeter as dm
import goldens
from dosimeter.cli.app import app
from dosimeter.ledger import Ledger
from golden.runs import digest

MODEL = """
import os, signal
from torch import nn

class Interrupted(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer, self.seen = nn.Linear(columns, classes).double(), 0

    def forward(self, x):
        if self.training and len(x) > 5:  # the self-test runs five records and fewer
            self.seen += 1
            if self.seen == int(os.environ.get("INTERRUPT_AT", 0)):
                os.kill(os.getpid(), signal.SIGINT)
        return self.layer(x.flatten(1).double())

def make(shape, classes):
    return Interrupted(shape[0] * shape[1] * shape[2], classes)
"""

EXACT = ("epsilon", "limit", "delta", "noise", "noise_multiplier", "spent_share")
TIMES = ("seconds",)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    pathlib.Path("interrupted_model.py").write_text(MODEL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(*arguments):
    """What the command says, and how it ends."""
    done = CliRunner().invoke(app, ["train", *arguments])
    return {"code": done.exit_code, "says": _masked(done.stdout), "notes": _masked(done.stderr)}


def _masked(text):
    text = text.replace(str(pathlib.Path.cwd()), "HERE")
    lines = [line.rstrip() for line in re.sub(r"\d+:\d\d(:\d\d)?", "TIME", text).splitlines()]
    # Said only where pricing takes seconds.
    return [line for line in lines if not line.startswith("note: pricing beforehand")]


def config(changes):
    """Writes the config that `--init` gives, with lines in place of others."""
    path = pathlib.Path("config.toml")
    path.unlink(missing_ok=True)
    assert run("--init")["code"] == 0
    text = path.read_text()
    for line, other in changes.items():
        text, found = re.subn(rf"(?m)^(# )?{re.escape(line)}.*$", other, text)
        assert found == 1, line
    path.write_text(text)


def written(name, weights=True):
    """What a run left in its folder."""
    folder = pathlib.Path(name)
    files = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    state = load_file(folder / "model.safetensors")
    said = {
        name: _plain(json.loads((folder / f"{name}.json").read_text()))
        for name in ("run", "history")
    }
    return {
        "files": files,
        **said,
        "guarantee": (folder / "guarantee.txt").read_text().splitlines(),
        "weights": {name: list(value.shape) for name, value in sorted(state.items())},
        **({"parameters": digest(state[name] for name in sorted(state))} if weights else {}),
    }


def _plain(value, key=""):
    if isinstance(value, dict):
        return {name: _plain(each, name) for name, each in value.items() if name not in TIMES}
    if isinstance(value, list):
        return [_plain(each, key) for each in value]
    if isinstance(value, float):
        return value.hex() if key in EXACT else f"{value:.4g}"
    return "VERSION" if key == "dosimeter" else value


OWN = {'kind = "mlp"': 'kind = "interrupted_model:make"', "hidden = 32": ""}
SHORT = {"epochs = 30": "epochs = 3", "seed = 1": "seed = 1"}
ODOMETER = {
    'kind = "filter"': 'kind = "odometer"', "epsilon = 4.0": "",
    "noise_multiplier = 4.0": "noise_multiplier = 4.0",
}  # fmt: skip
LEDGER = {
    'kind = "filter"': 'kind = "ledger"', "epsilon = 4.0": "", "delta = 1e-5": "",
    'ledger = "sqlite': 'ledger = "sqlite:///budgets.db"', 'name = "patients"': 'name = "people"',
    "noise_multiplier = 4.0": "noise_multiplier = 4.0",
}  # fmt: skip


def journal():
    """The spends of a budget of a ledger."""
    budget = Ledger.open("sqlite:///budgets.db")["people"]
    entries = [
        [str(entry.kind), entry.count, entry.purpose, entry.epsilon.hex()]
        for entry in budget.history(1000)
    ]
    return {"entries": entries, "epsilon": budget.epsilon.hex()}


def test_a_whole_run(monkeypatch):
    monkeypatch.setenv("INTERRUPT_AT", "0")
    found = {"init": run("--init")}
    config(SHORT)
    found["digits"] = {**run("config.toml"), **written("run", weights=False)}
    found["again"] = run("config.toml")
    found["resumed when finished"] = run("config.toml", "--resume")
    goldens.compare("train", found, near=2e-3)  # in single precision


POLICY = {
    **OWN, "seed = 1": "seed = 1", "epochs = 30": "epochs = 8", "epsilon = 4.0": "epsilon = 20.0",
    "menu = false": "menu = false",
    "[policy]": "[policy]\nkind = 'adapt_noise'\nstep = 0.5\nevery = 1\nhorizon = 2\nlevels = 2",
    "[stop]": "[stop]\npatience = 2\nevery = 2",
    "[signal]": "[signal]\nkind = 'correct_count'\nnoise_multiplier = 30.0",
}  # fmt: skip


def test_a_run_that_a_policy_changes_and_patience_ends(monkeypatch):
    monkeypatch.setenv("INTERRUPT_AT", "0")
    monkeypatch.setattr(os, "urandom", bytes)  # else each reading has other noise
    config(POLICY)
    found = {"whole": {**run("config.toml"), **written("run")}}
    goldens.compare("train_policy", found, near=1e-9)


@pytest.mark.parametrize("kind", ["filter", "odometer", "ledger"])
def test_a_run_that_is_interrupted_and_resumed(monkeypatch, kind):
    """Compares three epochs of three steps; the one that is interrupted ends after two."""
    budget = {"filter": {}, "odometer": ODOMETER, "ledger": LEDGER}[kind]
    found = {}
    for name, at in (("whole", 0), ("interrupted", 5)):
        if kind == "ledger":
            pathlib.Path("budgets.db").unlink(missing_ok=True)
            Ledger.open("sqlite:///budgets.db").create("people", epsilon=8.0, delta=1e-5)
        config({**SHORT, **OWN, **budget, 'folder = "run"': f'folder = "{name}"'})
        monkeypatch.setenv("INTERRUPT_AT", str(at))
        found[name] = {**run("config.toml"), **written(name)}
        if at:
            if kind == "ledger":  # others spend meanwhile
                Ledger.open("sqlite:///budgets.db")["people"].spend(dm.Gaussian(50.0))
            monkeypatch.setenv("INTERRUPT_AT", "0")
            found["resumed"] = {**run("config.toml", "--resume"), **written(name)}
        if kind == "ledger":
            found[f"journal, {name}"] = journal()
    goldens.compare(f"train_{kind}", found, near=1e-9)
