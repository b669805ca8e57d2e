# SPDX-License-Identifier: Apache-2.0
"""A ledger where teams live: hot budgets, thousands of blocks, long journals.

Ratios are to the same rows written by hand in the same run, on the same server: counters that are
selected, updated to the values worked out, and a line inserted for each. Times are those of this
machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ledger import COST, Work, _by_hand, _postgresql, _spends, _together
from benchmarks.measure import Result, best_seconds
from dosimeter.accounting import Account, Terms
from dosimeter.ledger import Ledger, book, journal
from dosimeter.ledger.request import request

BLOCKS, BUDGETS, ENTRIES = 1_000, 10_000, 100_000
_FILLED_AT_ONCE = 100_000
_HOT = {"sqlite": 0.5, "postgresql": 0.6}


def results() -> list[Result]:
    """The figures with the goals they were measured for."""
    rows: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, _postgresql(Path(folder)) as server:
        os.chmod(folder, 0o755)
        for store, url in {"sqlite": f"sqlite:///{folder}/l.db", "postgresql": server}.items():
            for clients in (8, 16):
                _tell(f"{store}: {clients} clients spend from one budget")
                rate = hot(url, clients)
                name = f"{store}: one hot budget, {clients} clients"
                rows.append(Result.at_least(name, rate, _HOT[store], "times the rate by hand"))
            _tell(f"{store}: {BLOCKS:,} of {BUDGETS:,} blocks")
            several, listed = blocks(url)
            name = f"{store}: spend in {BLOCKS:,} of {BUDGETS:,} blocks"
            rows.append(Result.at_most(name, several, 10.0, "times by hand"))
            name = f"{store}: list {BUDGETS:,} budgets"
            rows.append(Result.at_most(name, listed, 1.0, "s"))
        _tell(f"a journal of {ENTRIES:,} entries")
        rows += _long_journal(folder)
        _tell("start-up")
        rows.append(Result.at_most("dosimeter budget show", start_up(folder), 0.4, "s of CPU"))
    return rows


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def hot(url: str, clients: int, number: int = 50, repeats: int = 5) -> float:
    """The rate of clients that all spend from one budget, over that by hand."""
    name = f"hot {clients}"
    with Ledger.open(url) as ledger, _by_hand(url):
        ledger.create(name, epsilon=8.0, delta=1e-6)

    @contextmanager
    def by_hand(_: int) -> Iterator[Work]:
        with _by_hand(url) as (work, _connection):
            yield work

    @contextmanager
    def spends(_: int) -> Iterator[Work]:
        with Ledger.open(url, timeout=120) as ledger:
            yield _spends(ledger[name])

    best = {by_hand: float("inf"), spends: float("inf")}
    for _ in range(repeats):
        for client in best:
            best[client] = min(best[client], _together(client, number, clients))
    return best[by_hand] / best[spends]


def blocks(url: str) -> tuple[float, float]:
    """A spend in many blocks over the same by hand, and the seconds of a list of all budgets."""
    with Ledger.open(url) as ledger, _by_hand(url) as (_, connection):
        labels = [f"{number:05}" for number in range(BUDGETS)]
        ledger.create_blocks("day", labels, epsilon=8.0, delta=1e-6)
        costs = dict.fromkeys((f"day/{label}" for label in labels[:BLOCKS]), COST)
        sqlite = url.startswith("sqlite")
        mark, begin, lock = ("?", "BEGIN IMMEDIATE", "") if sqlite else ("%s", "", " FOR UPDATE")
        numbers = [(number,) for number in range(1000, 1000 + BLOCKS)]
        cursor = connection.cursor()
        cursor.executemany(f"INSERT INTO counter VALUES ({mark}, 0)", numbers)
        connection.commit()

        def by_hand() -> None:
            if begin:
                cursor.execute(begin)
            found = cursor.execute(f"SELECT n, id FROM counter WHERE id >= 1000 ORDER BY id{lock}")
            after = [(n + 1, number) for n, number in found.fetchall()]
            cursor.executemany(f"UPDATE counter SET n = {mark} WHERE id = {mark}", after)
            cursor.executemany(f"INSERT INTO line VALUES ({mark}, 0, 'spent')", numbers)
            connection.commit()

        for work in (by_hand, lambda: ledger.spend_all(costs)):
            work()
        hand, ours = float("inf"), float("inf")
        for _ in range(7):
            hand = min(hand, best_seconds(by_hand, repeats=1))
            ours = min(ours, best_seconds(lambda: ledger.spend_all(costs), repeats=1))
        listed = best_seconds(lambda: ledger.statements(most=2 * BUDGETS), repeats=3)
    return ours / hand, listed


def _long_journal(folder: str) -> list[Result]:
    """What it takes to verify and to import a long journal."""
    url = f"sqlite:///{folder}/long.db"
    with Ledger.open(url) as ledger:
        fill(ledger, "long", ENTRIES)
        whole = best_seconds(lambda: ledger.verify("long"), repeats=2, clock=time.process_time)
        memory = ledger.verify("long").memory
        ledger["long"].spend(COST)
        again = best_seconds(lambda: ledger.verify("long", since=memory), repeats=3)
        file = Path(folder) / "long.jsonl"
        file.write_text("".join(line + "\n" for line in ledger.export("long")))
    entries, scale = f"{ENTRIES:,} entries", 1_000_000 / ENTRIES
    return [
        Result.at_most(
            "verify, of 1,000,000 entries", whole * scale, 40.0, f"s of CPU, from {entries}"
        ),
        Result.at_most("verify since the last time", again, 2.0, "s"),
        Result.at_most(f"import of {entries}", _import_memory(folder, file), 100.0, "MB more"),
    ]


def fill(ledger: Ledger, name: str, entries: int) -> None:
    """Spends as a client does, but recorded in a few transactions."""
    ledger.create(name, epsilon=1e3, delta=1e-6)
    note = request(name, COST, 1, None, "", "").note(name)
    account = Account.open(Terms.of_filter(1e3, 1e-6))
    for begun in range(0, entries, _FILLED_AT_ONCE):
        with ledger._desk.store.writing() as transaction:
            first = balance = book.read(transaction, name)
            lines = []
            for _ in range(min(_FILLED_AT_ONCE, entries - begun)):
                account = account.after(COST)
                at = book.position(account)
                step = book.step(balance, at, note, "2026-01-01T00:00:00.000000+00:00")
                balance = step.after
                lines.append(journal.Line(balance.sequence, None, None, balance.head, step.body))
            step._replace(before=first).record(transaction)
            journal.write(transaction, balance, lines[:-1])


def _import_memory(folder: str, file: Path) -> float:
    """Megabytes that an import takes beyond an idle client."""
    program = (
        "import json, resource, sys\n"
        "from dosimeter.ledger import Ledger\n"
        "with Ledger.open(sys.argv[1]) as ledger:\n"
        "    ledger.create('other', epsilon=1.0, delta=1e-6)\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    with open(sys.argv[2]) as lines:\n"
        "        ledger.import_journal(lines)\n"
        "    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))\n"
    )
    command = [sys.executable, "-c", program, f"{folder}/imported.db", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kilobytes: int = json.loads(done.stdout)
    return kilobytes / 1024


def start_up(folder: str) -> float:
    """Seconds of CPU of `dosimeter budget show`, from start to end, the best of several.

    Modules are compiled once, as where the package is installed, whatever the environment says.
    """
    url = f"sqlite:///{folder}/show.db"
    with Ledger.open(url) as ledger:
        ledger.create("patients", epsilon=3.0, delta=1e-6).spend(COST)
    program = "from dosimeter.cli import main; main()"
    command = [sys.executable, "-c", program, "budget", "show", "patients", "--db", url]
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)

    def seconds() -> float:
        before = _children()
        subprocess.run(command, capture_output=True, check=True, env=compiled)
        return _children() - before

    return min(seconds() for _ in range(7))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    began = time.monotonic()
    for row in results():
        print(f"{row.name:50} {row.value:8.3f} {row.unit}  ({row.goal}) {row.met}")
    print(f"{time.monotonic() - began:.0f} s")
