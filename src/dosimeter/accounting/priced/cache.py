# SPDX-License-Identifier: Apache-2.0
"""Menus and ladders kept on disk, so that the seconds they take are spent once.

A file is named by a digest of everything that went into it: costs, budget, version of the
library and of the format. It carries a checksum over that and over its content, and what it
promises is confirmed again when it is read. Whatever is missing, cut short, edited, of another
version or not confirmed counts as absent and is computed again; a
folder that cannot be written only costs the time. DOSIMETER_CACHE names another folder, and
an empty value turns the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from dosimeter.files import replaced
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import to_plain

FORMAT = 1
"""Raise it when prices that were kept, here or in a saved state, must no longer be believed."""

_RULES = 1
"""Raise it when rates, tables or lattices change what they give for the same parameters."""


def folder() -> pathlib.Path | None:
    """Where files are kept; None if the cache is turned off or there is no place for it."""
    named = os.environ.get("DOSIMETER_CACHE")
    if named is not None:
        return pathlib.Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return pathlib.Path(base) / "dosimeter"
    try:
        return pathlib.Path.home() / ".cache" / "dosimeter"
    except RuntimeError:
        # A user without a home folder, as in some containers.
        return None


def remembered(
    kind: str,
    costs: Sequence[Cost],
    more: dict[str, Any],
    compute: Callable[[], dict[str, Any]],
    require: Callable[[dict[str, Any]], object],
) -> dict[str, Any]:
    """What `compute` gives for these parameters, from disk if it is there whole and confirmed.

    Args:
        kind: What is kept, a menu or a ladder.
        costs: The costs it is made of.
        more: The other parameters.
        compute: Makes it anew.
        require: Raises if what was found does not hold: a checksum can be computed by anyone.
    """
    try:
        plain = [to_plain(cost) for cost in costs]
    except TypeError:
        # A cost of the caller's own class has no name that would be safe to look up.
        return compute()
    rules = {"format": FORMAT, "rules": _RULES, "version": _version()}
    key = {"kind": kind, **rules, "costs": plain, **more}
    digest = _digest(key)
    place = folder()
    if place is None:
        return compute()
    path = place / f"{kind}-{digest[:32]}.json"
    found = _read(path, key)
    if found is not None:
        try:
            require(found)
        except (KeyError, TypeError, ValueError):
            pass
        else:
            return found
    content = compute()
    _write(path, {"key": key, "content": content, "checksum": _digest([key, content])})
    return content


def _version() -> str:
    import dosimeter

    return dosimeter.__version__


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: pathlib.Path, key: dict[str, Any]) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        content = found["content"]
        whole = found["key"] == key and found["checksum"] == _digest([key, content])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return content if whole and isinstance(content, dict) else None


def _write(path: pathlib.Path, value: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replaced(path, lambda part: part.write_text(json.dumps(value), encoding="utf-8"))
