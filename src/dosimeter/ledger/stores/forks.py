# SPDX-License-Identifier: Apache-2.0
"""Forks wait until no other thread is inside of a transaction.

A child has only the thread that forked it. Locks that another thread held at that moment, in a
driver's library too, are held for ever there, and the child's first spend would wait for them.
"""

from __future__ import annotations

import os
import threading
import time

_PATIENCE = 5.0
"""Seconds that a fork waits; one that may take longer is waiting for a lock, and holds none."""

_inside: dict[int, int] = {}
_forking: set[int] = set()
"""Threads that wait to fork. No lock guards these two: a child could find it held."""


def enter() -> None:
    """A thread begins a transaction."""
    thread = threading.get_ident()
    _inside[thread] = _inside.get(thread, 0) + 1
    # First in, then a look: whoever forks does it the other way round, so one sees the other.
    while _forking and _inside[thread] == 1 and thread not in _forking:
        leave()
        time.sleep(0.0005)
        _inside[thread] = 1


def leave() -> None:
    """A thread has ended a transaction."""
    thread = threading.get_ident()
    left = _inside.get(thread, 0) - 1
    if left > 0:
        _inside[thread] = left
    else:
        _inside.pop(thread, None)


def _before() -> None:
    mine = threading.get_ident()
    _forking.add(mine)
    deadline = time.monotonic() + _PATIENCE
    while any(thread != mine for thread in tuple(_inside)) and time.monotonic() < deadline:
        time.sleep(0.0005)


def _after_in_parent() -> None:
    _forking.discard(threading.get_ident())


def _after_in_child() -> None:
    _forking.clear()
    mine = threading.get_ident()
    for thread in tuple(_inside):
        if thread != mine:
            del _inside[thread]


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
