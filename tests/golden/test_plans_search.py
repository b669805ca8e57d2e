"""What the planner of `dosimeter tune` makes of the plans that the other planners are asked for.

This file goes together with that planner; `plans.json` and `plans_slow.json` are of the others.
`differ` names where a search with one trial and public scores differs from `dosimeter train`.
"""

import json
import pathlib

import pytest

import goldens
from dosimeter.search.plan import Planner
from dosimeter.search.table import read_search
from golden.plans import (
    FAST,
    NEAR,
    SLOW,
    Planned,
    asked,
    by_train,
    cases,
    differences,
    ledger,
    spending,
    tables,
)

SEARCHES = [
    ({"trials": 9}, {"gate": "filter", "epochs": 9}),
    ({"trials": 9, "score_share": 0.3}, {"gate": "filter", "epochs": 9, "epsilon": 1.0}),
    ({"trials": 27}, {"gate": "filter", "epochs": 9, "noise": 3.0}),
    ({"trials": 27}, {"gate": "filter", "epochs": 1}),
    ({"trials": 9}, {"gate": "filter", "epochs": 9, "noise": 0.5}),
    ({"trials": 9}, {"gate": "ledger", "epochs": 9, "noise": 6.0, "spent": 50}),
    ({"method": "best_of", "trials": 6}, {"gate": "filter", "epsilon": 8.0}),
    ({"method": "best_of", "trials": 6, "eta": 1.0}, {"gate": "filter", "noise": 3.0}),
    ({"method": "best_of", "trials": 6}, {"gate": "filter", "noise": 0.3}),
]


def by_search(**table):
    """Returns a planner that asks for a search."""

    def ask(case, said):
        settings = tables(case)
        if table.get("public"):
            settings["data"]["public_test"] = True
        settings |= {"search": table, "search.space": {"training.learning_rate": [0.1, 1.0]}}
        path = pathlib.Path("config.toml")
        path.write_text("".join(_toml(name, values) for name, values in settings.items()))
        budget = ledger(case)["people"] if case["gate"] == "ledger" else None
        records = case["records"]
        planner = Planner(read_search(path), records, budget, said, scored=records)
        plan, gate = planner.plan()
        found = {
            "batch": case["batch"],
            "steps": plan.total_steps,
            "noise": plan.noise.hex(),
            "score_noise": None if plan.score_noise is None else plan.score_noise.hex(),
            "rungs": [plan.counts, plan.steps],
            "selection_delta": None if plan.delta is None else plan.delta.hex(),
        }
        if table.get("method") != "best_of":
            scores = 0 if plan.score is None else sum(plan.counts)
            step = planner.step(plan.noise)
            found |= spending(gate, step, plan.total_steps, plan.score, scores)
        raise Planned({**found, "guarantee": str(gate.guarantee())})

    return ask


def _toml(name, values):
    lines = (
        f"{key} = {value if isinstance(value, float) else json.dumps(value)}\n"
        for key, value in values.items()
    )
    return f"[{name}]\n{''.join(lines)}\n"


def _compare(name, changes, tmp_path, monkeypatch):
    found = {}
    planners = {"train": by_train, "search": by_search(trials=1, public=True)}
    for number, (case, settings) in enumerate(cases(changes).items()):
        found[case] = {}
        for planner, ask in planners.items():
            folder = tmp_path / f"{number}-{planner}"
            folder.mkdir()
            found[case][planner] = asked(ask, settings, folder, monkeypatch)
    differ = differences(found, list(planners))
    goldens.compare(
        name,
        {**{case: each["search"] for case, each in found.items()}, "differ": differ},
        near=NEAR,
    )


def test_plans_of_searches_with_one_trial(tmp_path, monkeypatch):
    """Compares plans that are priced fast."""
    _compare("plans_search", FAST, tmp_path, monkeypatch)


@pytest.mark.slow
def test_plans_of_searches_with_one_trial_that_take_longer_to_price(tmp_path, monkeypatch):
    """Compares plans that are not."""
    _compare("plans_search_slow", SLOW, tmp_path, monkeypatch)


@pytest.mark.slow
def test_plans_of_searches(tmp_path, monkeypatch):
    """Compares plans of several trials, with scores that are paid for."""
    found = {}
    for number, (table, changes) in enumerate(SEARCHES):
        ((case, settings),) = cases([changes]).items()
        folder = tmp_path / str(number)
        folder.mkdir()
        found[f"{table}, {case}"] = asked(by_search(**table), settings, folder, monkeypatch)
    goldens.compare("plans_search_trials", found, near=NEAR)
