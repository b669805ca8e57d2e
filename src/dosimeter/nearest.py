# SPDX-License-Identifier: Apache-2.0
"""The nearest known name, for whoever mistyped one.

Needs nothing but the standard library, so that every part may suggest the same way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None if none is like it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None
