# SPDX-License-Identifier: Apache-2.0
"""What the runs came to: means and spreads, the best with hindsight, and the search simulated."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from experiments.no_tuning.arms import TRIALS

SEARCHES = 4000
"""How many searches are simulated on the runs of the thirty settings."""


def better(run: dict[str, Any]) -> tuple[str, float]:
    """Which iterate did better on the test records, and how well."""
    kind = max(("average", "last"), key=lambda kind: run[kind])
    return kind, run[kind]


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return mean, least and most of each arm in percent, and the most epsilon that ours spent."""
    out: dict[str, Any] = {
        arm: _spread([run["accuracy"] for run in found[arm]])
        for arm in ("ours", "readme")
        if arm in found
    }
    if "ours" in found:
        out["epsilon"] = max(run["epsilon"] for run in found["ours"])
    if "fixed" in found:
        fixed = {
            (name, kind): _spread([run[kind] for run in runs])
            for name, runs in found["fixed"]["finalists"].items()
            for kind in ("average", "last")
        }
        name, kind = max(fixed, key=lambda key: fixed[key][0])
        out |= {"fixed": fixed[name, kind], "setting": f"{name.split(', ', 1)[1]}, {kind} iterate"}
    if "searched" in found:
        out["searched"] = _searched(found)
    return out


def _spread(values: list[float]) -> list[float]:
    return [round(100 * each, 4) for each in (statistics.mean(values), min(values), max(values))]


def _searched(found: dict[str, Any]) -> list[float]:
    """Mean, and the 5th and 95th percentile, of what a private search would have published.

    Each search draws how many trials there are, and their settings; all trials of one setting are
    the run that was made of it, each with a fresh noisy score.
    """
    random = np.random.default_rng(0)
    runs = [run for (run,) in found["searched"].values()]
    test = 100 * np.array([run["average"] for run in runs])
    right = found["records"] * np.array([run["train_average"] for run in runs])
    shown = []
    for count in trials(random, SEARCHES):
        drawn = random.integers(len(runs), size=count)
        scores = right[drawn] + found["score_noise"] * random.standard_normal(count)
        shown.append(test[drawn[scores.argmax()]])
    return [round(float(each), 4) for each in (np.mean(shown), *np.percentile(shown, (5, 95)))]


def trials(random: np.random.Generator, size: int) -> Any:
    """Numbers of trials from the logarithmic law with the mean that was paid for."""
    low, high = 1e-9, 1 - 1e-9  # the law's parameter: its mean rises with it
    for _ in range(100):
        middle = (low + high) / 2
        mean = -middle / ((1 - middle) * np.log1p(-middle))
        low, high = (middle, high) if mean < TRIALS else (low, middle)
    return random.logseries(low, size=size)
