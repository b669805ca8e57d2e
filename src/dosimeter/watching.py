# SPDX-License-Identifier: Apache-2.0
"""Watching: a run that reports to a budget service, whose page shows it and can stop it.

A thread sends the state of the run about once a second. It sends only what was released before:
losses on public data, epsilon, the settings, and the progress in whole percent. A service that is
away never ends or slows a run.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

STOPPED = "it was stopped from the page"
_EVERY = 1.0
_PATIENCE = 10.0
_MOST_EPOCHS = 1000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Watched(Protocol):
    """What is watched: an engine, or anything else that steps and can be stopped."""

    @property
    def steps(self) -> int: ...

    @property
    def steps_per_epoch(self) -> int: ...

    def stop(self, reason: str) -> None: ...


class Mailbox:
    """A budget service to which a run reports, with a token."""

    def __init__(self, url: str, token: str) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ValueError(f"watch must be the URL of a budget service, got {url!r}")
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError(
                f"watch must begin with https://, because it carries a token, got {url!r}"
            )
        if not token.isascii() or not token.isprintable() or not token:
            raise ValueError("watch must come with a token of the service; set DOSIMETER_TOKEN")
        self._url, self._token = f"{url.rstrip('/')}/v1/runs", token

    def send(self, status: Mapping[str, Any]) -> bool:
        """Post a status and return whether the run is to stop.

        Raises:
            OSError: The service cannot be reached.
            ValueError: The service refuses, or is no budget service.
        """
        body = json.dumps(status, allow_nan=False).encode()
        head = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, head)
        try:
            with _opener().open(request, timeout=_PATIENCE) as answer:
                return bool(json.loads(answer.read())["stop"])
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"watch was refused by the service: {_said(error)}") from None
        except (KeyError, TypeError):
            raise ValueError("watch must be the URL of a budget service, got another") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token goes to the host that was named and to no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError):
        return f"it answered {error.code}"


class Watch:
    """Tells a mailbox how a run goes until it ends."""

    def __init__(self, box: Mailbox, run: Watched, about: Mapping[str, Any]) -> None:
        self._box, self._run, self._first = box, run, run.steps
        self._status: dict[str, Any] = {**about, "state": "running", "ended": "", "history": []}
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._report, name="dosimeter run updates", daemon=True
        )

    def start(self) -> None:
        """Tells for the first time, aloud: a wrong URL or token is said before anything is spent.

        Raises:
            ValueError: It cannot be reached, or refuses.
        """
        try:
            self._tell()
        except OSError as error:
            raise ValueError(f"watch must be reachable: {error}") from None
        self._thread.start()

    def show(self, record: Any) -> None:
        """Notes an epoch that was kept."""
        row = {
            "epoch": record.epoch,
            "epsilon": _number(record.epsilon),
            "spent_share": record.spent_share,
            "noise_multiplier": record.noise_multiplier,
            "batch_size": record.batch_size,
            "loss": None if record.loss is None else _number(record.loss),
            "accuracy": record.accuracy,
        }
        self._status = {
            **self._status,
            "history": [*self._status["history"], row][-_MOST_EPOCHS:],
        }

    def end(self, state: str, ended: str) -> None:
        """Tells for the last time."""
        self._over.set()
        self._thread.join(2 * _PATIENCE)
        self._status = {**self._status, "state": state, "ended": ended}
        with suppress(OSError, ValueError):
            self._tell()

    def _report(self) -> None:
        while not self._over.wait(_EVERY):
            with suppress(OSError, ValueError):
                self._tell()

    def _tell(self) -> None:
        status = self._status
        if status["state"] == "running":
            status = {**status, **self._progress()}
        if self._box.send(status):
            self._run.stop(STOPPED)

    def _progress(self) -> dict[str, Any]:
        """How far it is in whole percent, and the seconds that are left at this pace."""
        planned = self._status["epochs"] * self._run.steps_per_epoch
        share = min(1.0, self._run.steps / planned) if planned else 0.0
        done = math.floor(100 * share)
        taken = share - self._first / planned if planned else 0.0
        left = (time.monotonic() - self._began) * (1 - share) / taken if taken > 0 else None
        return {"done": done, "left": None if left is None else math.ceil(left)}


@contextmanager
def watched(
    url: str | None,
    run: Watched,
    *,
    name: str,
    epochs: int,
    gate: object = None,
    ended: Callable[[], str | None] = lambda: None,
) -> Iterator[Callable[[Any], None]]:
    """Report the state of a run while the block lasts; do nothing without a URL.

    Args:
        url: The URL of a budget service, with a token in DOSIMETER_TOKEN.
        run: What is stopped if the page says so.
        name: What the run is called.
        epochs: How many there will be at most.
        gate: What it is charged to; its limit and its name in a ledger are shown.
        ended: Why it ended, asked at its end.

    Yields:
        What is told of each epoch, once its spends are kept.
    """
    if url is None:
        yield lambda _: None
        return
    budget, limit = getattr(gate, "name", None), getattr(gate, "limit", math.inf)
    about = {
        "id": secrets.token_hex(12),
        "name": name[:200],
        "budget": budget if isinstance(budget, str) else None,
        "limit": None if limit == math.inf else float(limit),
        "epochs": epochs,
        "done": 0,
        "left": None,
    }
    watch = Watch(Mailbox(url, os.environ.get("DOSIMETER_TOKEN", "")), run, about)
    watch.start()
    try:
        yield watch.show
    except BaseException as error:
        watch.end("failed", type(error).__name__)
        raise
    watch.end("ended", ended() or "it was done")


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
