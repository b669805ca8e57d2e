# SPDX-License-Identifier: Apache-2.0
"""What a store raises: whatever a driver says, in the ledger's words."""

from __future__ import annotations

from dosimeter.errors import DosimeterError


class LedgerError(DosimeterError):
    """Every error of the ledger but a refusal."""


class SchemaMismatch(LedgerError):
    """Tables of another version: another release of dosimeter made this database."""


class LedgerUnavailable(LedgerError):
    """The database cannot be used now: unreachable, full, read-only or damaged.

    Attributes:
        outcome_unknown: Whether the transaction may have been recorded all the same. A
            retry with the same key is safe; without a key treat it as spent.
    """

    def __init__(self, message: str, outcome_unknown: bool = False) -> None:
        self.outcome_unknown = outcome_unknown
        super().__init__(message, outcome_unknown)

    def __str__(self) -> str:
        return str(self.args[0])


class LedgerBusy(LedgerUnavailable):
    """Someone else held the lock for longer than the timeout; nothing was recorded."""


class ConnectionLost(LedgerUnavailable):
    """The server went away in the middle of a transaction."""
