# SPDX-License-Identifier: Apache-2.0
"""Courier: requests to a budget service, asked again until there is an answer.

A question may be asked any number of times, and so may a command that carries a key: the
service records it once and gives the same answer again. Anything else is sent once, and if its
answer is lost the error says that the outcome is unknown.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from dosimeter import arguments
from dosimeter.ledger.errors import AccessDenied, ConnectionLost, LedgerUnavailable
from dosimeter.ledger.wire import error_from

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AGAIN = (429, 502, 503, 504)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Courier:
    """Carries requests to one service with one token."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self._url, self._token = _checked(url, token)
        self._timeout = arguments.positive("timeout", timeout)
        self._client: httpx.Client | None = None
        self._process = 0

    @property
    def url(self) -> str:
        """Where the service is; the token is no part of it."""
        return self._url

    def ask(self, path: str, **values: Any) -> Any:
        """The answer to a question."""
        return self._sent("GET", path, params=values, again=True).json()

    def lines(self, path: str, **values: Any) -> Iterator[str]:
        """The lines of a text that a question is answered with."""
        return iter(self._sent("GET", path, params=values, again=True).text.splitlines())

    def tell(self, path: str, body: Any, *, key: str | None = None, again: bool = False) -> Any:
        """The answer to a command.

        Args:
            path: What is commanded.
            body: Its values.
            key: A name for this very command, under which the service does it once.
            again: Whether it may be sent again for another reason: it changes nothing, or the
                same thing twice.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        again = again or key is not None
        return self._sent("POST", path, json=body, headers=headers, again=again).json()

    def close(self) -> None:
        """Closes the idle connections."""
        client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.close()

    def _sent(self, method: str, path: str, *, again: bool, **request: Any) -> httpx.Response:
        deadline = time.monotonic() + self._timeout
        pause, unknown = _FIRST_PAUSE, False
        while True:
            try:
                answer = self._connected().request(method, f"{self._url}{path}", **request)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                said = f"{type(error).__name__}: {error}"
            except httpx.TransportError as error:
                said, unknown = f"{type(error).__name__}: {error}", True
            else:
                if answer.status_code not in _AGAIN:
                    return _read(answer)
                unknown = unknown or _may_have_been_done(answer)
                said = f"it answered {answer.status_code}"
            late = time.monotonic() + pause > deadline
            if late or (unknown and not again):
                raise self._lost(said, unknown=unknown and method != "GET")
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _connected(self) -> httpx.Client:
        # A connection that came through a fork would carry two processes' words at once.
        if self._client is None or self._process != os.getpid():
            self._process = os.getpid()
            self._client = httpx.Client(
                headers={"Authorization": f"Bearer {self._token}"}, timeout=self._timeout
            )
        return self._client

    def _lost(self, said: str, *, unknown: bool) -> LedgerUnavailable:
        known = "it may have been recorded" if unknown else "nothing was recorded"
        return ConnectionLost(
            f"the service at {self._url} does not answer and {known}; retry with the same key "
            f"({said})",
            outcome_unknown=unknown,
        )


def _checked(url: str, token: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment or not parts.hostname:
        raise ValueError("url must be that of a service alone, such as https://budgets.example.org")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError(
            f"url must begin with https://, because it carries a token, got http://{parts.netloc}; "
            "http:// is for this machine only"
        )
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise ValueError("token must be one that the service has issued; give token= or set "
                         "DOSIMETER_TOKEN")  # fmt: skip
    return url.rstrip("/"), token


def _may_have_been_done(answer: httpx.Response) -> bool:
    """Whether a failed command may have been carried out all the same."""
    try:
        said = answer.json()
    except ValueError:
        return answer.status_code != 429  # a proxy's words, which say nothing of it
    return bool(said.get("outcome_unknown", False)) if isinstance(said, dict) else True


def _read(answer: httpx.Response) -> httpx.Response:
    """A good answer; anything else is raised as what the ledger raised."""
    if answer.is_success:
        return answer
    try:
        said = answer.json()
    except ValueError:
        said = None
    if not isinstance(said, dict) or "error" not in said:
        raise LedgerUnavailable(
            f"url must be that of a budget service, got an answer {answer.status_code} of another "
            "kind; nothing was recorded"
        )
    error = error_from(said)
    if answer.status_code == 401 and not isinstance(error, AccessDenied):
        error = AccessDenied(str(error))
    raise error
