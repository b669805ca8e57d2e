# SPDX-License-Identifier: Apache-2.0
"""Accounts that one client keeps between its spends.

An account is a value, so it is kept with the balance that it was read from or led to, and used
wherever the row is still that very balance. What a client saw recorded is remembered, because
a budget that no longer holds it has lost spends.
"""

from __future__ import annotations

import os
import threading

from dosimeter.accounting import Account
from dosimeter.ledger.book import UNSEEN, Balance, Seen

_MOST = 4096


class LiveAccounts:
    """Accounts by the name of their budget, each with its balance."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Balance, Account]] = {}
        self._seen: dict[str, Seen] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def latest(self, name: str) -> tuple[Balance, Account] | None:
        """What is kept for a budget; its balance was checked when it was."""
        return self._kept.get(name)

    def keep(self, *recorded: tuple[Balance, Account]) -> None:
        """Keeps accounts that are recorded."""
        if self._process != os.getpid():
            # Another thread may have held it when this process was forked.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            for pair in recorded:
                _, name, _, sequence, head, *_ = pair[0]
                if sequence < self._seen.get(name, UNSEEN)[0]:
                    continue  # another thread has gone on
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                self._kept[name] = pair
                self._seen[name] = (sequence, head)

    def seen(self, name: str) -> Seen:
        """Sequence and hash of the last entry of a budget that this client saw recorded."""
        return self._seen.get(name, UNSEEN)
