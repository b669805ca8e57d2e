# SPDX-License-Identifier: Apache-2.0
"""The four ways to train that are compared, each as one run from plain settings and a seed.

(a) readme: the settings of Opacus' README, for as many steps as fit into epsilon.
(b) fixed: one of thirty settings, with the least noise by exact accounting. The best of them, found
    on the test records, is the yardstick that nobody may have.
(c) searched: the same setting with the noise at which the best of about thirty, by `approximate`,
    is within epsilon.
(d) ours: `fit` with epsilon and delta.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.accounting.calibrate import least
from dosimeter.accounting.priced.share import fits_menu
from dosimeter.accounting.tally import largest
from dosimeter.search import approximate, selection
from dosimeter.training import fit
from experiments.no_tuning import plain
from experiments.no_tuning.tasks import load
from experiments.seeds import Tell

TRIALS = 30


def run(settings: dict[str, Any], seed: int, tell: Tell) -> dict[str, Any]:
    """One run of one arm."""
    found = {"readme": _readme, "fixed": _fixed, "searched": _fixed, "ours": _ours}[
        settings["arm"]
    ](settings, seed)
    tell(1, 1, f"{100 * found['accuracy']:.2f} %")
    return found


def _ours(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    task = load(settings["task"])
    torch.set_num_threads(1)
    model = task.model(seed)
    data = TensorDataset(task.x, task.y)
    history = fit(
        model, data, epsilon=settings["epsilon"], delta=settings["delta"], seed=seed, progress=False
    )
    weights = [p.detach() for p in model.parameters()]
    return {
        "accuracy": plain.accuracy(weights, task.test_x, task.test_y),
        "epsilon": history.epsilon,
        "steps": history.steps,
        "noise_multiplier": history[0].noise_multiplier,
        "batch_size": history[0].batch_size,
        "rates": [history[0].learning_rate, history[-1].learning_rate],
        "ended": history.ended,
    }


def _readme(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    task, how = load(settings["task"]), settings["readme"]
    batch = min(how["batch_size"], len(task.x))
    cost = _step(batch / len(task.x), how["noise_multiplier"])
    most = 100 * math.ceil(len(task.x) / batch)
    steps = largest(
        lambda count: (
            count <= most and fits_menu([(cost, count)], settings["epsilon"], settings["delta"])
        )
    )
    if not steps:
        return {"accuracy": plain.untrained(task.model(seed), task), "steps": 0}
    fixed = plain.Fixed(
        steps=steps, batch_size=batch, noise_multiplier=how["noise_multiplier"],
        max_grad_norm=how["max_grad_norm"], lr=how["lr"], momentum=0.0,
    )  # fmt: skip
    return {"accuracy": plain.train(task, fixed, seed)["last"], "steps": steps}


def _fixed(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    task = load(settings["task"])
    batch, steps = plain.sizes(settings["size"], len(task.x))
    budget = settings["epsilon"], settings["delta"]
    if settings["arm"] == "fixed":
        noise = fitting(*budget, steps, batch / len(task.x))
    else:
        noise = searching(*budget, settings["size"], len(task.x))
    fixed = plain.Fixed(
        steps=steps, batch_size=batch, noise_multiplier=noise, max_grad_norm=settings["norm"],
        lr=settings["rate"] / settings["norm"], momentum=0.9,
    )  # fmt: skip
    found = plain.train(task, fixed, seed)
    return {**found, "accuracy": found["average"], "noise_multiplier": noise}


@functools.cache
def fitting(epsilon: float, delta: float, steps: int, rate: float) -> float:
    """The least noise for so many steps, by exact accounting."""
    adaptive = least(lambda noise: dm.Filter(epsilon, delta).admits(_step(rate, noise), steps))
    assert adaptive is not None
    # A little below it: so little noise that no exact loss is known is never tried.
    noise = least(
        lambda noise: fits_menu([(_step(rate, noise), steps)], epsilon, delta),
        near=adaptive / 1.1,
        stride=1.1,
    )
    assert noise is not None
    return noise


def score_noise(epsilon: float, records: int) -> float:
    """The noise on the number of training records that a trial got right."""
    return max(0.02 * records, 25 / epsilon)


@functools.cache
def searching(epsilon: float, delta: float, size: str, records: int) -> float:
    """The noise of a trial, if the best of about thirty with their noisy scores is to fit.

    By the exact losses of its trials, and all of delta is theirs. Trials of one size are priced as
    if all were of it, which flatters the search: one bound would have to hold for every setting.
    """
    batch, steps = plain.sizes(size, records)
    score = dm.Gaussian(score_noise(epsilon, records))

    def admitted(noise: float) -> bool:
        search = selection(_step(batch / records, noise), steps, mean=TRIALS, score=score)
        try:
            return approximate(search, delta).epsilon <= epsilon
        except ValueError:  # with so little noise no delta is met
            return False

    alone = fitting(epsilon, delta, steps, batch / records)
    noise = least(admitted, near=alone, stride=1.3)
    assert noise is not None
    return noise


def _step(rate: float, noise: float) -> dm.Gaussian | dm.SampledGaussian:
    return dm.Gaussian(noise) if rate == 1 else dm.SampledGaussian(rate, noise)
