# SPDX-License-Identifier: Apache-2.0
"""Privacy budgets that outlive the process, shared by many (extra: ledger)."""

from dosimeter.ledger.blocks import Blocks
from dosimeter.ledger.budget import Budget, Price, Statement
from dosimeter.ledger.errors import (
    AccessDenied,
    AwaitingApproval,
    BudgetClosed,
    BudgetExists,
    BudgetNotFound,
    ConnectionLost,
    JournalError,
    KeyConflict,
    LedgerBusy,
    LedgerError,
    LedgerRefusal,
    LedgerUnavailable,
    ReservationError,
    SchemaMismatch,
)
from dosimeter.ledger.ledger import Ledger
from dosimeter.ledger.noted import Noted
from dosimeter.ledger.receipts import Receipt, Verification
from dosimeter.ledger.records import Entry, Kind
from dosimeter.ledger.reservation import Buffered, Reservation
from dosimeter.ledger.streams import Stream

__all__ = [
    "AccessDenied",
    "AwaitingApproval",
    "Blocks",
    "Budget",
    "BudgetClosed",
    "BudgetExists",
    "BudgetNotFound",
    "Buffered",
    "ConnectionLost",
    "Entry",
    "JournalError",
    "KeyConflict",
    "Kind",
    "Ledger",
    "LedgerBusy",
    "LedgerError",
    "LedgerRefusal",
    "LedgerUnavailable",
    "Noted",
    "Price",
    "Receipt",
    "Reservation",
    "ReservationError",
    "SchemaMismatch",
    "Statement",
    "Stream",
    "Verification",
]
