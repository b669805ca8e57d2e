# SPDX-License-Identifier: Apache-2.0
"""A server in place of a budget service: it keeps the reports of runs, and can stop them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Page:
    """What was reported to `url`, last report last; `stop` is the answer to the next one."""

    def __init__(self) -> None:
        self.url = ""
        self.reports: list[dict[str, Any]] = []
        self.stop = False
        self.away = False

    @property
    def last(self) -> dict[str, Any]:
        """The last report."""
        return self.reports[-1]


@contextmanager
def page() -> Iterator[Page]:
    """Serve a page on a free port of this machine."""
    made = Page()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if made.away:
                self.close_connection = True
                return
            made.reports.append(json.loads(body))
            answer = json.dumps({"stop": made.stop}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield made
        finally:
            server.shutdown()
