# SPDX-License-Identifier: Apache-2.0
"""Clients of a service as processes of their own, to be killed.

Run as a program. It imports once and then forks, so that clients begin at once. Each spends for
ever, with a key each, and writes down what was acknowledged. A number on the standard input
kills that client and begins another; its end kills all.

    LOGS CLIENTS ADDRESS...       the token is in DOSIMETER_TOKEN
"""

from __future__ import annotations

import json
import os
import signal
import sys

import dosimeter as dm
from dosimeter.ledger import Ledger, LedgerUnavailable

QUERY = dm.Gaussian(noise_multiplier=500.0)


def spend(address: str, log: str) -> None:
    """Spends until it is killed or refused."""
    with Ledger.open(address, timeout=60.0) as ledger, open(log, "a", encoding="utf-8") as lines:
        number = 0
        while True:
            key = f"{os.getpid()}-{number}"
            try:
                receipt = ledger.spend_all({"shared": QUERY}, key=key)["shared"]
            except dm.BudgetExceeded:
                return
            except LedgerUnavailable:
                continue  # the same key again
            lines.write(json.dumps([key, receipt.sequence, receipt.hash]) + "\n")
            lines.flush()
            number += 1


def begun(address: str, log: str) -> int:
    """The process of a new client."""
    child = os.fork()
    if not child:
        try:
            spend(address, log)
        finally:
            os._exit(0)
    return child


def killed(child: int) -> None:
    """Kills a client and waits for it."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(logs: str, clients: str, *addresses: str) -> None:
    """Begins clients, and kills those that it is told to."""
    asked = [(addresses[i % len(addresses)], f"{logs}/{i}.log") for i in range(int(clients))]
    children = [begun(*one) for one in asked]
    for line in sys.stdin:
        killed(children[int(line)])
        children[int(line)] = begun(*asked[int(line)])
    for child in children:
        killed(child)


if __name__ == "__main__":
    main(*sys.argv[1:])
