# SPDX-License-Identifier: Apache-2.0
"""Names in errors: the nearest known one for whoever mistyped it, and the first of many.

Needs nothing but the standard library, so that every part may suggest the same way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None if none is like it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def hint(name: str, known: Iterable[str]) -> str:
    """The end of an error that suggests the nearest known name; empty if none is like it."""
    close = nearest(name, known)
    return f"; did you mean {close!r}?" if close and close != name else ""


def first(names: Sequence[str], most: int = 5) -> str:
    """The names, or the first of them and how many more there are; "none" if there are none."""
    rest = len(names) - most
    shown = ", ".join(names[:most]) or "none"
    return f"{shown} and {rest} more" if rest > 0 else shown
