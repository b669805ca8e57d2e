# SPDX-License-Identifier: Apache-2.0
"""What a ledger says, as JSON between a service and its clients, and back.

Costs are written as in a journal, infinity as the text "inf". An error is its name, its words
and what a refusal carries; the client raises the very error that the ledger raised.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import errors
from dosimeter.ledger.receipts import Receipt
from dosimeter.ledger.records import Entry, canonical
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain, to_plain

T = TypeVar("T")

_ERRORS: dict[str, type[Exception]] = {
    **{name: getattr(errors, name) for name in errors.__all__},
    "TypeError": TypeError,
    "ValueError": ValueError,
}
_REFUSAL = ("cost", "count", "spent", "limit", "affordable")


def to_wire(value: Any) -> Any:
    """A value of the ledger as plain JSON values."""
    if isinstance(value, Entry):
        return json.loads(value.body())
    if isinstance(value, Cost):
        return to_plain(value)
    if isinstance(value, float):
        return "inf" if value == math.inf else value
    if dataclasses.is_dataclass(value):
        return {f.name: to_wire(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Receipt):
        return {name: to_wire(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: to_wire(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(part) for part in value]
    return value


def receipt_from(plain: Mapping[str, Any]) -> Receipt:
    """The receipt that `to_wire` wrote."""
    values = {**plain, "cost": from_plain(plain["cost"]), "epsilon": _number(plain["epsilon"])}
    return Receipt(**values)


def entry_from(plain: Mapping[str, Any]) -> Entry:
    """The entry that `to_wire` wrote."""
    return Entry.parse(canonical(plain))


def value_from(kind: type[T], plain: Mapping[str, Any]) -> T:
    """The frozen value of this kind, with no cost in it, that `to_wire` wrote."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    numbers = {field.name for field in fields if field.type == "float"}
    return kind(**{k: _number(v) if k in numbers else v for k, v in plain.items()})


def error_to_wire(error: Exception) -> dict[str, Any]:
    """An error as JSON; only those of the ledger and of wrong values may be told."""
    said: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, errors.BudgetNotFound):
        # Without the name that is close to it, which the caller may not be allowed to know.
        said |= {"name": error.args[0], "message": str(errors.BudgetNotFound(error.args[0]))}
    if isinstance(error, errors.LedgerUnavailable):
        said["outcome_unknown"] = error.outcome_unknown
    if isinstance(error, errors.LedgerRefusal):
        said |= {name: to_wire(getattr(error, name)) for name in _REFUSAL}
        said["budget"] = error.budget
        said["reason"] = error.reason.removeprefix(f"in budget {error.budget!r} ")
    return said


def error_from(said: Mapping[str, Any]) -> Exception:
    """The error that `error_to_wire` wrote; a LedgerError of its words if it is unknown."""
    name, message = str(said.get("error")), str(said.get("message", "the service failed"))
    if name == "LedgerRefusal":
        asked = {part: said[part] for part in (*_REFUSAL, "reason")}
        asked |= {part: _number(asked[part]) for part in ("spent", "limit")}
        asked["cost"] = from_plain(asked["cost"])
        return errors.LedgerRefusal(said["budget"], BudgetExceeded(**asked))
    if name == "BudgetNotFound":
        return errors.BudgetNotFound(said["name"])
    if name == "ConnectionLost":
        return errors.ConnectionLost(message, bool(said.get("outcome_unknown")))
    return _ERRORS.get(name, errors.LedgerError)(message)


def _number(value: Any) -> float:
    return math.inf if value == "inf" else float(value)
