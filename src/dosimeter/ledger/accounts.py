# SPDX-License-Identifier: Apache-2.0
"""Where a budget stands: its parameters and running sums, as stored and as a live account.

The account of `dosimeter.accounting` decides; this module only writes its sums down and
brings it back.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from dosimeter.accounting import Filter, Odometer
from dosimeter.accounting import state as saved
from dosimeter.accounting.tally import Tally, charge
from dosimeter.errors import StateError
from dosimeter.ledger.errors import JournalError
from dosimeter.ledger.records import canonical, digest
from dosimeter.rdp import Cost
from dosimeter.rdp.cost import UP

Account = Filter | Odometer
_DOUBLE = np.dtype("<f8")
_TWO_DOUBLES = struct.Struct("<2d")


def parameters_of(account: Account) -> dict[str, Any]:
    """What defines an account, as plain JSON values."""
    shared = {
        "delta": account.delta,
        "approx_delta": account.approx_delta,
        "orders": list(account.orders),
        "weights": account.weights.tolist(),
    }
    if isinstance(account, Filter):
        return {"kind": "filter", "epsilon": account.limit, **shared}
    return {"kind": "odometer", **shared}


def account_of(parameters: Mapping[str, Any]) -> Account:
    """A fresh account with these parameters.

    Raises:
        JournalError: They do not describe one.
    """
    try:
        values = dict(parameters)
        kinds = {"filter": Filter, "odometer": Odometer}
        account: Account = kinds[values.pop("kind")](**values)
        if parameters_of(account) != parameters:
            raise ValueError("they change when they are read")
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"parameters must describe a budget: {error}") from None
    return account


@lru_cache(maxsize=256)
def fresh_state(body: str) -> tuple[type[Account], saved.State]:
    """The class and the state of an untouched account, from stored parameters."""
    try:
        account = account_of(json.loads(body))
    except ValueError as error:
        raise JournalError(f"parameters must be as the ledger wrote them: {error}") from None
    return type(account), account.state()


def restored(body: str, sums: str) -> Account:
    """An account with stored parameters at stored sums.

    Raises:
        JournalError: They do not fit together.
    """
    made, state = fresh_state(body)
    tally = read_sums(sums, len(state["orders"]))
    moved = {
        "rdp": [saved.number(value) for value in tally.rdp.tolist()],
        "pure_epsilon": saved.number(tally.pure_epsilon),
        "spent_delta": tally.delta,
    }
    fields = {**state, **moved}
    kind = fields.pop("kind")
    del fields["version"], fields["checksum"]
    try:
        return made.from_state(saved.seal(kind, fields))
    except StateError as error:
        raise JournalError(f"sums must be as the ledger wrote them: {error}") from error


def released(account: Account, body: str, cost: Cost, count: int) -> Account:
    """The account as if a spend that is part of it had not been.

    Guarantee:
        The sums stay at least the exact sum of the other spends: the stored sum is at
        least the others plus this charge, the charge is the float that was added, and
        the difference is rounded up. Where the charge is infinite, so the sum stays.
    """
    asked = charge(cost, count, account.orders)
    return restored(body, write_sums(without(account.tally, asked)))


def without(tally: Tally, asked: Tally) -> Tally:
    """A tally less a charge that is part of it, rounded up."""
    finite = np.isfinite(asked.rdp)
    rest = np.where(finite, tally.rdp - np.where(finite, asked.rdp, 0.0), math.inf)
    return Tally(
        np.maximum(np.nextafter(rest * UP, math.inf), 0.0),
        _less(tally.pure_epsilon, asked.pure_epsilon),
        # The cap on failures is compared exactly, so what is left must not creep over it.
        min(_less(tally.delta, asked.delta), tally.delta),
    )


def _less(total: float, part: float) -> float:
    if part == 0.0 or part == math.inf:
        return total
    return max(math.nextafter((total - part) * UP, math.inf), 0.0)


def write_sums(tally: Tally) -> str:
    """Sums as hexadecimal: the curve, the pure epsilon and the failure, as doubles."""
    curve = tally.rdp.astype(_DOUBLE, copy=False).tobytes()
    return (curve + _TWO_DOUBLES.pack(tally.pure_epsilon, tally.delta)).hex()


def read_sums(text: str, orders: int) -> Tally:
    """The sums that `write_sums` wrote."""
    try:
        packed = np.frombuffer(bytes.fromhex(text), dtype=_DOUBLE).astype(np.float64)
    except ValueError:
        raise JournalError("sums must be as the ledger wrote them, got another text") from None
    if len(packed) != orders + 2 or not np.all(packed >= 0):
        raise JournalError("sums must be as the ledger wrote them, got other numbers")
    return Tally(packed[:-2], float(packed[-2]), float(packed[-1]))


def parameters_row(account: Account) -> tuple[str, str]:
    """The hash and the text under which the parameters of an account are stored."""
    body = canonical(parameters_of(account))
    return digest(body), body
