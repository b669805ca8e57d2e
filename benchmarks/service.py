# SPDX-License-Identifier: Apache-2.0
"""The budget office: a spend over HTTP beside a no-op on the same service, and pages at scale.

The no-op goes the same way as a spend, through the same guard, token and turn, and ends in the
least write transaction that there is: one row updated, committed. Both are timed in turn in one
run, so that the machine cancels out.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import uvicorn
from sqlalchemy import text

from benchmarks.ledger import COST, _postgresql
from benchmarks.ledger_scale import fill
from benchmarks.measure import Result, best_seconds
from dosimeter.ledger import Ledger
from dosimeter.rdp.plain import to_plain
from dosimeter.service import Grant, Office, make_app
from dosimeter.service.api import At, Who
from dosimeter.service.patience import Patience
from dosimeter.service.server import keep_loaded

CLIENTS, ROUNDS, EACH = 16, 6, 25
BUDGETS, ENTRIES, FEW = 10_000, 1_000_000, 10_000


def results() -> list[Result]:
    """The figures with the goals they were measured for."""
    rows: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, _postgresql(Path(folder)) as server:
        Path(folder).chmod(0o755)
        for store, url in {"sqlite": f"sqlite:///{folder}/s.db", "postgresql": server}.items():
            rows += rates(store, url)
        prepare(folder)
        rows += scale(folder)
    return rows


def rates(store: str, url: str) -> list[Result]:
    """Spends of many clients from one budget, beside no-ops of as many."""
    with Office(url) as office, Ledger.open(url) as ledger:
        ledger.create("shared", 1e3, 1e-6)
        token = office.tokens.issue("load", [Grant.read("spender:*")], issued_by="bench")
    spend = json.dumps({"costs": {"shared": to_plain(COST)}})
    best = {"/v1/spend": 0.0, "/noop": 0.0}
    seconds: list[float] = []
    with serving(url) as address:
        for turn in range(ROUNDS + 1):
            for path in best:
                rate, found = _together(address, path, token, spend, f"{path}-{turn}")
                if turn:  # the first round warms up
                    best[path] = max(best[path], rate)
                    seconds += found if path == "/v1/spend" else []
    ordered = sorted(seconds)
    half, most = (ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    name = f"{store}: spend over HTTP, {CLIENTS} clients"
    ratio = best["/v1/spend"] / best["/noop"]
    return [
        Result.at_least(name, ratio, 0.5, "times the rate of a no-op"),
        Result.at_most(f"{name}, p99", most / half, 3.0, "times p50"),
        Result(f"{name}, rate", best["/v1/spend"], "a second", "", True),
    ]


def _together(
    address: str, path: str, token: str, body: str, round: str
) -> tuple[float, list[float]]:
    """The rate of all clients together, and the seconds of each request."""
    barrier, found = threading.Barrier(CLIENTS + 1), []

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(address).netloc)
        barrier.wait()
        for i in range(EACH):
            head = {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/json",
                "Idempotency-Key": f"{round}-{number}-{i}",
            }
            began = time.perf_counter()
            connection.request("POST", path, body, head)
            answer = connection.getresponse()
            answer.read()
            found.append(time.perf_counter() - began)
            if answer.status != 200:
                raise RuntimeError(f"{path} answered {answer.status}")
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    if len(found) != CLIENTS * EACH:
        raise RuntimeError("a client failed")
    return len(found) / (time.perf_counter() - began), found


def prepare(folder: str) -> None:
    """A ledger of many budgets, one of which has a long journal and one a short one."""
    with Ledger.open(f"sqlite:///{folder}/scale.db") as ledger:
        labels = [f"{number:05}" for number in range(BUDGETS - 2)]
        ledger.create_blocks("day", labels, 8.0, 1e-6)
        fill(ledger, "day-short", FEW)
        fill(ledger, "day-long", ENTRIES)


def scale(folder: str) -> list[Result]:
    """How long pages take where there are many budgets and long journals."""
    url = f"sqlite:///{folder}/scale.db"
    with Office(url) as office:
        token = office.tokens.issue("eye", [Grant.read("reader:*")], issued_by="bench")
    with serving(url) as address:
        page = _browser(address, token)
        overview = best_seconds(lambda: page("/"), repeats=5)
        middle = best_seconds(lambda: page("/?after=day%2F05000"), repeats=3)
        long, short = float("inf"), float("inf")
        for _ in range(5):
            short = min(short, best_seconds(lambda: page("/budget?name=day-short"), repeats=1))
            long = min(long, best_seconds(lambda: page("/budget?name=day-long"), repeats=1))
    many = f"{BUDGETS:,} budgets, {ENTRIES:,} entries"
    return [
        Result.at_most(f"overview, {many}", max(overview, middle), 1.0, "s"),
        Result.at_most(f"a budget's page, {many}", long, 1.0, "s"),
        Result.at_most(f"that over one of {FEW:,} entries", long / short, 1.5, "times"),
    ]


def _browser(address: str, token: str) -> Callable[[str], None]:
    """Asks for pages as somebody who has signed in."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/login", urlencode({"token": token}, quote_via=quote), form)
    answer = connection.getresponse()
    answer.read()
    cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def page(path: str) -> None:
        connection.request("GET", path, headers={"Cookie": cookie, "Accept": "text/html"})
        got = connection.getresponse()
        html = got.read()
        if got.status != 200 or b"</html>" not in html:
            raise RuntimeError(f"{path} answered {got.status}")

    return page


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The address of a service with a no-op beside its routes, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.service", "serve", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _serve(url: str) -> None:
    with Office(url) as office:
        with office._cabinet.writing() as connection:
            connection.execute(text("CREATE TABLE noop (n INTEGER)"))
            connection.execute(text("INSERT INTO noop VALUES (0)"))

        def write() -> dict[str, bool]:
            with office._cabinet.writing() as connection:
                connection.execute(text("UPDATE noop SET n = n + 1"))
            return {"done": True}

        async def noop(who: Who, at: At) -> Any:
            return await at.write(["shared"], write)

        app = make_app(office, rate=1e6)
        app._app.add_api_route("/noop", noop, methods=["POST"])  # type: ignore[attr-defined]
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", http=Patience)
        server = uvicorn.Server(config)

        def announce() -> None:
            while not server.started:
                time.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            print(f"http://127.0.0.1:{port}", flush=True)

        threading.Thread(target=announce, daemon=True).start()
        keep_loaded()
        server.run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(sys.argv[2])
    else:
        for row in results():
            print(f"{row.name:60} {row.value:8.3f} {row.unit}  ({row.goal}) {row.met}")
