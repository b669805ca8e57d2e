"""Plans of runs in neutral words, and how each planner is asked for one.

A planner is asked the way its users ask it, up to the first step of training. What it would train
with is then read off the engine, and spent from its gate.
"""

import math
import pathlib
import warnings

import numpy as np
import torch
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.integrations.budgets import priced
from dosimeter.ledger import Ledger
from dosimeter.runs.reader import config_from
from dosimeter.runs.run import train
from dosimeter.training import (
    AdaptBatch,
    AdaptNoise,
    CorrectCount,
    LowerNoise,
    PrivateEngine,
    StopEarly,
    Trainer,
    fit,
)

NEAR = 1e-9
"""How near plans are where processors round differently."""

POLICIES = {"adapt_noise": AdaptNoise, "adapt_batch": AdaptBatch, "lower_noise": LowerNoise}

USUAL = {
    "records": 1000, "epsilon": 3.0, "delta": 1e-5, "gate": "own", "batch": 50, "epochs": 4,
    "noise": None, "policy": None, "stop": None, "signal": 100.0, "spent": 0, "closed": False,
}  # fmt: skip
"""What a case says where it says nothing else.

`gate` is "own" (a filter that the planner makes), or a "filter" without a menu, an "odometer" or
a budget in a "ledger", from which `spent` steps of noise 2 are spent. `signal` is the noise of a
reading.
"""

CHOSEN = {"batch": None, "epochs": None}
LEVELS = {"kind": "adapt_noise", "step": 0.5, "every": 2, "horizon": 2, "levels": 2}
MANY = {**LEVELS, "levels": 50}
SMALLER = {"kind": "adapt_batch", "step": 10, "minimum": 20, "every": 2, "horizon": 2}
LOWER = {"kind": "lower_noise", "start": 4.0, "step": 1.0, "minimum": 2.0, "every": 2}
PATIENCE = {"patience": 2, "every": 3}

FAST = [
    {},
    {"noise": 2.0},
    {"epsilon": 0.5, "noise": 0.3},
    {"epsilon": 1.0, "noise": 1.0, "epochs": 40},
    {"epsilon": 50.0, "noise": 1.0},
    {"noise": 0.01},
    {"noise": 0.0},
    {"noise": -1.0},
    {"noise": math.nan},
    {"noise": math.inf},
    {"batch": 70},
    {"batch": 1000},
    {"batch": 1000, "noise": 20.0},
    {"batch": 1001},
    {"batch": 0},
    {"epochs": 0},
    {"epochs": 2.5},
    {"epochs": -1},
    {"epochs": -1, "noise": 2.0},
    {"epsilon": 0.0},
    {"epsilon": -1.0},
    {"epsilon": math.nan},
    {"epsilon": 1e-4, **CHOSEN},
    {"delta": 0.0},
    {"delta": 1.0},
    {"records": 1, **CHOSEN},
    {"records": 2, **CHOSEN},
    {"records": 10, **CHOSEN},
    CHOSEN,
    {"gate": "filter", "noise": 2.0},
    {"gate": "filter"},
    {"gate": "filter", "epsilon": 0.5, "noise": 0.3},
    {"gate": "odometer"},
    {"gate": "ledger", "noise": 2.0},
    {"gate": "ledger"},
    {"gate": "ledger", "noise": 2.0, "spent": 150, "epochs": 40},
    {"gate": "ledger", "noise": 0.5, "spent": 250},
    {"gate": "ledger", "noise": 2.0, "closed": True},
    {"gate": "filter", "noise": 2.0, "policy": SMALLER},
    {"noise": 2.0, "policy": MANY},
]

SLOW = [
    *({"records": records, **CHOSEN} for records in (100, 10_000, 60_000)),
    *({"epsilon": epsilon, **CHOSEN} for epsilon in (0.1, 0.5, 8.0, 50.0, 500.0)),
    *({"delta": delta} for delta in (1e-9, 1e-3)),
    {"epsilon": 0.5, "noise": 0.3, "records": 120, "batch": 40, "epochs": 3},
    {"gate": "odometer", "noise": 2.0},
    {"noise": 2.0, "policy": LOWER},
    {"batch": None},
    {"epochs": None},
    {"noise": 2.0, **CHOSEN},
    {"policy": LEVELS},
    {"noise": 2.0, "policy": LEVELS, "epochs": 6},
    {"policy": LEVELS, "signal": 0.5},
    {"policy": SMALLER},
    {"policy": MANY},
    {"policy": LOWER},
    {"stop": PATIENCE, "epochs": 6},
    {"policy": LEVELS, "stop": PATIENCE, "epochs": 6},
    {"gate": "odometer", "noise": 2.0, "stop": PATIENCE},
    {"records": 60_000, "batch": 4096, "epochs": 30, "epsilon": 1.0, "noise": 1.5},
]


class Planned(Exception):
    """Ends a run before its first step, and holds what it would have been."""


def cases(changes):
    """The cases by name; a name says what is unusual in a case."""
    named = [
        (", ".join(f"{key}={_word(value)}" for key, value in each.items()) or "usual", each)
        for each in changes
    ]
    found = {name: {**USUAL, **each} for name, each in named}
    assert len(found) == len(named)
    return found


def _word(value):
    if isinstance(value, dict):
        return value.get("kind", "patience") + "".join(
            f" {key} {word}" for key, word in value.items() if key == "levels"
        )
    return "left out" if value is None else str(value)


def asked(planner, case, folder, monkeypatch):
    """What a planner makes of a case: a plan or a refusal, and what it says besides."""
    said = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(Trainer, "epochs", lambda trainer, most, *_: _plan(trainer, most, case))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            planner(case, said.append)
            found = {"plans": "nothing, for it is never asked this"}
        except Planned as planned:
            (found,) = planned.args
        except Exception as error:
            found = {"raised": type(error).__name__, "says": str(error)}
    said += [str(warning.message) for warning in warned]
    # Said only where pricing takes seconds.
    said = [line for line in said if not line.startswith("note: pricing beforehand")]
    return {**found, "said": said}


def _plan(trainer, epochs, case):
    """Raises the plan of a run that is about to begin."""
    engine = trainer.engine
    steps = max(0, math.ceil(epochs * engine.steps_per_epoch))
    settings = {"batch": engine.batch_size, "steps": steps, "noise": engine.noise_multiplier.hex()}
    reading = dm.Gaussian(case["signal"])
    spent = spending(engine.gate, engine.step_cost(), steps, reading, _readings(case, epochs))
    raise Planned({**settings, **spent, "guarantee": str(engine.guarantee())})


def spending(gate, step, steps, reading, readings):
    """What a gate makes of a plan: its menu, and what it pays for when readings come first."""
    menu = getattr(gate, "menu", None)
    readings_fit = not readings or gate.admits(reading, readings)
    if readings and readings_fit:
        gate.spend(reading, readings)
    paid = _most(lambda count: gate.admits(step, count), steps)
    if paid:
        gate.spend(step, paid)
    return {
        "menu": None if menu is None else [[repr(each.cost), each.price] for each in menu.items],
        "readings": [readings, readings_fit],
        "steps_paid": paid,
        "epsilon": gate.epsilon.hex(),
    }


def _readings(case, epochs):
    """How many epochs end with a reading."""
    gaps = [each.get("every", 1) for each in (case["policy"], case["stop"]) if each]
    return sum(any(epoch % gap == 0 for gap in gaps) for epoch in range(1, int(epochs) + 1))


def _most(fits, most):
    """The greatest count up to `most` that fits."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _policies(case):
    made = []
    if case["policy"] is not None:
        options = dict(case["policy"])
        made.append(POLICIES[options.pop("kind")](**options))
    if case["stop"] is not None:
        made.append(StopEarly(**case["stop"]))
    return made


def _signal(case):
    asks = case["policy"] or case["stop"]
    return CorrectCount(noise_multiplier=case["signal"]) if asks else None


def _data(case):
    records = case["records"]
    return TensorDataset(torch.zeros(records, 1), torch.arange(records) % 2)


def _gate(case):
    """What `fit` and Lightning take: limits for a filter of their own, or a gate."""
    epsilon, delta = case["epsilon"], case["delta"]
    if case["gate"] == "own":
        return epsilon, delta
    if case["gate"] == "filter":
        return dm.Filter(epsilon, delta)
    return dm.Odometer(delta) if case["gate"] == "odometer" else ledger(case)["people"]


def ledger(case):
    """A new ledger with a budget of a case, partly spent."""
    path = pathlib.Path("budgets.db")
    path.unlink(missing_ok=True)
    opened = Ledger.open(f"sqlite:///{path}")
    budget = opened.create("people", epsilon=case["epsilon"], delta=case["delta"])
    if case["spent"]:
        budget.spend(dm.SampledGaussian(0.05, 2.0), case["spent"])
    if case["closed"]:
        budget.close()
    return opened


def by_fit(case, said):
    """Asks `fit`."""
    fit(
        torch.nn.Linear(1, 2), _data(case), _gate(case),
        epochs=case["epochs"], batch_size=case["batch"], noise_multiplier=case["noise"],
        policy=_policies(case), signal=_signal(case), progress=False,
    )  # fmt: skip


def tables(case):
    """The tables of a config file, and the files that they name."""
    records = case["records"]
    np.savez("data.npz", x=np.zeros((records, 1)), y=np.arange(records) % 2)
    limits = {"epsilon": case["epsilon"], "delta": case["delta"]}
    budget = {"kind": "filter", **limits, "menu": case["gate"] == "own"}
    if case["gate"] == "odometer":
        budget = {"kind": "odometer", "delta": case["delta"]}
    if case["gate"] == "ledger":
        ledger(case)
        budget = {"kind": "ledger", "ledger": "sqlite:///budgets.db", "name": "people"}
    names = {"batch": "batch_size", "epochs": "epochs", "noise": "noise_multiplier"}
    found = {
        "data": {"kind": "npz", "path": "data.npz", "classes": 2, "bounds": [0, 1]},
        "model": {"kind": "linear"},
        "budget": budget,
        "training": {key: case[name] for name, key in names.items() if case[name] is not None},
        "output": {"folder": "run"},
    }
    for name in ("policy", "stop"):
        if case[name] is not None:
            found |= {name: dict(case[name]), "signal": {"noise_multiplier": case["signal"]}}
    return found


def by_train(case, said):
    """Asks `dosimeter train`."""
    train(config_from(tables(case)), "", progress=False, note=said)


def by_lightning(case, said):
    """Asks what Lightning and transformers ask, and trains in a loop of one's own.

    Without a number of epochs they run until they are stopped. A loader always has a batch size.
    """
    batch, epochs = case["batch"], -1 if case["epochs"] is None else case["epochs"]
    if batch is None:
        return
    policies, signal = _policies(case), _signal(case)
    noise, gate = priced(
        _gate(case), case["noise"],
        batch_size=batch, records=case["records"], epochs=epochs, policies=policies,
        reading=None if signal is None else signal.cost,
    )  # fmt: skip
    model, engine = torch.nn.Linear(1, 2), PrivateEngine(gate)
    engine.make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), _data(case),
        noise_multiplier=noise, batch_size=batch, max_grad_norm=1.0,
    )  # fmt: skip
    Trainer(engine, policy=policies, signal=signal).epochs(epochs)


PLANNERS = {"fit": by_fit, "train": by_train, "lightning": by_lightning}


def differences(plans, planners):
    """The names of the cases in which planners differ, by what they differ in.

    A refusal where another plans is a difference; the words of two refusals are not.
    """
    found = {}
    for name, case in plans.items():
        compared = [case[planner] for planner in planners if "plans" not in case[planner]]
        refused = ["raised" in each for each in compared]
        if any(refused):
            odd = [] if all(refused) else ["refusal"]
        else:
            keys = ("batch", "steps", "noise", "menu", "epsilon")
            odd = [key for key in keys if any(each[key] != compared[0][key] for each in compared)]
        for key in odd:
            found.setdefault(key, []).append(name)
    return found
