# SPDX-License-Identifier: Apache-2.0
"""Clients of a ledger as processes of their own, to race and to be killed.

Run as a program. It imports once and then forks, so that many clients start within
milliseconds of each other:

    race URL BUDGETS CLIENTS     every client spends until it is refused
    load URL LOG CLIENTS         clients spend for ever, with a key each, and log receipts
"""

from __future__ import annotations

import json
import os
import sys
import time

import dosimeter as dm
from dosimeter.ledger import BudgetExists, Ledger, LedgerUnavailable

COST = dm.Gaussian(20)
MENU = [COST, dm.Gaussian(40)]


def race(url: str, names: list[str], clients: int) -> None:
    """Every client spends, together in all the budgets named, until it is refused."""
    warm(url, names)
    ready, go = os.pipe(), os.pipe()
    children = [fork_racer(url, names, number, ready, go) for number in range(clients)]
    os.close(go[0])
    os.close(ready[1])
    for _ in children:
        if not os.read(ready[0], 1):
            sys.exit("a client died before the start")
    os.close(go[1])
    for child in children:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            sys.exit(status)


def warm(url: str, names: list[str]) -> None:
    """Confirms the menus of the budgets once, before the clients are forked."""
    with Ledger.open(url) as ledger:
        for name in names:
            ledger[name].statement()


def fork_racer(
    url: str, names: list[str], number: int, ready: tuple[int, int], go: tuple[int, int]
) -> int:
    """A child that waits for the start and then writes a line for every receipt."""
    child = os.fork()
    if child:
        return child
    os.close(ready[0])
    os.close(go[1])
    # Clients that write the names in different orders must not wait in a circle.
    order = sorted(names, reverse=bool(number % 2))
    with Ledger.open(url, timeout=120) as ledger:
        os.write(ready[1], b".")
        os.read(go[0], 1)
        lines = []
        try:
            while True:
                receipts = ledger.spend_all(dict.fromkeys(order, COST), actor=str(number))
                lines += [(r.budget, r.sequence, r.hash) for r in receipts.values()]
        except dm.BudgetExceeded:
            pass
    os.write(1, "".join(json.dumps(line) + "\n" for line in lines).encode())
    os._exit(0)


def load(url: str, log: str, clients: int) -> None:
    """Clients that spend with numbered keys, log what was acknowledged, and never give up."""
    warm(url, ["load"])
    for number in range(clients):
        if os.fork() == 0:
            spend_for_ever(url, f"{log}.{number}", number)
    time.sleep(3600)


def spend_for_ever(url: str, log: str, number: int) -> None:
    """Goes on after the last receipt in its log, retrying whatever was not acknowledged."""
    parent = os.getppid()
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
    done = os.read(descriptor, 1 << 30).count(b"\n")
    ledger = Ledger.open(url, timeout=60)
    while os.getppid() == parent:
        key = f"{number}-{done}"
        try:
            receipt = ledger["load"].spend(COST, key=key, actor=str(number))
        except LedgerUnavailable:
            time.sleep(0.01)
            continue
        except dm.BudgetExceeded:
            break
        # One write of one line: a kill leaves the whole line or none of it.
        line = json.dumps([key, receipt.sequence, receipt.hash, receipt.replayed])
        os.write(descriptor, f"{line}\n".encode())
        done += 1
    os._exit(0)


def create(url: str, names: list[str], epsilon: float, menu: list[dm.Cost] | None = None) -> None:
    """Makes budgets unless they are there."""
    with Ledger.open(url) as ledger:
        for name in names:
            try:
                ledger.create(name, epsilon=epsilon, delta=1e-6, menu=menu)
            except BudgetExists:
                pass


if __name__ == "__main__":
    what, where, second, third = sys.argv[1:]
    if what == "race":
        race(where, json.loads(second), int(third))
    else:
        load(where, second, int(third))
