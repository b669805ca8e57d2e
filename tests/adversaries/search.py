"""Sets the adversaries on a gate, and writes down the script of whatever passes delta.

    python -m adversaries.search 10000 --from 0 --log found.txt

draws that many gates, from one seed on, and goes on where the log ends.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import dosimeter as dm
from adversaries import counts, player
from adversaries.gates import Priced, draw, draw_priced, spelled
from adversaries.observer import Runs
from dosimeter.accounting.meter import Meter
from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Direction, Item, Ladder, Menu
from dosimeter.accounting.priced.menu import Losses, lattice_level
from dosimeter.accounting.priced.table import Bundle, stopping_value

SLACK = 1 + 1e-6
"""The rounding of the adversaries themselves."""

_PARTS = 20


class Attack(NamedTuple):
    """What an adversary reached, of what she may, and the script that shows it."""

    name: str
    reached: float
    allowed: float
    script: str

    @property
    def ratio(self):
        return self.reached / self.allowed


class Refused(Exception):
    """The library does not make this gate, and says why."""


class Table:
    """One drawn gate and the views of its costs, which the adversaries share."""

    def __init__(self, drawn, turns):
        self.drawn, self.turns = drawn, turns
        self.rng = random.Random(repr(drawn))
        self._runs = {}
        try:
            self._start = drawn.make().account
        except ValueError as error:
            raise Refused(str(error)) from None

    def fresh(self):
        """A gate of which nothing is spent."""
        return Meter(self._start)

    def view(self, spent, added, epsilon):
        """What is seen of a fixed sequence [(cost, count), ...]."""
        total = None
        for cost, count in spent:
            key = cost, added, epsilon
            if key not in self._runs:
                self._runs[key] = Runs(cost, added, epsilon=epsilon, delta=self.drawn.delta)
            view = self._runs[key].of(count)
            total = view if total is None else total.plus(view, self.drawn.delta)
        return total

    def reached(self, spent, epsilon):
        """The most that an observer of a fixed sequence reaches, by views and by closed forms."""
        values = [self.view(spent, added, epsilon).hockey_stick(epsilon) for added in (False, True)]
        costs = [cost for cost, _ in spent]
        if all(isinstance(cost, dm.Gaussian) for cost in costs):
            values.append(counts.summed(spent, epsilon))
        elif all(isinstance(cost, dm.Gaussian | dm.SampledGaussian) for cost in costs):
            values.append(counts.best_threshold(spent, epsilon)[1])
        if len(spent) == 1:
            values.append(counts.counted(*spent[0], epsilon).reached)
        return max(values)

    def fixed(self, name, spent, epsilon):
        """The attack of one who spends a fixed sequence."""
        lines = [f"gate.spend({spelled(cost)}, {count})" for cost, count in spent]
        told = ", ".join(f"({spelled(cost)}, {count})" for cost, count in spent)
        reading = "" if self.drawn.kind == "filter" else "assert gate.epsilon <= epsilon\n"
        script = (
            f"import dosimeter as dm\nfrom adversaries.observer import seen_of\n"
            f"epsilon, delta = {epsilon!r}, {self.drawn.delta!r}\ngate = {self.drawn}\n"
            + "\n".join(lines)
            + f"\n{reading}print(seen_of([{told}], epsilon, delta) / delta)"
        )
        if all(isinstance(cost, dm.Gaussian | dm.SampledGaussian) for cost, _ in spent):
            t, _ = counts.best_threshold(spent, epsilon)
            script += (
                "\n# The same in 40 digits, by the event that some output is large.\n"
                "from adversaries.counts import some_output_beyond\n"
                f"print(some_output_beyond([{told}], {t!r}, epsilon) / delta)"
            )
        return Attack(name, self.reached(spent, epsilon), self.drawn.delta, script)


def attacks(drawn, *, turns=24):
    """What every adversary reaches on a drawn gate.

    Raises:
        Refused: The library does not make it.
    """
    if isinstance(drawn, Priced):
        return on_prices(drawn)
    table = Table(drawn, turns)
    if drawn.kind == "filter":
        return _on_filter(table)
    return _on_odometer(table)


def worst(drawn, *, turns=24):
    """The attack that reached the largest part of what it may."""
    idle = Attack("nobody", 0.0, drawn.delta, "")
    return max(attacks(drawn, turns=turns), key=lambda attack: attack.ratio, default=idle)


def _spend(gate, cost, count):
    """Spends in uneven parts, so that bundles are broken; what was spent."""
    for part in (min(1, count), (count - 1) // 3, count - 1 - (count - 1) // 3):
        if part > 0:
            gate.spend(cost, part)
    return [(cost, count)] if count else []


def _on_filter(table):
    drawn, made = table.drawn, table.fresh()
    found, epsilon = [], drawn.epsilon
    for cost in drawn.costs:
        gate = table.fresh()
        spent = _spend(gate, cost, gate.affordable(cost))
        if spent:
            found.append(table.fixed("one item to the limit", spent, epsilon))
    found += _sequences(table)
    found += _two_stages(table)
    if made.menu is not None:
        script = (
            "import dosimeter as dm\nfrom adversaries.player import adaptive\n"
            f"gate = {drawn}\nprint(adaptive(gate.menu, turns={table.turns}) / gate.menu.delta)"
        )
        value = player.adaptive(made.menu, turns=table.turns)
        found.append(Attack("the best buyer", value, made.menu.delta, script))
        found += _with_a_stranger(table, made)
    return found


def _with_a_stranger(table, made):
    """The best buyer again, if the menu sells the stranger as well."""
    item = made.price(table.drawn.stranger)
    if item is None:
        return []
    richer = replace(made.menu, items=(*made.menu.items, item))
    value = player.adaptive(richer, turns=table.turns)
    script = (
        "import dosimeter as dm\nfrom dataclasses import replace\n"
        f"from adversaries.player import adaptive\ngate = {table.drawn}\nmenu = gate.menu\n"
        f"item = gate.price({spelled(table.drawn.stranger)})\n"
        "richer = replace(menu, items=(*menu.items, item))\n"
        f"print(adaptive(richer, turns={table.turns}) / (menu.delta + menu.credit))"
    )
    allowed = made.menu.delta + made.menu.credit
    return [Attack("the best buyer, with a stranger", value, allowed, script)]


def _sequences(table):
    """Some of one item, then another to the limit, then what is left of all; with a stranger."""
    drawn, found = table.drawn, []
    others = [*drawn.costs[1:2], drawn.stranger]
    for other in others:
        gate, spent = table.fresh(), []
        part = gate.affordable(drawn.costs[0]) * table.rng.choice([1, 5, 9]) // 10
        spent += _spend(gate, drawn.costs[0], part)
        spent += _spend(gate, other, gate.affordable(other))
        for cost in drawn.costs:
            spent += _spend(gate, cost, gate.affordable(cost))
        if spent:
            name = "a stranger between" if other is drawn.stranger else "two items"
            found.append(table.fixed(name, _together(spent), drawn.epsilon))
    return found


def _together(spent):
    total = {}
    for cost, count in spent:
        total[cost] = total.get(cost, 0) + count
    return list(total.items())


def _two_stages(table):
    """Half on one item; then, by what was seen, the rest on whichever pays more."""
    drawn = table.drawn
    options = [*drawn.costs[:2], drawn.stranger]
    start = table.fresh()
    half = start.affordable(drawn.costs[0]) // 2
    if not half:
        return []
    after = []
    for cost in options:
        gate = table.fresh()
        gate.spend(drawn.costs[0], half)
        count = gate.affordable(cost)
        if count:
            gate.spend(cost, count)
            after.append((cost, count))
    best = 0.0
    for added in (False, True):
        first = table.view([(drawn.costs[0], half)], added, drawn.epsilon)
        values = [_at(table.view([o], added, drawn.epsilon), drawn.epsilon, first) for o in after]
        stop = -np.expm1(-np.maximum(first.losses - drawn.epsilon, 0.0))
        best = max(best, float(first.p @ np.maximum.reduce([stop, *values])))
    told = ", ".join(f"{count} of {spelled(cost)}" for cost, count in after)
    script = (
        f"gate = {drawn}\n# {half} of {spelled(drawn.costs[0])}, then by the loss so far one of\n"
        f"# {told}; run attacks(...) of adversaries.search on this gate"
    )
    return [Attack("two stages", best, drawn.delta, script)]


def _at(view, epsilon, first):
    """The hockey stick of a view at epsilon less each loss seen before."""
    limits = epsilon - first.losses
    tail_p = np.append(np.cumsum(view.p[::-1])[::-1], 0.0)
    tail_q = np.append(np.cumsum((view.p * np.exp(-view.losses))[::-1])[::-1], 0.0)
    place = np.searchsorted(view.losses, limits, side="right")
    return np.maximum(tail_p[place] - np.exp(limits) * tail_q[place], 0.0)


def _on_odometer(table):
    drawn, made = table.drawn, table.fresh()
    found = []
    for cost in drawn.costs:
        found += _stops(table, cost)
    gate, spent = table.fresh(), []
    for cost in (*drawn.costs, drawn.stranger):
        spent += _spend(gate, cost, _plenty(table, cost) // 3)
        if spent and 0 < gate.epsilon < 60:
            found.append(table.fixed("a sequence", list(spent), gate.epsilon))
    if made.menu is not None:
        script = (
            "import dosimeter as dm\nfrom adversaries.player import stopping\n"
            f"gate = {drawn}\nreadings = gate.state()['readings']\n"
            f"print(stopping(gate.menu, readings, turns={table.turns}) / gate.menu.delta)"
        )
        value = player.stopping(made.menu, made.account.terms.readings, turns=table.turns)
        found.append(Attack("the best stop", value, made.menu.delta, script))
    return found


def _plenty(table, cost):
    """As many runs as the drawn epsilon has."""
    return dm.Filter(table.drawn.epsilon, table.drawn.delta).affordable(cost)


def _stops(table, cost):
    """Runs of one mechanism in equal parts, stopped after whichever part pays most."""
    found = []
    most = _plenty(table, cost)
    for size in sorted({max(1, most // _PARTS), max(1, most // (8 * _PARTS))}):
        gate, read = table.fresh(), []
        for _ in range(_PARTS):
            gate.spend(cost, size)
            read.append(gate.epsilon)
        if not read[-1] < 60:
            continue
        value = player.stopped(cost, [size], read, table.drawn.delta)
        script = (
            "import dosimeter as dm\nfrom adversaries.player import stopped\n"
            f"gate, read = {table.drawn}, []\nfor _ in range({_PARTS}):\n"
            f"    gate.spend({spelled(cost)}, {size})\n    read.append(gate.epsilon)\n"
            f"print(stopped({spelled(cost)}, [{size}], read, gate.delta) / gate.delta)"
        )
        found.append(Attack("stopped at the worst moment", value, table.drawn.delta, script))
    return found


def claims(priced):
    """What the library says of drawn prices: V of a filter, and V of an odometer's readings."""
    items = tuple(Item(*bundle) for bundle in priced.bundles)
    losses = Losses(priced.epsilon, priced.delta, lattice_level(priced.epsilon))
    tables = [losses.table(items, way, priced.epsilon) for way in Direction]
    value = max(table.value(priced.quanta, priced.epsilon) for table in tables)
    ways = [
        [Bundle(losses.of(item.cost, item.steps, way), item.price) for item in items]
        for way in Direction
    ]
    stop = max(stopping_value(bundles, priced.readings) for bundles in ways)
    return Menu(priced.epsilon, value, priced.quanta, items), stop


def on_prices(priced):
    """What players reach at drawn prices, of what the library says that they can.

    Raises:
        Refused: A cost cannot be priced.
    """
    try:
        menu, stop = claims(priced)
    except ValueError as error:
        raise Refused(str(error)) from None
    script = (
        "import dosimeter as dm\nfrom adversaries import player, search\n"
        f"from adversaries.gates import Priced\npriced = {priced}\n"
        "menu, stop = search.claims(priced)\nturns = priced.quanta\n"
        "print(player.adaptive(menu, turns=turns) / menu.delta)\n"
        "print(player.stopping(menu, priced.readings, turns=turns) / stop)"
    )
    turns = priced.quanta
    buyer = player.adaptive(menu, turns=turns)
    stopper = player.stopping(menu, priced.readings, turns=turns)
    found = [
        Attack("the best buyer", buyer, menu.delta, script),
        Attack("the best stop", stopper, stop, script),
    ]
    if min(menu.delta, stop) >= verify.LEAST_DELTA:
        flat = Ladder(menu, (menu.epsilon,) * (menu.quanta + 1))
        steps = Ladder(Menu(menu.epsilon, stop, menu.quanta, menu.items), priced.readings)
        for name, value, ladder in (("buyer", buyer, flat), ("stop", stopper, steps)):
            told = f"the best {name}, as the second computation sees it"
            found.append(Attack(told, value, verify.reached(ladder), script))
    return found


class _TooLong(Exception):
    pass


def judged(seed, *, size="small", turns=24, seconds=None):
    """(verdict, worst attack or None) for the gate of a seed; the verdict is a word and why."""
    drawn = draw_priced(seed) if size == "priced" else draw(seed, small=size == "small")
    if seconds is not None:
        # Of the processor, so that other load on the machine does not matter.
        signal.signal(signal.SIGPROF, _give_up)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        found = worst(drawn, turns=turns)
    except Refused as error:
        return f"refused: {error}", None
    except _TooLong:
        return f"too long: {drawn}", None
    finally:
        if seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    word = "EXCESS" if found.ratio > SLACK else "within"
    return f"{word}: {found.ratio:.4f} by {found.name}, {drawn}", found


def _give_up(*_):
    raise _TooLong


def main():
    """Judges many gates, writes one line for each and the script of every excess."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("search.log"))
    parser.add_argument("--size", choices=["small", "any", "priced"], default="small")
    parser.add_argument("--turns", type=int, default=24, help="of the players")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time a gate")
    told = parser.parse_args()
    done = set()
    if told.log.exists():
        lines = told.log.read_text().splitlines()
        done = {int(line.split()[0]) for line in lines if line[:1].isdigit()}
    # Menus are made once for each gate, and kept nowhere.
    place = tempfile.TemporaryDirectory()
    os.environ["DOSIMETER_CACHE"] = place.name
    began, tally = time.time(), dict.fromkeys(("within", "refused", "too long", "EXCESS"), 0)
    for seed in range(told.first, told.first + told.count):
        if seed in done:
            continue
        verdict, found = judged(seed, size=told.size, turns=told.turns, seconds=told.seconds)
        tally[verdict.split(":")[0]] += 1
        with told.log.open("a") as log:
            log.write(f"{seed} {verdict}\n")
            if verdict.startswith("EXCESS"):
                log.write(f"{found.script}\n\n")
        if sum(tally.values()) % 20 == 0:
            print(f"{seed} {time.time() - began:.0f} s {tally}", flush=True)
    print(tally)
    place.cleanup()
    return 1 if tally["EXCESS"] else 0


if __name__ == "__main__":
    sys.exit(main())
