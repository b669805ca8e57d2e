# SPDX-License-Identifier: Apache-2.0
"""The core: what a spend costs, beside Opacus' accountant."""

from __future__ import annotations

import itertools
import time
import tracemalloc
import warnings

import dosimeter as dm
from benchmarks.measure import Result, best_seconds
from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.menu import make_menu
from dosimeter.accounting.weights import DEFAULT_ORDERS

DISTINCT = 300
STEP = dm.SampledGaussian(512 / 50000, 1.0)
MENUS = {
    "one item": ([STEP], 7.0),
    "four noises": ([dm.SampledGaussian(0.01, noise) for noise in (1.0, 1.2, 1.5, 2.0)], 5.0),
    "rate 1e-4 at epsilon 0.1": ([dm.SampledGaussian(1e-4, noise) for noise in (1.0, 2.0)], 0.1),
}


def run() -> list[Result]:
    """All figures of the core."""
    far = _spend_far_from_the_limit()
    opacus = _opacus_step_and_epsilon()
    seconds, growth = _a_million_spends()
    return [
        Result.at_most("spend of a known cost, far from the limit", far * 1e6, 10, "µs"),
        Result("Opacus step + get_epsilon at 300 distinct steps", opacus * 1e6, "µs", "", True),
        Result.at_least("that over a spend", opacus / far, 100, "times"),
        Result.at_most("spend near the limit (exact solve)", _near_the_limit() * 1e6, 100, "µs"),
        Result.at_most("a million spends", seconds, 10, "s"),
        Result.at_most("spend of a menu's item, of two", _menu_spend(STEP) * 1e6, 5, "µs"),
        Result.at_most("spend of a menu's item, of one", _menu_spend() * 1e6, 5, "µs"),
        Result.at_most("memory they add", growth / 1024, 64, "KiB"),
        Result.at_most("new sampled Gaussian, 54 orders", _new_mechanism() * 1e3, 3, "ms"),
        *[
            Result.at_most(
                f"confirming a menu, {name}, over making it", _confirming(*menu), 2, "times"
            )
            for name, menu in MENUS.items()
        ],
    ]


def _costs() -> list[dm.Cost]:
    return [dm.SampledGaussian(0.01 + 1e-5 * i, 1.0 + 1e-3 * i) for i in range(DISTINCT)]


def _spend_far_from_the_limit() -> float:
    """Cycles through 300 distinct costs, all seen before, as Opacus is made to below."""
    budget = dm.Filter(1000.0, 1e-6)
    costs = _costs()
    for cost in costs:
        budget.spend(cost)
    cycle = itertools.cycle(costs)
    return best_seconds(lambda: budget.spend(next(cycle)), loops=2000)


def _menu_spend(*others: dm.Cost) -> float:
    """Several items are bought in bundles, one by itself run by run."""
    step = dm.Gaussian(100.0)
    budget = dm.Filter(4.909, 1e-6, menu=[step, *others])
    return best_seconds(lambda: budget.spend(step), repeats=30, loops=100)


def _near_the_limit() -> float:
    """Refused by the tangent, so decided by the exact solve every time."""
    budget = dm.Filter(8.0, 1e-6)
    budget.spend(STEP, budget.affordable(STEP))
    assert not budget.admits(STEP)
    return best_seconds(lambda: budget.admits(STEP), loops=500)


def _opacus_step_and_epsilon() -> float:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    for i in range(DISTINCT):
        accountant.step(noise_multiplier=1.0 + 1e-3 * i, sample_rate=0.01 + 1e-5 * i)

    def step() -> None:
        accountant.step(noise_multiplier=1.0, sample_rate=0.01)
        accountant.get_epsilon(1e-6)
        accountant.history.pop()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return best_seconds(step, repeats=2)


def _a_million_spends() -> tuple[float, float]:
    budget = dm.Filter(1000.0, 1e-6)
    budget.spend(STEP)

    def million() -> None:
        for _ in range(1_000_000):
            budget.spend(STEP)

    seconds = best_seconds(million, repeats=3)
    tracemalloc.start()
    for _ in range(1000):
        budget.spend(STEP)
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(100_000):
        budget.spend(STEP)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return seconds, max(0, after - before)


def _confirming(costs: list[dm.Cost], epsilon: float) -> float:
    """Seconds of the checker over those of the builder alone."""
    began = time.perf_counter()
    menu = make_menu(costs, epsilon, 1e-6)
    both = time.perf_counter() - began
    checking = best_seconds(lambda: verify.most_quanta(menu), repeats=2)
    return checking / (both - checking)


def _new_mechanism() -> float:
    rates = itertools.count()
    return best_seconds(
        lambda: dm.SampledGaussian(0.02 + 1e-7 * next(rates), 1.5).rdp(DEFAULT_ORDERS), repeats=50
    )
