# SPDX-License-Identifier: Apache-2.0
"""Costs as plain JSON values and back, exactly.

A plain cost names its kind and the numbers that define it, which is enough to compute its
curve again years later. Floats are written as themselves (JSON round-trips them exactly),
infinity as the string "inf". Reading is strict: an unknown kind or field is refused, never
guessed at, and every number passes the checks of the cost it belongs to.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dosimeter import arguments
from dosimeter.rdp.cost import Cost
from dosimeter.rdp.mechanisms import ApproxDp, Curve, Gaussian, Laplace, PureDp, Zcdp
from dosimeter.rdp.sampled_gaussian import SampledGaussian

if TYPE_CHECKING:
    import dp_accounting

Plain = dict[str, Any]

_SCALARS: dict[str, tuple[type[Cost], tuple[str, ...]]] = {
    "approx_dp": (ApproxDp, ("epsilon", "delta")),
    "gaussian": (Gaussian, ("noise_multiplier",)),
    "laplace": (Laplace, ("scale",)),
    "pure_dp": (PureDp, ("epsilon",)),
    "sampled_gaussian": (SampledGaussian, ("sample_rate", "noise_multiplier")),
    "zcdp": (Zcdp, ("rho", "xi")),
}
"""Costs made of a few finite floats: the name of the kind, the class, its arguments."""

_KINDS: dict[type[Cost], str] = {kind: name for name, (kind, _) in _SCALARS.items()}
_MAX_DEPTH = 50


def to_plain(cost: Cost) -> Plain:
    """A cost as plain JSON values, from which `from_plain` makes an equal cost.

    Raises:
        TypeError: Not a cost, or one of a class of your own; spend a `Curve` instead.
    """
    kind = _KINDS.get(type(cost))
    if kind is not None:
        return {"kind": kind, **{name: getattr(cost, name) for name in _SCALARS[kind][1]}}
    if isinstance(cost, Curve):
        return {
            "kind": "curve",
            "orders": list(cost.orders),
            "rdp": [_number(value) for value in cost.values],
        }
    # dp-accounting takes most of a second to import; ask for its class only if nothing else fits.
    if type(cost).__module__ == "dosimeter.rdp.event":
        return {"kind": "event", "event": _plain_event(cost.event)}  # type: ignore[attr-defined]
    raise TypeError(
        f"cost must be of a class in dosimeter.rdp to be written down, got {cost!r}; "
        "give its Curve(orders, cost.rdp(orders)) instead"
    )


def from_plain(plain: Mapping[str, Any]) -> Cost:
    """The cost that `to_plain` wrote.

    Raises:
        ValueError: Unknown kind or fields, or numbers that the cost refuses.
        TypeError: A field is of the wrong type.
    """
    if not isinstance(plain, Mapping):
        raise TypeError(f"plain cost must be a mapping such as to_plain returns, got {plain!r}")
    kind = plain.get("kind")
    if isinstance(kind, str) and kind in _SCALARS:
        made, names = _SCALARS[kind]
        _require_fields(plain, {"kind", *names})
        return made(**{name: arguments.real(name, plain[name]) for name in names})
    if kind == "curve":
        _require_fields(plain, {"kind", "orders", "rdp"})
        return Curve(_numbers("orders", plain["orders"]), _numbers("rdp", plain["rdp"]))
    if kind == "event":
        from dosimeter.rdp.event import Event

        _require_fields(plain, {"kind", "event"})
        return Event(_event(plain["event"], _MAX_DEPTH))
    known = sorted([*_SCALARS, "curve", "event"])
    raise ValueError(f"kind of a plain cost must be one of {', '.join(known)}, got {kind!r}")


def _require_fields(plain: Mapping[str, Any], names: set[str]) -> None:
    odd = set(plain) ^ names
    if odd:
        raise ValueError(
            f"plain {plain.get('kind') or plain.get('type')} must have exactly the fields "
            f"{sorted(names)}, got {sorted(map(str, odd))} amiss"
        )


def _number(value: float) -> float | str:
    return "inf" if value == math.inf else value


def _numbers(name: str, values: object) -> list[float]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} must be a list of numbers, got {values!r}")
    return [math.inf if value == "inf" else arguments.real(name, value) for value in values]


def _plain_event(event: dp_accounting.DpEvent) -> Plain:
    """An event of dp-accounting field by field, under the name of its class."""
    name = type(event).__name__
    if _event_class(name) is not type(event):
        raise TypeError(
            f"event must be of a class of dp-accounting to be written down, got {event!r}"
        )
    fields = [attribute.name for attribute in type(event).__attrs_attrs__]
    return {"type": name, **{field: _plain_value(getattr(event, field)) for field in fields}}


def _plain_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if hasattr(value, "__attrs_attrs__"):
        return _plain_event(value)
    if hasattr(value, "__index__"):
        return operator.index(value)
    return _number(arguments.real("event field", value))


def _event(plain: object, depth: int) -> dp_accounting.DpEvent:
    if not isinstance(plain, Mapping):
        raise TypeError(f"plain event must be a mapping such as to_plain writes, got {plain!r}")
    if depth == 0:
        raise ValueError(f"plain event must be nested at most {_MAX_DEPTH} deep, got deeper")
    made = _event_class(plain.get("type"))
    if made is None:
        raise ValueError(
            f"type of a plain event must be a class of dp-accounting, got {plain.get('type')!r}"
        )
    names = {attribute.name for attribute in made.__attrs_attrs__}
    _require_fields(plain, {"type", *names})
    return made(**{name: _value(plain[name], depth - 1) for name in names})


def _value(value: object, depth: int) -> Any:
    if isinstance(value, list):
        return [_value(item, depth) for item in value]
    if isinstance(value, Mapping):
        return _event(value, depth)
    if value == "inf":
        return math.inf
    return value if isinstance(value, int | float) else arguments.real("event field", value)


def _event_class(name: object) -> Any:
    """The class of dp-accounting with this name, or None."""
    from dp_accounting import dp_event

    found = getattr(dp_event, name, None) if isinstance(name, str) else None
    is_event = isinstance(found, type) and issubclass(found, dp_event.DpEvent)
    return found if is_event else None
