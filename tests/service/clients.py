# SPDX-License-Identifier: Apache-2.0
"""A client of a service as a process of its own, to be killed.

Run as a program: it spends for ever, with a key each, and writes down what was acknowledged.

    ADDRESS LOG NAME       the token is in DOSIMETER_TOKEN
"""

from __future__ import annotations

import json
import os
import sys

import dosimeter as dm
from dosimeter.ledger import Ledger, LedgerUnavailable


def main(address: str, log: str, name: str) -> None:
    """Spends until it is killed or refused."""
    query = dm.Gaussian(noise_multiplier=500.0)
    with Ledger.open(address, timeout=60.0) as ledger, open(log, "a", encoding="utf-8") as lines:
        number = 0
        while True:
            key = f"{name}-{os.getpid()}-{number}"
            try:
                receipt = ledger.spend_all({"shared": query}, key=key)["shared"]
            except dm.BudgetExceeded:
                return
            except LedgerUnavailable:
                continue  # the same key again
            lines.write(json.dumps([key, receipt.sequence, receipt.hash]) + "\n")
            lines.flush()
            number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
