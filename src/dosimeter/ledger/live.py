# SPDX-License-Identifier: Apache-2.0
"""Accounts that one client keeps between its spends.

An account is a value, so it is kept with the balance that it was read from or led to, and used
wherever the row is still that very balance. A budget that ends before what this client saw
recorded has lost spends, and is refused.
"""

from __future__ import annotations

from dosimeter.accounting import Account
from dosimeter.ledger.book import Balance
from dosimeter.ledger.errors import JournalError

_MOST = 1024


class LiveAccounts:
    """Accounts by the name of their budget, each with its balance."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Balance, Account]] = {}
        self._seen: dict[str, tuple[int, str]] = {}

    def latest(self, name: str) -> tuple[Balance, Account] | None:
        """What is kept for a budget; its balance was checked when it was."""
        return self._kept.get(name)

    def keep(self, balance: Balance, account: Account) -> None:
        """Keeps an account that is recorded."""
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[balance.name] = (balance, account)
        self._seen[balance.name] = max(
            self._seen.get(balance.name, (-1, "")), (balance.sequence, balance.head)
        )

    def require_not_before(self, balance: Balance) -> tuple[int, str]:
        """Sequence and hash of the last entry that this client saw, if the balance reaches it.

        Raises:
            JournalError: The budget went back, as when an old backup is restored.
        """
        sequence, head = self._seen.get(balance.name, (-1, ""))
        if balance.sequence < sequence or (balance.sequence == sequence and balance.head != head):
            raise went_back(balance, sequence)
        return sequence, head


def went_back(balance: Balance, sequence: int) -> JournalError:
    """The error of a budget that lost an entry which a client saw recorded."""
    return JournalError(
        f"budget {balance.name!r} must hold entry {sequence}, which was recorded, and it "
        f"ends at entry {balance.sequence} or with another; was an old backup restored?"
    )
