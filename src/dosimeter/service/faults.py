# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as answers: a status, the name of the error and its words, and no secrets.

What a driver of a database says stays in the log.
"""

from __future__ import annotations

from typing import Any

from dosimeter.errors import DosimeterError
from dosimeter.ledger import (
    AccessDenied,
    BudgetNotFound,
    JournalError,
    LedgerUnavailable,
    SchemaMismatch,
)
from dosimeter.ledger.wire import error_to_wire


class NotKnown(AccessDenied):
    """No token, or not one that is valid here."""


class TooMuch(AccessDenied):
    """More was sent, or more often, than the service takes.

    Attributes:
        status: The HTTP status that says which.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


_STATUS: list[tuple[type[Exception], int]] = [
    (NotKnown, 401),
    (AccessDenied, 403),
    (BudgetNotFound, 404),
    (LedgerUnavailable, 503),
    (SchemaMismatch, 503),
    (JournalError, 500),
    (DosimeterError, 409),
    (ValueError, 422),
    (TypeError, 422),
]
FAILED = "the service failed, and its log says why; retry with the same key"


def status(error: Exception) -> int:
    """The HTTP status of an error."""
    if isinstance(error, TooMuch):
        return error.status
    return next((code for kind, code in _STATUS if isinstance(error, kind)), 500)


def said(error: Exception) -> dict[str, Any]:
    """What a client is told of an error."""
    code = status(error)
    if isinstance(error, LedgerUnavailable):
        known = "it may have been recorded" if error.outcome_unknown else "nothing was recorded"
        words = f"the database cannot be used now and {known}; retry with the same key"
        return {**error_to_wire(error), "message": words}
    if isinstance(error, NotKnown | TooMuch):
        return {"error": "AccessDenied", "message": str(error), "outcome_unknown": False}
    if code == 500 and not isinstance(error, JournalError):
        return {"error": "LedgerError", "message": FAILED}
    return error_to_wire(error)


def headers(error: Exception) -> dict[str, str]:
    """What else an answer to it says."""
    match status(error):
        case 401:
            return {"WWW-Authenticate": "Bearer"}
        case 429 | 503:
            return {"Retry-After": "1"}
    return {}
