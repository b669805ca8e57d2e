# SPDX-License-Identifier: Apache-2.0
"""Guard: what stands around the application, for every request alike.

Bodies that are too large or too slow are refused, answers carry strict headers, and one line of
the log says what was asked and how it ended: never a header, a query, a body or a token.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dosimeter.service.faults import TooMuch, headers, said, status

log = logging.getLogger("dosimeter.service")
LARGEST_BODY = 1 << 20
SLOWEST_BODY = 10.0
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
Seen = Callable[[str, str, int, float], None]


class Guard:
    """An application with limits, headers and a log around it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        https: bool,
        largest: int = LARGEST_BODY,
        slowest: float = SLOWEST_BODY,
        seen: Seen | None = None,
    ) -> None:
        self._app = app
        self._https = https
        self._largest = largest
        self._slowest = slowest
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, ended = time.monotonic(), {"status": 500}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                ended["status"] = message["status"]
                self._mark(MutableHeaders(scope=message))
            await send(message)

        scope.setdefault("state", {})
        try:
            body = await self._read(scope, receive)
        except TooMuch as error:
            await _answer(error, sending)
        else:
            await self._app(scope, _again(body, receive), sending)
        finally:
            self._note(scope, ended["status"], time.monotonic() - began)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, which is short: nothing here takes files."""
        sent = dict(scope["headers"]).get(b"content-length", b"0")
        if not sent.isdigit() or int(sent) > self._largest:
            raise TooMuch(413, f"body must have at most {self._largest} bytes")
        body = b""
        try:
            async with asyncio.timeout(self._slowest):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise TooMuch(400, "body must be whole")
                    body += bytes(message.get("body", b""))
                    if len(body) > self._largest:
                        raise TooMuch(413, f"body must have at most {self._largest} bytes")
                    if not message.get("more_body", False):
                        return body
        except TimeoutError:
            raise TooMuch(408, f"body must arrive within {self._slowest:g} s") from None

    def _mark(self, head: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            head[name] = value
        head.setdefault("Cache-Control", "no-store")
        if self._https:
            head["Strict-Transport-Security"] = "max-age=31536000"
        del head["Server"]

    def _note(self, scope: Scope, code: int, seconds: float) -> None:
        state: MutableMapping[str, Any] = scope["state"]
        caller = state.get("caller")
        route = getattr(scope.get("route"), "path", "")
        if self._seen is not None:
            self._seen(scope["method"], route, code, seconds)
        line = {
            "method": scope["method"],
            "route": route or "none",
            "status": code,
            "ms": round(1000 * seconds, 2),
            "owner": getattr(caller, "owner", None),
            "token": getattr(caller, "token", None),
            "from": scope["client"][0] if scope.get("client") else None,
        }
        log.info("request", extra={"fields": line})


def _again(body: bytes, receive: Receive) -> Receive:
    """A receiver that gives a body that was read, and then what comes after it."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


async def _answer(error: TooMuch, send: Send) -> None:
    body = json.dumps(said(error)).encode()
    head = {"Content-Type": "application/json", "Connection": "close", **headers(error)}
    listed = [(name.lower().encode(), value.encode()) for name, value in head.items()]
    await send({"type": "http.response.start", "status": status(error), "headers": listed})
    await send({"type": "http.response.body", "body": body})
