"""What a gate is charged when a run goes on from a checkpoint.

An epoch is 5 steps, and 20 are a whole run. "finished" opens a whole run twice more, "killed" goes
on from a checkpoint of 10 after a kill at 15, and "copied" goes on from 10 to 15 twice.

The rule to come: a gate that holds what the checkpoint names is not charged for it again, and every
step that is executed after the load is charged. A gate that lives on then has 20, 15 + 10 and
10 + 5 + 5; a new gate is charged with the checkpoint. Of what is recorded this is to change:

- `fit` charges a budget of a ledger with the whole checkpoint at each opening: a finished run that
  is opened twice more costs 60, a killed one 35 and a copied one 40.
- `fit` and engines do the same to a filter or an odometer that has moved on since the checkpoint.
  One that has not moved is recognised by its state, and opening a finished run is free.
- Only who says `spends_kept=True` is charged by the rule, and then a new gate holds too little.
"""

import shutil

import pytest
import torch
from torch.utils.data import TensorDataset

import dosimeter as dm
import goldens
from dosimeter.ledger import Ledger
from dosimeter.training import PrivateEngine, fit

EPOCH, SAVED, KILLED, WHOLE = 5, 10, 15, 20
LIMITS = {"epsilon": 50.0, "delta": 1e-5}
SETTINGS = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "batch_size": 8}


class Killed(Exception):
    """Ends a run in a step, as if its process was killed."""


class Counted:
    """Counts what a gate was charged with."""

    charged = 0

    def spend(self, cost, count=1):
        super().spend(cost, count)
        self.charged += count


class CountedFilter(Counted, dm.Filter):
    """A filter that counts."""


class CountedOdometer(Counted, dm.Odometer):
    """An odometer that counts."""


class InMemory:
    """Gates of a process: one for all runs, or as a process that is started again has it."""

    def __init__(self, make, after="kept"):
        self._make, self._after = make, after
        self.gates = [make()]

    def gate(self, saved=None):
        """The gate of another run; `saved` is what a checkpoint says of the last."""
        if saved is not None and self._after == "new":
            self.gates.append(self._make())
        if saved is not None and self._after == "restored":
            self.gates.append(type(self.gates[0]).from_state(saved))
        return self.gates[-1]

    def charged(self):
        return [[gate.charged, gate.epsilon.hex()] for gate in self.gates]


class InLedger:
    """A budget of a ledger, which all runs spend from."""

    def __init__(self, path):
        self._path = f"sqlite:///{path}"
        Ledger.open(self._path).create("people", **LIMITS)

    def gate(self, saved=None):
        return Ledger.open(self._path)["people"]

    def charged(self):
        budget = self.gate()
        spends = [entry for entry in budget.history(1000) if entry.kind == "spend"]
        return [[sum(entry.count for entry in spends), budget.epsilon.hex()]]


GATES = {
    "filter": lambda _: InMemory(lambda: CountedFilter(**LIMITS)),
    "new filter": lambda _: InMemory(lambda: CountedFilter(**LIMITS), "new"),
    "restored filter": lambda _: InMemory(lambda: CountedFilter(**LIMITS), "restored"),
    "odometer": lambda _: InMemory(lambda: CountedOdometer(LIMITS["delta"])),
    "new odometer": lambda _: InMemory(lambda: CountedOdometer(LIMITS["delta"]), "new"),
    "ledger": lambda path: InLedger(path / "budgets.db"),
}


def _data():
    return TensorDataset(torch.eye(40), torch.arange(40) % 2)


class Sgd(torch.optim.SGD):
    """Ends the run within a step."""

    last = None

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self._left = Sgd.last

    def step(self, closure=None):
        super().step()
        if self._left is not None:
            self._left -= 1
            if not self._left:
                raise Killed


class ByFit:
    """Runs by `fit(checkpoint=)`, which saves after each epoch."""

    def __init__(self, gates, folder, **_):
        self._gates, self.path = gates, folder / "run.pt"

    def run(self, steps, path=None, kill=None):
        """Goes on until so many steps were taken in all; the epochs."""
        path = path or self.path
        saved = torch.load(path, weights_only=True)["engine"]["gate"] if path.exists() else None
        Sgd.last = kill
        options = {**SETTINGS, "epochs": steps // EPOCH, "optimizer": Sgd, "progress": False}
        model = torch.nn.Linear(40, 2)
        return fit(model, _data(), self._gates.gate(saved), checkpoint=path, **options).steps


class ByEngine:
    """Runs by an engine in a loop of one's own, which saves what `state_dict` gives."""

    def __init__(self, gates, folder, **load):
        self._gates, self.path, self._load = gates, folder / "run.pt", load

    def run(self, steps, path=None, kill=None):
        """Goes on until so many steps were taken in all."""
        path = path or self.path
        state = torch.load(path, weights_only=True) if path.exists() else None
        engine = PrivateEngine(self._gates.gate(None if state is None else state["gate"]))
        model = torch.nn.Linear(40, 2)
        Sgd.last = kill
        optimizer = Sgd(model.parameters())
        private, optimizer, loader = engine.make_private(model, optimizer, _data(), **SETTINGS)
        if state is not None:
            engine.load_state_dict(state, **self._load)
        while engine.steps < steps:
            for x, y in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(private(x), y).backward()
                optimizer.step()
            torch.save(engine.state_dict(), path)
        return engine.steps


ROADS = {
    "fit": (ByFit, {}, ["filter", "new filter", "odometer", "ledger"]),
    "engine": (ByEngine, {}, [*GATES]),
    "engine, spends kept": (ByEngine, {"spends_kept": True}, ["new filter", "odometer", "ledger"]),
}


def finished(runs):
    """Opens a finished run twice more."""
    return [runs.run(WHOLE), runs.run(WHOLE), runs.run(WHOLE)]


def killed(runs):
    """Goes on from a checkpoint of 10 after a kill at 15."""
    with pytest.raises(Killed):
        runs.run(WHOLE, kill=KILLED)
    return [runs.run(WHOLE)]


def copied(runs):
    """Goes on from a checkpoint and from its copy."""
    done = [runs.run(SAVED)]
    other = runs.path.with_name("copy.pt")
    shutil.copy(runs.path, other)
    return [*done, runs.run(KILLED), runs.run(KILLED, other)]


def test_charges_of_resumption(tmp_path):
    """Compares [steps charged, epsilon] of each gate that there was, oldest first."""
    found = {}
    for scenario in (finished, killed, copied):
        for road, (runs, load, kinds) in ROADS.items():
            for kind in kinds:
                name = f"{scenario.__name__}, {road}, {kind}"
                folder = tmp_path / name
                folder.mkdir()
                gates = GATES[kind](folder)
                steps = goldens.outcome(lambda: scenario(runs(gates, folder, **load)))  # noqa: B023
                found[name] = {"steps": steps, "charged": gates.charged()}
    goldens.compare("resumption", found, near=1e-9)
