# SPDX-License-Identifier: Apache-2.0
"""Peers: what a spend and a reading of epsilon cost as the history grows, ours beside others'.

Each accountant is measured in a process of its own, which the system ends when it has used up its
seconds of processor time, because one reading of some takes longer than the whole benchmark may.
What it told before stays.
"""

from __future__ import annotations

import importlib
import itertools
import math
import multiprocessing
import resource
import time
import tracemalloc
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import dosimeter as dm
from benchmarks.measure import Result, Table
from dosimeter.accounting.priced.menu import make_menu

DELTA, RATE = 1e-6, 0.001
HISTORY = (10, 1_000, 100_000)
PATIENCE = 5
OUR_PATIENCE = 300
"""Ours is to show the longest history, and computes 100,000 new curves on the way: a minute."""

Accountant = tuple[Callable[[int], object], Callable[[], object]]
"""Spends the i-th step; reads epsilon."""


def run() -> list[Result | Table]:
    """Microseconds of a spend and of a reading after 10, 1,000 and 100,000 spends."""
    figures: list[Result | Table] = []
    rows: list[tuple[str, ...]] = []
    for name in PEERS:
        ours = name.startswith("dosimeter")
        for changing in (False, True):
            patience = OUR_PATIENCE if ours else PATIENCE
            told = _measured(name, changing, patience)
            rows.append(_row(name, changing, told, patience))
            if ours:
                figures.append(_growth(name, changing, told))
    columns = [f"{what}, µs, after {size:,}" for what in ("spend", "reading") for size in HISTORY]
    title = (
        f"Spends of a step (sample rate {RATE:g}, noise 1, or noise that always changes), and "
        f"readings of epsilon. Peers were given {PATIENCE} s each."
    )
    figures.append(
        Table(title, ("accountant", "steps", *columns, "KiB held by Python after"), tuple(rows))
    )
    reasons = tuple((name, reason) for name, reason in REMARKS.items())
    figures.append(Table("What each of them is.", ("accountant", "remark"), reasons))
    return figures


def _growth(name: str, changing: bool, told: dict[tuple[str, int], float]) -> Result:
    first, last = (told.get(("spend", size), math.inf) for size in (HISTORY[0], HISTORY[-1]))
    kind = "ever-changing" if changing else "constant"
    text = f"{name}, {kind} steps: a spend after 100,000 over one after 10"
    return Result.at_most(text, last / first, 1.5, "times")


def _row(
    name: str, changing: bool, told: dict[tuple[str, int], float], patience: int
) -> tuple[str, ...]:
    cells = [
        f"{told[what, size]:.3g}" if (what, size) in told else f"over {patience} s"
        for what in ("spend", "reading")
        for size in HISTORY
    ]
    memory = [(size, value) for (what, size), value in told.items() if what == "memory"]
    held = f"{memory[0][1]:.3g} ({memory[0][0]:,} spends)" if memory else ""
    return (name, "ever-changing" if changing else "constant", *cells, held)


def _measured(name: str, changing: bool, patience: int) -> dict[tuple[str, int], float]:
    """What a process of its own told within its time, by kind of figure and history."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(name, changing, patience, theirs))
    process.start()
    theirs.close()
    told: dict[tuple[str, int], float] = {}
    try:
        while True:
            what, size, value = ours.recv()
            told[what, size] = value
    except EOFError:
        process.join()
    return told


def _measure(name: str, changing: bool, patience: int, pipe: Connection) -> None:
    """Runs in the child: tells every figure as soon as it is known."""
    warnings.simplefilter("ignore")
    make = PEERS[name]
    spend, read = make(changing)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + patience, hard))
    numbers = itertools.count()
    for size in HISTORY:
        for number in numbers:
            spend(number)
            if number + 1 >= size:
                break
        pipe.send(("reading", size, _microseconds(read, most=200)))
        # Spends lengthen the history, so no more than double it.
        most = min(size, 1000)
        pipe.send(("spend", size, _microseconds(lambda: spend(next(numbers)), most=most)))
        if size == HISTORY[0]:
            pipe.send(("memory", *_memory(make, changing)))
    pipe.close()


def _microseconds(work: Callable[[], object], *, most: int) -> float:
    """The best of some calls within a third of a second, at least one."""
    taken: list[float] = []
    while len(taken) < most and sum(taken) < 0.3:
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return 1e6 * min(taken)


def _memory(make: Callable[[bool], Accountant], changing: bool) -> tuple[int, float]:
    """Spends within a second, up to a thousand, and KiB that they hold after a reading."""
    spend, read = make(changing)
    spend(0)
    read()
    began, done = time.perf_counter(), 1
    tracemalloc.start()
    while done < HISTORY[1] and time.perf_counter() - began < 1.0:
        spend(done)
        done += 1
    held = tracemalloc.get_traced_memory()[0] / 1024
    tracemalloc.stop()
    return done, held


def _noise(changing: bool, i: int) -> float:
    return 1.0 + 1e-6 * i if changing else 1.0


def _filter(changing: bool) -> Accountant:
    budget = dm.Filter(1000.0, DELTA)
    constant = dm.SampledGaussian(RATE, 1.0)

    def spend(i: int) -> None:
        budget.spend(dm.SampledGaussian(RATE, _noise(True, i)) if changing else constant)

    return spend, lambda: _read_anew(budget, constant)


def _menu(changing: bool) -> Accountant:
    # A menu is declared, so changing means going round its items.
    costs = [dm.SampledGaussian(RATE, 1.0 + 0.25 * i) for i in range(4 if changing else 1)]
    budget = dm.Filter(5.0, DELTA, menu=make_menu(costs, 5.0, 0.89 * DELTA))
    return (lambda i: budget.spend(costs[i % len(costs)])), (lambda: _read_anew(budget, costs[0]))


def _read_anew(budget: dm.Filter, cost: dm.Cost) -> float:
    """Epsilon after one more spend: that of unchanged sums is only looked up."""
    budget.spend(cost)
    return budget.epsilon


def _opacus(name: str) -> Callable[[bool], Accountant]:
    def make(changing: bool) -> Accountant:
        accountant = getattr(importlib.import_module("opacus.accountants"), name)()

        def spend(i: int) -> None:
            accountant.step(noise_multiplier=_noise(changing, i), sample_rate=RATE)

        return spend, lambda: accountant.get_epsilon(DELTA)

    return make


def _google(module: str, name: str) -> Callable[[bool], Accountant]:
    def make(changing: bool) -> Accountant:
        dp = importlib.import_module("dp_accounting")
        accountant = getattr(importlib.import_module(module), name)()

        def spend(i: int) -> None:
            gaussian = dp.GaussianDpEvent(_noise(changing, i))
            accountant.compose(dp.PoissonSampledDpEvent(RATE, gaussian))

        return spend, lambda: accountant.get_epsilon(DELTA)

    return make


def _opendp(changing: bool) -> Accountant:
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    odometer = dp.c.make_fully_adaptive_composition(
        *space, output_measure=dp.zero_concentrated_divergence()
    )
    queryable = dp.c.make_privacy_filter(odometer, d_in=1.0, d_out=1e6)(0.0)

    def query(i: int) -> Any:
        return space >> dp.m.then_gaussian(scale=_noise(changing, i))

    constant = query(0)
    return (
        lambda i: queryable(query(i) if changing else constant),
        lambda: queryable.privacy_loss(1.0),
    )


def _autodp(changing: bool) -> Accountant:
    rdp_acct = importlib.import_module("autodp.rdp_acct")
    rdp_bank = importlib.import_module("autodp.rdp_bank")
    accountant = rdp_acct.anaRDPacct()

    def gaussian(noise: float) -> Callable[[float], float]:
        return lambda order: rdp_bank.RDP_gaussian({"sigma": noise}, order)

    constant = gaussian(1.0)

    def spend(i: int) -> None:
        curve = gaussian(_noise(True, i)) if changing else constant
        accountant.compose_poisson_subsampled_mechanisms(curve, RATE)

    return spend, lambda: accountant.get_eps(DELTA)


PEERS: dict[str, Callable[[bool], Accountant]] = {
    "dosimeter filter": _filter,
    "dosimeter filter with a menu": _menu,
    "Opacus RDP": _opacus("RDPAccountant"),
    "Opacus PRV": _opacus("PRVAccountant"),
    "dp-accounting RDP": _google("dp_accounting.rdp", "RdpAccountant"),
    "dp-accounting PLD": _google("dp_accounting.pld", "PLDAccountant"),
    "OpenDP filter (zCDP)": _opendp,
    "autodp RDP": _autodp,
}

REMARKS = {
    "dosimeter filter": "a spend decides: it is admitted or refused, fully adaptive; it keeps the "
    "curves of the last 4,096 costs; the time of a reading includes a spend before it",
    "dosimeter filter with a menu": "a spend decides; ever-changing means its four items in turn; "
    "a reading includes a spend, too",
    "Opacus RDP": "a spend only notes; a decision needs a reading; parameters fixed beforehand",
    "Opacus PRV": "the same",
    "dp-accounting RDP": "a decision needs a reading; parameters fixed beforehand",
    "dp-accounting PLD": "the same",
    "OpenDP filter (zCDP)": "decides, fully adaptive; has no sampling, so plain Gaussian queries, "
    "and a spend also draws the noise",
    "autodp RDP": "a decision needs a reading; parameters fixed beforehand",
}
