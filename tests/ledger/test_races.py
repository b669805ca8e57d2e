# SPDX-License-Identifier: Apache-2.0
"""Many processes at once, and processes that die: nothing overdrawn, nothing lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dosimeter as dm
from dosimeter.ledger import Kind, Ledger, LedgerUnavailable
from ledger import clients
from ledger.servers import Postgres

RACERS = 16
LIMIT = 30.0


def run_race(url: str, names: list[str], racers: int = RACERS) -> list[tuple[str, int, str]]:
    """The receipts of clients that spent until they were refused."""
    command = [sys.executable, clients.__file__, "race", url, json.dumps(names), str(racers)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300).stdout
    return [tuple(json.loads(line)) for line in output.splitlines()]


MENUS = pytest.mark.parametrize("menu", [None, clients.MENU], ids=["sums", "menu"])
MENUS_SLOWLY = pytest.mark.parametrize(
    "menu", [None, pytest.param(clients.MENU, marks=pytest.mark.slow)], ids=["sums", "menu"]
)


def race_and_check(url: str, repeat: int, menu: list[dm.Cost] | None) -> int:
    """Races for one budget; the number of spends that were affordable and were made."""
    name = f"race {repeat}"
    with Ledger.open(url) as ledger:
        budget = ledger.create(name, epsilon=1.0, delta=1e-6, menu=menu)
        affordable = dm.Filter(1.0, 1e-6, menu=menu).affordable(clients.COST)
        # Leaves a dozen units for the sixteen to race for.
        budget.spend(clients.COST, affordable - 12)
        receipts = run_race(url, [name])
        assert len(receipts) == 12
        assert sorted(sequence for _, sequence, _ in receipts) == list(range(2, 14))
        spends = [entry for entry in budget.history() if entry.kind is Kind.SPEND]
        assert sum(entry.count for entry in spends) == affordable
        assert not budget.admits(clients.COST)
        assert budget.epsilon <= 1.0
        found = ledger.verify(name)
        assert found.ok, found
        exported = {json.loads(line)["hash"] for line in list(ledger.export(name))[:-1]}
        assert {hash for _, _, hash in receipts} <= exported
    return affordable


class TestRaces:
    @MENUS
    def test_exactly_the_affordable_number_succeed(
        self, url: str, menu: list[dm.Cost] | None
    ) -> None:
        assert race_and_check(url, 0, menu) > 12

    @MENUS
    @pytest.mark.slow
    def test_exactly_the_affordable_number_succeed_fifty_times(
        self, url: str, menu: list[dm.Cost] | None
    ) -> None:
        for repeat in range(50):
            race_and_check(url, repeat, menu)

    @MENUS_SLOWLY
    def test_spends_in_several_budgets_do_not_deadlock(
        self, url: str, menu: list[dm.Cost] | None
    ) -> None:
        names = ["a", "b", "c"]
        clients.create(url, names, 0.6, menu)
        affordable = dm.Filter(0.6, 1e-6, menu=menu).affordable(clients.COST)
        receipts = run_race(url, names, racers=6)
        assert Counter(name for name, _, _ in receipts) == dict.fromkeys(names, affordable)
        with Ledger.open(url) as ledger:
            assert all(ledger.verify(name).ok for name in names)

    @MENUS_SLOWLY
    def test_threads_of_one_client_share_it(
        self, ledger: Ledger, menu: list[dm.Cost] | None
    ) -> None:
        budget = ledger.create("t", epsilon=1.0, delta=1e-6, menu=menu)
        affordable = budget.affordable(clients.COST)
        receipts: list[int] = []

        def spend_until_refused() -> None:
            try:
                while True:
                    receipts.append(budget.spend(clients.COST).sequence)
            except dm.BudgetExceeded:
                pass

        threads = [threading.Thread(target=spend_until_refused) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(receipts) == list(range(1, affordable + 1))
        assert ledger.verify("t").ok

    def test_one_key_from_many_clients_spends_once(
        self, open_ledger: Callable[..., Ledger]
    ) -> None:
        open_ledger().create("k", epsilon=1.0, delta=1e-6)
        receipts = []
        ledgers = [open_ledger() for _ in range(6)]

        def spend(ledger: Ledger) -> None:
            receipts.append(ledger["k"].spend(clients.COST, key="the one"))

        threads = [threading.Thread(target=spend, args=(ledger,)) for ledger in ledgers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({receipt.hash for receipt in receipts}) == 1
        assert sum(not receipt.replayed for receipt in receipts) == 1
        assert ledgers[0]["k"].statement().entries == 2

    def test_many_may_open_a_new_ledger_at_once(self, url: str) -> None:
        command = (
            "import sys, os; from dosimeter.ledger import Ledger\n"
            "children = [os.fork() for _ in range(3)]\n"
            "Ledger.open(sys.argv[1]).create(str(os.getpid()), 1.0, 1e-6)\n"
            "[os.waitpid(child, 0) for child in children if child and all(children)]"
        )
        subprocess.run([sys.executable, "-c", command, url], check=True, timeout=120)
        with Ledger.open(url) as ledger:
            assert len(list(ledger)) == 8

    def test_a_child_leaves_the_connections_of_its_parent_alone(self, url: str) -> None:
        with Ledger.open(url) as ledger:
            budget = ledger.create("b", 1.0, 1e-6)
            lines = ledger.export("b")
            next(lines)
            child = os.fork()
            if child == 0:
                lines.close()
                ledger.disconnect()
                budget.spend(clients.COST)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(lines)) == 1  # the one that counts them
            assert budget.statement().entries == 2


@contextmanager
def loaded(url: str, log: Path, number: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """Clients that spend without end, in a process group of their own."""
    command = [sys.executable, clients.__file__, "load", url, str(log), str(number)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def acknowledged(log: Path) -> list[tuple[str, int, str, bool]]:
    """What the clients had a receipt for."""
    found = []
    for part in sorted(log.parent.glob(f"{log.name}.*")):
        found += [tuple(json.loads(line)) for line in part.read_text().splitlines()]
    return found


def check_after_kills(url: str, log: Path, number: int = 2) -> tuple[int, int]:
    """The number of receipts and of journal entries, once they were found to agree."""
    receipts = acknowledged(log)
    with Ledger.open(url) as ledger:
        lines = [json.loads(line) for line in list(ledger.export("load"))[:-1]]
        spends = {line["key"]: line for line in lines if line["kind"] == Kind.SPEND}
        assert len(spends) == len(lines) - 1
        assert len({key for key, *_ in receipts}) == len(receipts)
        for key, sequence, hash, _ in receipts:
            assert (spends[key]["sequence"], spends[key]["hash"]) == (sequence, hash)
        # At most the last spend of each client was recorded and not acknowledged.
        assert len(receipts) <= len(spends) <= len(receipts) + number
        found = ledger.verify("load")
        assert found.ok, found
        assert found.epsilon <= LIMIT
    return len(receipts), len(spends)


def kill_clients(url: str, log: Path, times: int, menu: list[dm.Cost] | None) -> tuple[int, int]:
    """Kills clients in the middle of spends, again and again."""
    rng = random.Random(times)
    clients.create(url, ["load"], LIMIT, menu)
    for _ in range(times):
        before = len(acknowledged(log))
        with loaded(url, log):
            while len(acknowledged(log)) < before + 4:
                time.sleep(0.005)
            time.sleep(rng.random() * 0.02)
    return check_after_kills(url, log)


def kill_server(
    server: Postgres, url: str, log: Path, times: int, menu: list[dm.Cost] | None
) -> tuple[int, int]:
    """Kills the server under load, again and again."""
    rng = random.Random(times)
    clients.create(url, ["load"], LIMIT, menu)
    with loaded(url, log):
        for _ in range(times):
            before = len(acknowledged(log))
            while len(acknowledged(log)) < before + 4:
                time.sleep(0.005)
            time.sleep(rng.random() * 0.02)
            server.kill()
            server.start()
    return check_after_kills(url, log)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server beside the one of the other tests."""
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def own_server(mortal: Postgres) -> Postgres:
    """A server to be killed, up and running."""
    mortal.start()
    return mortal


class TestKills:
    @MENUS_SLOWLY
    def test_clients(self, url: str, tmp_path: Path, menu: list[dm.Cost] | None) -> None:
        kill_clients(url, tmp_path / "log", 3, menu)

    @MENUS_SLOWLY
    def test_the_server(
        self, own_server: Postgres, tmp_path: Path, menu: list[dm.Cost] | None
    ) -> None:
        kill_server(own_server, own_server.fresh_url(), tmp_path / "log", 2, menu)

    @MENUS
    @pytest.mark.slow
    def test_clients_a_hundred_times(
        self,
        url: str,
        tmp_path: Path,
        menu: list[dm.Cost] | None,
        record_property: Callable[[str, object], None],
    ) -> None:
        record_property("receipts, entries", kill_clients(url, tmp_path / "log", 100, menu))

    @MENUS
    @pytest.mark.slow
    def test_the_server_a_hundred_times(
        self,
        own_server: Postgres,
        tmp_path: Path,
        menu: list[dm.Cost] | None,
        record_property: Callable[[str, object], None],
    ) -> None:
        url = own_server.fresh_url()
        done = kill_server(own_server, url, tmp_path / "log", 100, menu)
        record_property("receipts, entries", done)

    def test_a_reservation_is_lost_with_its_process(self, ledger: Ledger, url: str) -> None:
        budget = ledger.create("r", epsilon=1.0, delta=1e-6)
        program = (
            "import os, sys, dosimeter as dm; from dosimeter.ledger import Ledger\n"
            "Ledger.open(sys.argv[1])['r'].reserve(dm.Gaussian(40), 10)\n"
            "os.kill(os.getpid(), 9)"
        )
        subprocess.run([sys.executable, "-c", program, url], check=False, timeout=60)
        twin = dm.Filter(1.0, 1e-6)
        twin.spend(dm.Gaussian(40), 10)
        assert budget.epsilon == pytest.approx(twin.epsilon, rel=1e-6)
        assert ledger.verify("r").ok


def test_a_stopped_server_is_an_error_and_then_works_again(own_server: Postgres) -> None:
    ledger = Ledger.open(own_server.fresh_url())
    budget = ledger.create("b", epsilon=1.0, delta=1e-6)
    budget.spend(clients.COST)
    own_server.kill()
    with pytest.raises(LedgerUnavailable):
        budget.spend(clients.COST, key="k")
    own_server.start()
    assert budget.spend(clients.COST, key="k").sequence == 2
    assert ledger.verify("b").ok
    ledger.disconnect()
