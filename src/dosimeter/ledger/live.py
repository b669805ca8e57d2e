# SPDX-License-Identifier: Apache-2.0
"""Live accounts, kept between the spends of one client.

An account is kept with the balance that it has reached. The row of a budget is read under
its lock at every spend all the same; only if it is still that very balance is the account
used again, else it is restored from the row. Whoever works on an account takes it out, so
no two threads share one, and a transaction that fails leaves none behind. A budget that
ends before what this client saw recorded has lost spends, and is refused.
"""

from __future__ import annotations

from dosimeter.ledger.accounts import Account
from dosimeter.ledger.book import Balance
from dosimeter.ledger.errors import JournalError

_MOST = 1024


class LiveAccounts:
    """Accounts by the name of their budget, each with the balance that it has reached."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Balance, Account]] = {}
        self._seen: dict[str, tuple[int, str]] = {}

    def known(self, name: str) -> Balance | None:
        """The balance that is kept for a budget, which was checked when it was."""
        kept = self._kept.get(name)
        return None if kept is None else kept[0]

    def pop(self, name: str) -> tuple[Balance, Account] | None:
        """What is kept for a budget, which the caller now owns."""
        return self._kept.pop(name, None)

    def take(self, balance: Balance) -> Account | None:
        """The account at a balance, which the caller now owns; None if it is not kept."""
        kept = self._kept.pop(balance.name, None)
        return kept[1] if kept is not None and kept[0] == balance else None

    def keep(self, balance: Balance, account: Account) -> None:
        """Keeps a account that is recorded; the caller gives it up."""
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
