# SPDX-License-Identifier: Apache-2.0
"""Accounts as the ledger stores them: terms that budgets share, and a position in each row.

The `Account` decides; this module only writes it down and reads it back, exactly.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from dosimeter.accounting import Account, Terms
from dosimeter.accounting.priced.share import plain_item, read_item
from dosimeter.accounting.tally import Tally
from dosimeter.errors import StateError
from dosimeter.ledger.errors import JournalError
from dosimeter.ledger.records import canonical, digest

_DOUBLE = np.dtype("<f8")
_TWO, _THREE = struct.Struct("<2d"), struct.Struct("<3d")
_ENDED = "-"


def terms_of(plain: Mapping[str, Any]) -> Terms:
    """The terms that an opening entry carries.

    Raises:
        JournalError: It carries none.
    """
    try:
        return Terms.from_plain(plain)
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"parameters must describe a budget: {error}") from None


def terms_row(terms: Terms) -> tuple[str, str]:
    """The hash and the text under which terms are stored."""
    body = canonical(terms.plain())
    return digest(body), body


@lru_cache(maxsize=256)
def stored_terms(body: str) -> Terms:
    """The terms in a stored text; a menu among them is confirmed once in a process."""
    try:
        return terms_of(json.loads(body))
    except ValueError as error:
        raise JournalError(f"parameters must be as the ledger wrote them: {error}") from None


def write_position(account: Account) -> str:
    """Where an account stands: its sums as doubles in hexadecimal, then quanta and prepaid runs.

    Strangers that the menu sold follow, each as one word of JSON.
    """
    tally, menu = account.sums.tally, account.terms.menu
    scalars = _THREE.pack(*tally[1:]) if account.terms.cut else _TWO.pack(*tally[1:3])
    sums = (tally.rdp.astype(_DOUBLE, copy=False).tobytes() + scalars).hex()
    if menu is None:
        return sums
    quanta = _ENDED if account.quanta is None else account.quanta.left
    strangers = [canonical(plain_item(item)) for item in account.strangers]
    return " ".join(map(str, [sums, quanta, *account.prepaid, *strangers]))


def read_position(terms: Terms, text: str, near: Account | None = None) -> Account:
    """The account with these terms that `write_position` wrote.

    Args:
        terms: Those of the budget.
        text: Where it stands.
        near: An account of the same terms from which it is found faster.

    Raises:
        JournalError: They do not fit together.
    """
    try:
        sums, *counts = text.split(" ")
        packed = np.frombuffer(bytes.fromhex(sums), dtype=_DOUBLE).astype(np.float64, copy=False)
        size = len(terms.mixture.orders)
        wanted = size + (3 if terms.cut else 2)
        if len(packed) != wanted or not packed.item(packed.argmin()) >= 0:  # the first NaN, if any
            raise ValueError("other numbers")
        if bool(counts) != (terms.menu is not None):
            raise ValueError("counts without a menu, or a menu without counts")
        tally = Tally(packed[:size], *packed[size:].tolist())
        if not counts:
            return Account.at(terms, tally, near=near)
        left, *prepaid = counts
        ended = left == _ENDED
        numbers = [int(number) for number in prepaid if number[:1] != "{"]
        strangers = [read_item(json.loads(word)) for word in prepaid[len(numbers) :]]
        standing = (0 if ended else int(left), numbers, not ended, strangers)
        account = Account.at(terms, tally, standing, near=near)
        if write_position(account) != text:
            raise ValueError("numbers in another form")
    except (KeyError, TypeError, ValueError, StateError) as error:
        raise JournalError(f"sums must be as the ledger wrote them: {error}") from error
    return account
