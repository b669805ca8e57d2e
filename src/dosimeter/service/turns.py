# SPDX-License-Identifier: Apache-2.0
"""Turns: writers of one budget go one after another, in the order in which they came.

The database would see to it too, but not in order: SQLite lets those who wait look again now and
then, and the unlucky wait long. Nothing rests on this but patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from zlib import crc32

_LANES = 64


class Turns:
    """Queues for writers; one for all, or by the names of their budgets."""

    def __init__(self, *, one: bool) -> None:
        self._lanes = [asyncio.Lock() for _ in range(1 if one else _LANES)]

    @asynccontextmanager
    async def take(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Waits until it is one's turn in every queue."""
        lanes = sorted(
            {crc32(name.encode("utf-8", "replace")) % len(self._lanes) for name in names}
        )
        async with AsyncExitStack() as stack:
            for lane in lanes:
                await stack.enter_async_context(self._lanes[lane])
            yield
