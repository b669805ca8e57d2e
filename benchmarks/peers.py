# SPDX-License-Identifier: Apache-2.0
"""Peers: what a spend with a reading costs as the history grows, ours beside others'.

Not part of `make bench` yet.
"""

from __future__ import annotations

import importlib
import time
import tracemalloc
import warnings
from collections.abc import Callable

import dosimeter as dm
from benchmarks.measure import Result
from dosimeter.accounting.priced.menu import make_menu

DELTA = 1e-6
HISTORY = (10, 1_000, 100_000)
_PATIENCE = 8.0
"""A peer that needs longer for a history is not asked for the next one."""

Step = Callable[[int], object]
"""Spends the i-th step and reads what is needed to decide on the next."""


def run() -> list[Result]:
    """Microseconds of one more spend and decision after 10, 1,000 and 100,000."""
    rows: list[Result] = []
    for name, make in PEERS.items():
        for changing in (False, True):
            kind = "ever-changing" if changing else "constant"
            try:
                rows += _grown(f"{name}, {kind} steps", make, changing)
            except ModuleNotFoundError as error:
                rows.append(Result(f"{name}: not installed ({error.name})", 0, "", "", True))
                break
    return rows


def _grown(name: str, make: Callable[[bool], tuple[Step, Step]], changing: bool) -> list[Result]:
    rows: list[Result] = []
    spend, decide = make(changing)
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in HISTORY:
            began = time.perf_counter()
            while done < size and time.perf_counter() - began < _PATIENCE:
                spend(done)
                done += 1
            if done < size:
                text = f"{name}: stopped at {done} of {size} spends"
                rows.append(Result(text, _PATIENCE, "s", "", True))
                break
            began = time.perf_counter()
            decide(done)
            took = time.perf_counter() - began
            repeats = max(1, min(200, int(0.2 / max(took, 1e-6))))
            began = time.perf_counter()
            for _ in range(repeats):
                decide(done)
            took = (time.perf_counter() - began) / repeats
            rows.append(Result(f"{name}, after {size}", took * 1e6, "µs", "", True))
            if took > _PATIENCE:
                break
    spends, memory = _memory(make, changing)
    rows.append(Result(f"{name}, memory after {spends} spends", memory, "KiB", "", True))
    return rows


def _memory(make: Callable[[bool], tuple[Step, Step]], changing: bool) -> tuple[int, float]:
    """Spends, up to a thousand, and KiB they hold; apart, because tracing slows everything."""
    spend, _ = make(changing)
    spend(0)
    began, done = time.perf_counter(), 1
    tracemalloc.start()
    while done < HISTORY[1] and time.perf_counter() - began < _PATIENCE / 4:
        spend(done)
        done += 1
    memory = tracemalloc.get_traced_memory()[0] / 1024
    tracemalloc.stop()
    return done, memory


def _noise(changing: bool, i: int) -> float:
    return 1.0 + 1e-6 * i if changing else 1.0


def _filter(changing: bool) -> tuple[Step, Step]:
    budget = dm.Filter(1000.0, DELTA)

    def step(i: int) -> None:
        budget.spend(dm.SampledGaussian(0.001, _noise(changing, i)))

    return step, step


def _menu(changing: bool) -> tuple[Step, Step]:
    # A menu is declared, so changing means going round its items.
    costs = [dm.SampledGaussian(0.001, 1.0 + 0.25 * i) for i in range(4 if changing else 1)]
    budget = dm.Filter(5.0, DELTA, menu=make_menu(costs, 5.0, 0.89 * DELTA))

    def step(i: int) -> None:
        budget.spend(costs[i % len(costs)])

    return step, step


def _opacus(name: str) -> Callable[[bool], tuple[Step, Step]]:
    def make(changing: bool) -> tuple[Step, Step]:
        accountants = importlib.import_module("opacus.accountants")
        accountant = getattr(accountants, name)()

        def spend(i: int) -> None:
            accountant.step(noise_multiplier=_noise(changing, i), sample_rate=0.001)

        def decide(i: int) -> None:
            accountant.get_epsilon(DELTA)

        return spend, decide

    return make


def _google(module: str, name: str) -> Callable[[bool], tuple[Step, Step]]:
    def make(changing: bool) -> tuple[Step, Step]:
        dp = importlib.import_module("dp_accounting")
        accountant = getattr(importlib.import_module(module), name)()

        def spend(i: int) -> None:
            gaussian = dp.GaussianDpEvent(_noise(changing, i))
            accountant.compose(dp.PoissonSampledDpEvent(0.001, gaussian))

        def decide(i: int) -> None:
            accountant.get_epsilon(DELTA)

        return spend, decide

    return make


PEERS: dict[str, Callable[[bool], tuple[Step, Step]]] = {
    "dosimeter filter": _filter,
    "dosimeter filter with a menu": _menu,
    "Opacus RDP": _opacus("RDPAccountant"),
    "Opacus PRV": _opacus("PRVAccountant"),
    "dp-accounting RDP": _google("dp_accounting.rdp", "RdpAccountant"),
    "dp-accounting PLD": _google("dp_accounting.pld", "PLDAccountant"),
}
