# SPDX-License-Identifier: Apache-2.0
"""Edges: what is no URL, whose database it is, who does not answer, and who holds a lock."""

from __future__ import annotations

import linecache
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import psycopg
import pytest
from typer.testing import CliRunner

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.ledger import JournalError, Ledger, LedgerBusy, LedgerError, LedgerUnavailable
from dosimeter.ledger.stores import placed
from dosimeter.ledger.stores.base import Link, Values
from dosimeter.ledger.stores.postgresql import PostgresqlStore
from ledger import raw
from ledger.servers import Postgres

COST = dm.Gaussian(50)
SECRET = "correct-horse"


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            f"host=db.example.org password={SECRET} dbname=x",
            f"password = {SECRET}",
            f"dbname=x user=y password='{SECRET}'",
            f"postgresql:/user:{SECRET}@host/x",
            f"postgresql:user:{SECRET}@host/x",
            f"postgres+psycopg://user:{SECRET}@host/x",
            f"mysql://user:{SECRET}@host/x",
            f"postgresql://user:{SECRET}%zz@host/x",
            f"postgresql://user:{SECRET}@host/x?nothing=1",
        ],
    )
    def test_what_is_none_makes_no_file_and_is_not_repeated(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match="url must") as caught:
            Ledger.open(url, timeout=2)
        assert SECRET not in str(caught.value)
        for words in ("list", "create b --epsilon 1 --delta 1e-6"):
            done = CliRunner().invoke(app, ["budget", *words.split(), "--db", url])
            assert done.exit_code == 2
            assert SECRET not in done.output
        assert list(tmp_path.iterdir()) == []

    def test_a_password_that_is_wrong_is_not_repeated(self, postgres: Postgres) -> None:
        url = f"postgresql://nobody:{SECRET}@/nothing?host=/no/such/folder"
        with pytest.raises(LedgerUnavailable) as caught:
            Ledger.open(url, timeout=2)
        assert SECRET not in str(caught.value)

    def test_the_forms_that_are_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/")
        assert placed("a b.db").file == placed("sqlite:///a b.db").file == "/a b.db"
        assert placed("sqlite:////x/y.db").file == "/x/y.db"
        assert placed("host.db").file == "/host.db"
        assert placed("C:/x.db").backend == "sqlite"
        assert placed("postgres://u@h/d").target == "postgresql://u@h/d"
        with pytest.raises(ValueError, match="options"):
            placed("sqlite:///b.db?mode=ro")


class TestForeignDatabases:
    def test_looking_at_one_changes_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "theirs.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE theirs (x)")
        connection.close()
        before = path.read_bytes()
        with pytest.raises(LedgerUnavailable, match="hold a ledger"):
            Ledger.open(str(path), make=False)
        for words in ("list", "verify", "show b", "spend b --gaussian 20", "export b"):
            done = CliRunner().invoke(app, ["budget", *words.split(), "--db", str(path)])
            assert done.exit_code == 6, done.output
        assert path.read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["theirs.db"]

    def test_no_more_on_postgresql(self, postgres: Postgres) -> None:
        url = postgres.fresh_url()
        with pytest.raises(LedgerUnavailable, match="hold a ledger"):
            Ledger.open(url, make=False)
        tables = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema()"
        assert raw.query(url, tables) == []

    def test_a_file_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerUnavailable, match="must exist"):
            Ledger.open(str(tmp_path / "b.db"), make=False)
        assert list(tmp_path.iterdir()) == []

    def test_two_schemas_do_not_silently_hold_two_ledgers(self, postgres: Postgres) -> None:
        first, second = postgres.fresh_url(), postgres.fresh_url()
        for url in (first, second):
            Ledger.open(url).disconnect()
        schemas = [url.partition("search_path%3D")[2] for url in (first, second)]
        with pytest.raises(LedgerError, match="one ledger"):
            Ledger.open(f"{postgres.url}&options=-csearch_path%3D{','.join(schemas)}")
        # Whoever names none would make one beside those that are there.
        with pytest.raises(LedgerError, match="name the schema"):
            Ledger.open(postgres.url)


def test_auditors_need_only_read(postgres: Postgres) -> None:
    url = postgres.fresh_url()
    schema = url.partition("search_path%3D")[2]
    with Ledger.open(url) as ledger:
        ledger.create("b", epsilon=1.0, delta=1e-6).spend(COST)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE auditor_{schema} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO auditor_{schema}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO auditor_{schema}")
    with Ledger.open(url + f"%20-crole%3Dauditor_{schema}", make=False) as auditor:
        assert auditor.verify("b").ok
        assert [one.name for one in auditor.statements()] == ["b"]
        with pytest.raises(LedgerUnavailable, match="may not use"):
            auditor["b"].spend(COST)


def test_a_server_without_fsync_is_warned_of(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dosimeter.ledger.stores.base import Transaction

    sql = Transaction.sql

    def off(transaction: Transaction, text: str) -> list[tuple[Any, ...]]:
        return [("off",)] if text == "SHOW fsync" else sql(transaction, text)

    url = postgres.fresh_url()
    with warnings.catch_warnings(record=True) as none:
        Ledger.open(url).disconnect()
    assert none == []
    monkeypatch.setattr(Transaction, "sql", off)
    with pytest.warns(RuntimeWarning, match="fsync must be on"):
        Ledger.open(url).disconnect()


def test_blocks_made_in_opposite_orders_do_not_wait_for_each_other(
    open_ledger: Callable[..., Ledger],
) -> None:
    """Both begin with the names that the other ends with; one of them finds them taken."""
    labels = [str(number) for number in range(60)]
    results: list[str] = []

    def make(order: list[str]) -> None:
        try:
            open_ledger(timeout=20).create_blocks("day", order, epsilon=1.0, delta=1e-6)
            results.append("made")
        except LedgerError as error:
            results.append(type(error).__name__)

    threads = [threading.Thread(target=make, args=(order,)) for order in (labels, labels[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["BudgetExists", "made"]


def test_a_cost_too_long_to_write_is_refused(ledger: Ledger, url: str) -> None:
    budget = ledger.create("b", epsilon=1.0, delta=1e-6)
    before = raw.everything(url)
    orders = [1.5 + number / 7 for number in range(5000)]
    with pytest.raises(ValueError, match="at most 100000 characters"):
        budget.spend(dm.Curve(orders, [1e-3] * len(orders)))
    assert raw.everything(url) == before


class Slow(dm.Gaussian):
    """Asks, as it is priced, whether the ledger is locked."""

    asked: Callable[[], None] = staticmethod(lambda: None)

    def _curve(self, orders: Any) -> Any:
        Slow.asked()
        return super()._curve(orders)


@pytest.mark.parametrize("names", [["b"], ["b", "c"]])
def test_nothing_is_locked_while_a_cost_is_priced(
    url: str,
    ledger: Ledger,
    open_ledger: Callable[..., Ledger],
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in names:
        ledger.create(name, epsilon=1.0, delta=1e-6)
    other = open_ledger(timeout=2)
    other["b"].spend(COST)
    times = []
    cost = Slow(noise_multiplier=77.0 + len(names) + len(url))

    def asked() -> None:
        times.append(other["b"].spend(COST).sequence)

    monkeypatch.setattr(Slow, "asked", staticmethod(asked))
    monkeypatch.setattr("dosimeter.ledger.request.written", lambda _: '{"kind":"slow"}')
    for client in (open_ledger(), ledger):
        receipts = client.spend_all(dict.fromkeys(names, cost))
        assert sorted(receipts) == sorted(names)
    assert times  # it was priced, and another client spent meanwhile


class TestWhoDoesNotAnswer:
    @pytest.fixture
    def server(self) -> Iterator[Postgres]:
        made = Postgres()
        yield made
        made.stop()

    def test_a_frozen_server_is_not_waited_for(self, server: Postgres) -> None:
        with Ledger.open(server.fresh_url(), timeout=1.0) as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            budget.spend(COST)
            with server.frozen():
                began = time.monotonic()
                # The statement is on its way to a server that may wake up again.
                with pytest.raises(LedgerUnavailable, match="may have been recorded") as caught:
                    budget.spend(COST, key="k")
                # One wait, and not several: a hundred times as long was seen without a limit.
                assert time.monotonic() - began < 20
                assert caught.value.outcome_unknown
                with pytest.raises(LedgerUnavailable):
                    budget.affordable(COST)
            assert open_again(ledger, "k").sequence == 2
            assert budget.statement().entries == 3
            assert ledger.verify("b").ok

    def test_one_that_freezes_in_the_commit_leaves_it_open(
        self, server: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Ledger.open(server.fresh_url(), timeout=1.0) as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            ledger.create("c", epsilon=1.0, delta=1e-6)
            budget.spend(COST)
            commit = psycopg.Connection.commit

            def frozen(connection: psycopg.Connection) -> None:
                backend = psutil.Process(connection.info.backend_pid)
                backend.suspend()
                threading.Timer(4.0, backend.resume).start()
                commit(connection)

            with monkeypatch.context() as patch:
                patch.setattr(psycopg.Connection, "commit", frozen)
                with pytest.raises(LedgerUnavailable, match="may have been") as caught:
                    ledger.spend_all({"b": COST, "c": COST}, key="k")
            assert caught.value.outcome_unknown
            # The commit is on its way to a server that wakes up again.
            receipt = open_again(ledger, "k")
            assert receipt.sequence == 2
            assert ledger.verify("b").entries == 3

    def test_so_does_one_that_freezes_as_a_spend_under_the_lock_is_committed(
        self, server: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = server.fresh_url()
        with Ledger.open(url, timeout=1.0) as ledger, Ledger.open(url) as other:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            budget.spend(COST)
            other["b"].spend(COST)  # so that the next one must ask under the lock
            commit = PostgresqlStore.run_and_commit

            def frozen(store: PostgresqlStore, link: Link, text: str, values: Values) -> int:
                backend = psutil.Process(link.connection.info.backend_pid)
                backend.suspend()
                threading.Timer(4.0, backend.resume).start()
                return commit(store, link, text, values)

            with monkeypatch.context() as patch:
                patch.setattr(PostgresqlStore, "run_and_commit", frozen)
                with pytest.raises(LedgerUnavailable, match="may have been recorded") as caught:
                    budget.spend(COST, key="k")
            assert caught.value.outcome_unknown
            receipt = open_again(ledger, "k")
            assert (receipt.sequence, ledger.verify("b").entries) == (3, 4)

    def test_what_moved_under_the_lock_all_the_same_is_not_acknowledged(
        self, server: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = server.fresh_url()
        with Ledger.open(url) as ledger, Ledger.open(url) as other:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            budget.spend(COST)
            other["b"].spend(COST)
            commit = PostgresqlStore.run_and_commit

            def elsewhere(store: PostgresqlStore, link: Link, text: str, values: Values) -> int:
                return commit(store, link, text, (*values[:6], -1, *values[7:]))

            with monkeypatch.context() as patch:
                patch.setattr(PostgresqlStore, "run_and_commit", elsewhere)
                with pytest.raises(JournalError, match="must stay locked"):
                    budget.spend(COST)
            assert (budget.spend(COST).sequence, ledger.verify("b").entries) == (3, 4)


def open_again(ledger: Ledger, key: str) -> dm.ledger.Receipt:
    """The receipt of a retry, as a client does that was told to: until it is answered."""
    for _ in range(50):
        try:
            return ledger["b"].spend(COST, key=key)
        except LedgerUnavailable:
            time.sleep(0.2)
    raise AssertionError("the server never answered")


def test_a_disk_that_fails_in_the_commit_leaves_it_open(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "b.db")) as ledger:
        budget = ledger.create("b", epsilon=1.0, delta=1e-6)
        budget.spend(COST)
        store = ledger._desk.store
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        failed = store.failure(error, None, committing=True)
        assert failed.outcome_unknown  # type: ignore[attr-defined]
        assert "may have been recorded" in str(failed)
        before = store.failure(error, None)
        assert not before.outcome_unknown  # type: ignore[attr-defined]


class TestLocks:
    def test_who_is_stopped_with_the_lock_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "b.db"
        with Ledger.open(str(path), timeout=0.3) as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            program = (
                "import sqlite3, sys, os, signal\n"
                "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
                "connection.execute('BEGIN IMMEDIATE')\n"
                "print('locked', flush=True)\n"
                "os.kill(os.getpid(), signal.SIGSTOP)\n"
            )
            child = subprocess.Popen(
                [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
            )
            try:
                assert child.stdout is not None
                assert child.stdout.readline() == b"locked\n"
                os.waitpid(child.pid, os.WUNTRACED)
                with pytest.raises(LedgerBusy) as caught:
                    budget.spend(COST)
                if sys.platform == "linux":
                    assert f"process {child.pid}, which is stopped" in str(caught.value)
            finally:
                os.kill(child.pid, signal.SIGCONT)
                child.wait()
                child.stdout.close()
            assert budget.spend(COST).sequence == 1

    @pytest.mark.parametrize("key", [None, "k"])
    def test_an_interrupt_anywhere_lets_go_of_the_lock(
        self, tmp_path: Path, key: str | None
    ) -> None:
        """One at every line that a spend walks through, with its traceback looked at."""
        path = tmp_path / "b.db"
        with Ledger.open(str(path)) as ledger:
            budget = ledger.create("b", epsilon=50.0, delta=1e-6)
            budget.spend(COST)
            recorded, place, looked_at = 1, 0, []
            while True:
                place += 1
                at = f"{key} {place}" if key else None
                try:
                    with interrupted_at(place) as done:
                        budget.spend(COST, key=at)
                except KeyboardInterrupt as interrupt:
                    probe = sqlite3.connect(path, 0, isolation_level=None)
                    probe.execute("BEGIN IMMEDIATE")
                    probe.close()
                    looked_at.append(interrupt)
                if not done:
                    break
                entries = budget.statement().entries - 1
                assert recorded <= entries <= recorded + 1
                recorded = entries
            assert place > 50
            assert ledger.verify("b").ok


class interrupted_at:
    """Raises KeyboardInterrupt at the n-th line of the ledger's code that is run."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.done: list[int] = []

    def __enter__(self) -> list[int]:
        sys.settrace(self.trace)
        return self.done

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if "dosimeter/ledger" not in frame.f_code.co_filename:
            return None
        # Where a block of `with` ends, a line comes up again that no interrupt can stop at.
        if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            return self.trace
        self.left -= 1
        if self.left == 0:
            self.done.append(frame.f_lineno)
            raise KeyboardInterrupt
        return self.trace


def test_children_that_are_forked_while_a_thread_spends_can_spend(url: str) -> None:
    with Ledger.open(url) as ledger:
        budget = ledger.create("b", epsilon=1000.0, delta=1e-6)
        stop = threading.Event()

        def spend_on() -> None:
            while not stop.is_set():
                budget.spend(COST)

        threads = [threading.Thread(target=spend_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                # A child of several threads is what this is about.
                with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                    child = os.fork()
                if child == 0:
                    signal.alarm(30)
                    try:
                        budget.spend(COST)
                        os._exit(0)
                    except BaseException:
                        os._exit(1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert ledger.verify("b").ok


def test_what_was_released_of_the_cap_can_be_reserved_again(ledger: Ledger) -> None:
    """A cap that is used up to the last digit, many times over."""
    budget = ledger.create("b", epsilon=30.0, delta=1e-6, approx_delta=4e-8)
    cost = dm.ApproxDp(0.01, 1e-8)
    for _ in range(20):
        with budget.reserve(cost, 4):
            assert not budget.admits(cost)
    with budget.reserve(cost, 4) as held:
        held.draw(4)
    assert not budget.admits(cost)
    assert ledger.verify("b").ok
