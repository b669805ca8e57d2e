# SPDX-License-Identifier: Apache-2.0
"""Patience: a connection on which the head of a request takes too long is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SLOWEST_HEAD = 10.0


class Patience(H11Protocol):
    """The server's side of a connection, with a limit on the time for a request's head."""

    slowest_head = SLOWEST_HEAD
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there; its first request is awaited."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Something came: a part of a head, a head, or a body."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._watch()
        else:
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._alarm is None:
            self._alarm = self.loop.call_later(self.slowest_head, self._late)

    def _rest(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _late(self) -> None:
        self._alarm = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
