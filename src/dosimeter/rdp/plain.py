# SPDX-License-Identifier: Apache-2.0
"""Costs as plain JSON values and back, exactly.

A plain cost names its kind and what defines it, which is enough to compute its curve again
years later; its neighbouring relation is left out where it is add/remove one record. Floats are
written as themselves (JSON round-trips them exactly), infinity as the string "inf". Reading is
strict: an unknown kind, field or relation is refused, never guessed at, and every number passes
the checks of the cost it belongs to.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dosimeter import arguments
from dosimeter.rdp import MECHANISMS, Cost, Neighbours
from dosimeter.rdp.cost import parameters

if TYPE_CHECKING:
    import dp_accounting

Plain = dict[str, Any]

_KINDS: dict[str, type[Cost]] = {made.kind: made for made in MECHANISMS}
_MAX_DEPTH = 100


def to_plain(cost: Cost) -> Plain:
    """A cost as plain JSON values, from which `from_plain` makes an equal cost.

    Raises:
        TypeError: Not a cost, or one of a class of your own; spend a `Curve` instead.
    """
    plain = _plain_cost(cost)
    if cost.neighbours is not Neighbours.ADD_REMOVE_RECORD:
        plain["neighbours"] = str(cost.neighbours)
    return plain


def from_plain(plain: Mapping[str, Any]) -> Cost:
    """The cost that `to_plain` wrote.

    Raises:
        ValueError: Unknown kind, fields or relation, or numbers that the cost refuses.
        TypeError: A field is of the wrong type.
    """
    if not isinstance(plain, Mapping):
        raise TypeError(f"plain cost must be a mapping such as to_plain returns, got {plain!r}")
    stated = dict(plain)
    relation = Neighbours.ADD_REMOVE_RECORD
    if "neighbours" in stated:
        relation = Neighbours.named(stated.pop("neighbours"))
    return _cost(stated, relation, _MAX_DEPTH)


def _plain_cost(cost: Cost) -> Plain:
    """A cost but for its relation, which costs within costs share."""
    if type(cost) not in MECHANISMS:
        raise TypeError(
            f"cost must be of a class in dosimeter.rdp to be written down, got {cost!r}; "
            "give its Curve(orders, cost.rdp(orders)) instead"
        )
    given = {name: _plain_value(value) for name, value in cost.arguments().items()}
    return {"kind": cost.kind, **given}


def _cost(plain: Mapping[str, Any], relation: Neighbours, depth: int) -> Cost:
    kind = plain.get("kind")
    made = _KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        known = ", ".join(sorted(_KINDS))
        raise ValueError(f"kind of a plain cost must be one of {known}, got {kind!r}")
    names = set(parameters(made))
    _require_fields(plain, {"kind", *names})
    given: dict[str, Any] = {name: _value(plain[name], relation, depth) for name in names}
    return made(**given, neighbours=relation)


def _require_fields(plain: Mapping[str, Any], names: set[str]) -> None:
    odd = set(plain) ^ names
    if odd:
        raise ValueError(
            f"plain {plain.get('kind') or plain.get('type')} must have exactly the fields "
            f"{sorted(names)}, got {sorted(map(str, odd))} amiss"
        )


def _plain_value(value: Any) -> Any:
    if type(value) is float:
        return "inf" if value == math.inf else value
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, Cost):
        return _plain_cost(value)
    if hasattr(value, "__attrs_attrs__"):
        return _plain_event(value)
    if hasattr(value, "__index__"):
        return operator.index(value)
    return _plain_value(arguments.real("field of a cost", value))


def _plain_event(event: dp_accounting.DpEvent) -> Plain:
    """An event of dp-accounting field by field, under the name of its class."""
    name = type(event).__name__
    if _event_class(name) is not type(event):
        raise TypeError(
            f"event must be of a class of dp-accounting to be written down, got {event!r}"
        )
    fields = [attribute.name for attribute in type(event).__attrs_attrs__]
    return {"type": name, **{field: _plain_value(getattr(event, field)) for field in fields}}


def _value(value: object, relation: Neighbours, depth: int) -> Any:
    if type(value) is float:
        return value
    if depth == 0:
        raise ValueError(f"plain cost must be nested at most {_MAX_DEPTH} deep, got deeper")
    if isinstance(value, list | tuple):
        return [_value(item, relation, depth - 1) for item in value]
    if isinstance(value, Mapping):
        made = _cost if "kind" in value else _event
        return made(value, relation, depth - 1)
    if value == "inf":
        return math.inf
    return value if isinstance(value, int | float) else arguments.real("field of a cost", value)


def _event(plain: Mapping[str, Any], relation: Neighbours, depth: int) -> dp_accounting.DpEvent:
    made = _event_class(plain.get("type"))
    if made is None:
        raise ValueError(
            f"type of a plain event must be a class of dp-accounting, got {plain.get('type')!r}"
        )
    names = {attribute.name for attribute in made.__attrs_attrs__}
    _require_fields(plain, {"type", *names})
    return made(**{name: _value(plain[name], relation, depth) for name in names})


def _event_class(name: object) -> Any:
    """The class of dp-accounting with this name, or None."""
    from dp_accounting import dp_event

    found = getattr(dp_event, name, None) if isinstance(name, str) else None
    is_event = isinstance(found, type) and issubclass(found, dp_event.DpEvent)
    return found if is_event else None
