# SPDX-License-Identifier: Apache-2.0
"""Saved states of gates: plain JSON, versioned, exact, and checked on the way back.

Floats are written as themselves (Python and JSON round-trip them exactly), infinity as
the string "inf". The checksum notices accidents and edits by hand; it does not stop
someone who recomputes it, so keep a state where only trusted people can write.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dosimeter import arguments
from dosimeter.errors import StateError
from dosimeter.rdp.orders import FloatArray

VERSION = 1
State = dict[str, Any]


def seal(kind: str, fields: Mapping[str, Any]) -> State:
    """A state of the given kind, with its version and checksum."""
    body = {"kind": kind, "version": VERSION, **fields}
    return {**body, "checksum": _checksum(body)}


def unseal(kind: str, state: Mapping[str, Any], names: frozenset[str]) -> Mapping[str, Any]:
    """The state itself, after checking its kind, version, names and checksum."""
    if not isinstance(state, Mapping):
        raise StateError(f"state must be a mapping such as state() returns, got {state!r}")
    for name, wanted in (("kind", kind), ("version", VERSION)):
        value = state.get(name)
        if isinstance(value, bool) or value != wanted:
            raise StateError(f"state {name} must be {wanted!r}, got {value!r}")
    odd = set(state) ^ (names | {"kind", "version", "checksum"})
    if odd:
        raise StateError(
            f"state must hold exactly what state() wrote, got {sorted(map(str, odd))} amiss"
        )
    body = {key: value for key, value in state.items() if key != "checksum"}
    if _checksum(body) != state["checksum"]:
        raise StateError("state must be as state() wrote it, got one whose checksum is wrong")
    return state


def number(value: float) -> float | str:
    """A float as JSON can hold it."""
    return "inf" if value == math.inf else value


def numbers(name: str, values: Iterable[object]) -> FloatArray:
    """The non-negative floats that `number` wrote."""
    read = [math.inf if value == "inf" else arguments.real(name, value) for value in values]
    if not all(value >= 0 for value in read):
        raise StateError(f"state {name} must be >= 0, got {min(read)!r}")
    return np.array(read)


def one(name: str, value: object) -> float:
    """The non-negative float that `number` wrote."""
    return float(numbers(name, [value])[0])


def _checksum(body: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(body, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(f"state must be plain JSON, got something else: {error}") from None
    return hashlib.sha256(text.encode()).hexdigest()
