# SPDX-License-Identifier: Apache-2.0
"""Services to test: in a thread of this process, or in a process that can be killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from dosimeter.ledger.signing import Signer
from dosimeter.service import Grant, Office, make_app
from dosimeter.service.patience import Patience

PROGRAM = [sys.executable, "-c", "from dosimeter.cli import main; main()"]


class Running:
    """A service that answers at `address`, and its office."""

    def __init__(self, office: Office, address: str) -> None:
        self.office = office
        self.address = address

    def token(self, *grants: str, owner: str = "ada", days: float = 1) -> str:
        """A new token."""
        given = [Grant.read(text) for text in grants]
        return self.office.tokens.issue(owner, given, days=days, issued_by="test")


@contextmanager
def running(url: str, *, signer: Signer | None = None, **options: object) -> Iterator[Running]:
    """A service over a database, on a free port."""
    with Office(url, signer=signer) as office:
        made: list[uvicorn.Server] = []
        app = make_app(office, ending=lambda: made[0].should_exit, **options)
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", http=Patience)
        server = uvicorn.Server(config)
        made.append(server)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield Running(office, f"http://127.0.0.1:{port}")
        finally:
            server.should_exit = True
            thread.join()


def free_port() -> int:
    """A port that nobody listens on, and that no connection is given as its own."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """`dosimeter serve` in a process of its own."""

    def __init__(self, url: str, port: int = 0, *, log: str | None = None) -> None:
        arguments = ["serve", "--db", url, "--port", str(port)]
        self._log = open(log or os.devnull, "ab")
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().removeprefix("serving ").strip()
        assert self.address.startswith("http"), self.address

    def first_token(self) -> str:
        """The token that it prints when there is none yet."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().removeprefix("first token ").strip()

    def end(self, how: int = signal.SIGTERM) -> int:
        """Ends it and waits; the exit code."""
        self.process.send_signal(how)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return code
