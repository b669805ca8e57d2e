# SPDX-License-Identifier: Apache-2.0
"""Heap: memory that a step has freed stays with the process for the next one.

By default glibc gives it back when much lies free at the end of its heap, 64 MiB at the latest, and
the system clears every page again before the next step gets it. Gradients that are written out are
freed at once with a step and pass that mark where a plain step does not.
"""

from __future__ import annotations

import ctypes
import os

KEPT = 2**30
"""How many free bytes stay with the process; what goes beyond is given back as before."""

LARGE = 2**25
"""Blocks from this size on are had from the system each time: the most that glibc takes here."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed() -> None:
    """Has glibc keep what is freed; does nothing where it is not in use or was told otherwise."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    try:
        glibc, process = ctypes.CDLL("libc.so.6"), ctypes.CDLL(None)
        ours = _address(glibc.malloc) == _address(process.malloc)  # no other one is in front
        # The first would end glibc's own choice of the second.
        if ours and glibc.mallopt(_M_MMAP_THRESHOLD, LARGE):
            glibc.mallopt(_M_TRIM_THRESHOLD, KEPT)
    except (OSError, AttributeError, TypeError):
        return  # another system or another C library


def _address(function: object) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
