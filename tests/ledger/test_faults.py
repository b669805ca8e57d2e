# SPDX-License-Identifier: Apache-2.0
"""Faults: a clear error, nothing lost, nothing half-written, and a retry that is safe."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dosimeter as dm
from dosimeter.ledger import (
    ConnectionLost,
    Ledger,
    LedgerBusy,
    LedgerUnavailable,
    SchemaMismatch,
)
from dosimeter.ledger.stores.sqlite import SqliteStore
from ledger import raw
from ledger.servers import Postgres

COST = dm.Gaussian(50)


def noise(size: int) -> str:
    """Text that no database compresses."""
    return random.Random(0).randbytes(size // 2).hex()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of two megabytes, where a server may reach it."""
    folder = Path(tempfile.mkdtemp(prefix="dosimeter-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


class TestFullDisk:
    def spend_until_full(self, url: str) -> int:
        """How many spends were acknowledged before the disk was full."""
        with Ledger.open(url) as ledger:
            budget = ledger.create("b", epsilon=1e3, delta=1e-6)
            acknowledged = []

            def spend_on() -> None:
                for number in range(1000):
                    budget.spend(COST, key=str(number), purpose=noise(50_000))
                    acknowledged.append(number)

            with pytest.raises(LedgerUnavailable, match="full") as caught:
                spend_on()
            assert not caught.value.outcome_unknown
            assert ledger.verify("b").ok
            assert budget.statement().entries - 1 == len(acknowledged) > 0
            return len(acknowledged)

    def go_on(self, url: str, acknowledged: int) -> None:
        """Retries with the keys of before, now that there is room."""
        with Ledger.open(url) as ledger:
            for number in (acknowledged - 1, acknowledged, acknowledged + 1):
                receipt = ledger["b"].spend(COST, key=str(number))
                assert receipt.replayed == (number < acknowledged)
            assert ledger["b"].statement().entries == acknowledged + 3
            assert ledger.verify("b").ok

    def test_sqlite_with_a_quota(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        url = f"sqlite:///{tmp_path}/b.db"
        connect = SqliteStore.connect

        def limited(store: SqliteStore) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(store)
            connection.execute("PRAGMA max_page_count = 200")
            return connection

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "connect", limited)
            acknowledged = self.spend_until_full(url)
        self.go_on(url, acknowledged)

    def test_sqlite_on_a_small_disk(self, small_disk: Path, tmp_path: Path) -> None:
        acknowledged = self.spend_until_full(f"sqlite:///{small_disk}/b.db")
        for file in small_disk.iterdir():
            shutil.copy(file, tmp_path / file.name)
        self.go_on(f"sqlite:///{tmp_path}/b.db", acknowledged)

    def test_postgresql_on_a_small_disk(self, small_disk: Path, postgres: Postgres) -> None:
        owner = pwd.getpwnam("pgserver")
        os.chown(small_disk, owner.pw_uid, owner.pw_gid)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("DROP TABLESPACE IF EXISTS small")
            connection.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        url = postgres.fresh_url() + "%20-cdefault_tablespace%3Dsmall"
        acknowledged = self.spend_until_full(url)
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        self.go_on(url, acknowledged)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(
                f"DROP SCHEMA {url.split('search_path%3D')[1].split('%20')[0]} CASCADE"
            )
            connection.execute("DROP TABLESPACE small")


class TestReadOnly:
    def test_sqlite_reads_and_refuses_to_spend(self, tmp_path: Path) -> None:
        path = tmp_path / "b.db"
        with Ledger.open(str(path)) as ledger:
            ledger.create("b", epsilon=1.0, delta=1e-6).spend(COST)
            before = raw.everything(f"sqlite:///{path}")
            with Ledger.open(f"sqlite:///file:{path}?mode=ro&uri=true") as reader:
                assert reader["b"].epsilon == ledger["b"].epsilon
                assert reader.verify("b").ok
                with pytest.raises(LedgerUnavailable, match="read-only"):
                    reader["b"].spend(COST)
        assert raw.everything(f"sqlite:///{path}") == before

    def test_postgresql_reads_and_refuses_to_spend(self, postgres: Postgres) -> None:
        url = postgres.fresh_url()
        with Ledger.open(url) as ledger:
            ledger.create("b", epsilon=1.0, delta=1e-6).spend(COST)
        before = raw.everything(url)
        with Ledger.open(url + "%20-cdefault_transaction_read_only%3Don") as reader:
            assert reader.verify("b").ok
            with pytest.raises(LedgerUnavailable, match="read-only"):
                reader["b"].spend(COST)
        assert raw.everything(url) == before


class TestLocked:
    def test_a_lock_that_is_not_given_up_is_an_error(
        self, url: str, open_ledger: Callable[..., Ledger]
    ) -> None:
        budget = open_ledger(timeout=0.2).create("b", epsilon=1.0, delta=1e-6)
        with raw.tables(url) as connection:
            connection.exec_driver_sql("UPDATE dosimeter_budgets SET closed = closed")
            with pytest.raises(LedgerBusy, match=r"0\.2 s"):
                budget.spend(COST, key="k")
            assert budget.epsilon == 0.0
        assert budget.spend(COST, key="k").sequence == 1

    def test_other_budgets_do_not_wait_on_postgresql(self, postgres: Postgres) -> None:
        url = postgres.fresh_url()
        with Ledger.open(url, timeout=0.2) as ledger:
            ledger.create_blocks("day", ["1", "2"], epsilon=1.0, delta=1e-6)
            with raw.tables(url) as connection:
                connection.exec_driver_sql(
                    "SELECT * FROM dosimeter_budgets WHERE name = 'day/1' FOR UPDATE"
                )
                ledger["day/2"].spend(COST)
                with pytest.raises(LedgerBusy):
                    ledger["day/1"].spend(COST)


class TestLostConnection:
    """The connection breaks at the given point of a transaction."""

    def cut(self, postgres: Postgres) -> None:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()"
            )

    @pytest.mark.parametrize("cuts", [1, 2])
    def test_before_the_commit(self, postgres: Postgres, cuts: int) -> None:
        left = 0

        def clock() -> datetime:
            nonlocal left
            if left:
                left -= 1
                self.cut(postgres)
            return datetime.now(UTC)

        with Ledger.open(postgres.fresh_url(), clock=clock) as ledger:
            for name in ("b", "c"):
                ledger.create(name, epsilon=1.0, delta=1e-6)
            both = {"b": COST, "c": COST}
            left = cuts
            if cuts == 1:
                # Nothing was recorded, so the ledger tries once more by itself.
                assert ledger.spend_all(both)["b"].sequence == 1
            else:
                with pytest.raises(ConnectionLost, match="nothing was recorded") as caught:
                    ledger.spend_all(both, key="k")
                assert not caught.value.outcome_unknown
                assert ledger.spend_all(both, key="k")["c"].sequence == 1
            assert ledger["b"].statement().entries == 2
            assert ledger.verify("b").ok

    @pytest.mark.parametrize("key", [None, "k"])
    @pytest.mark.parametrize("recorded", [False, True])
    def test_in_the_one_statement_of_a_spend(
        self,
        postgres: Postgres,
        monkeypatch: pytest.MonkeyPatch,
        recorded: bool,
        key: str | None,
    ) -> None:
        """The ledger looks whether it is recorded, and spends it if not: once, in either case."""
        execute = psycopg.Cursor.execute
        broken = []

        def break_once(cursor: Any, query: Any, *values: Any, **options: Any) -> Any:
            if broken or not str(query).startswith("WITH moved"):
                return execute(cursor, query, *values, **options)
            broken.append(query)
            if recorded:
                execute(cursor, query, *values, **options)
            cursor.connection.close()
            raise psycopg.OperationalError("the connection is lost")

        with Ledger.open(postgres.fresh_url()) as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            budget.spend(COST)
            with monkeypatch.context() as patch:
                patch.setattr(psycopg.Cursor, "execute", break_once)
                receipt = budget.spend(COST, key=key)
            assert broken
            assert (receipt.sequence, receipt.replayed) == (2, False)
            assert budget.holds(receipt.sequence, receipt.hash)
            assert budget.statement().entries == 3
            twin = dm.Filter(1.0, 1e-6)
            twin.spend(COST, 2)
            assert budget.spend(COST).sequence == 3
            assert receipt.epsilon == pytest.approx(twin.epsilon, rel=1e-6)
            assert ledger.verify("b").ok

    def test_in_the_commit_before_it_is_recorded(self, postgres: Postgres) -> None:
        url = postgres.fresh_url()
        with Ledger.open(url) as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            raw.query(
                url,
                "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$",
            )
            raw.query(
                url,
                "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON dosimeter_journal "
                "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cut()",
            )
            with pytest.raises(ConnectionLost, match="may have been") as caught:
                budget.spend(COST, key="k")
            assert caught.value.outcome_unknown
            raw.query(url, "DROP TRIGGER cut ON dosimeter_journal")
            receipt = budget.spend(COST, key="k")
            assert (receipt.sequence, receipt.replayed) == (1, False)

    def test_in_the_commit_after_it_is_recorded(
        self, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Ledger.open(postgres.fresh_url()) as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            ledger.create("c", epsilon=1.0, delta=1e-6)
            commit = psycopg.Connection.commit

            def commit_and_break(connection: psycopg.Connection) -> None:
                wrote = connection.execute("SELECT pg_current_xact_id_if_assigned()").fetchone()
                commit(connection)
                if wrote is not None and wrote[0] is not None:  # reads commit too
                    connection.close()
                    raise psycopg.OperationalError("the connection is lost")

            with monkeypatch.context() as patch:
                patch.setattr(psycopg.Connection, "commit", commit_and_break)
                with pytest.raises(ConnectionLost) as caught:
                    ledger.spend_all({"b": COST, "c": COST}, key="k")
            assert caught.value.outcome_unknown
            receipt = budget.spend(COST, key="k")
            assert (receipt.sequence, receipt.replayed) == (1, True)
            assert ledger.verify("b").ok


class TestInterruptions:
    def test_an_interrupt_inside_a_transaction_leaves_nothing(
        self, url: str, open_ledger: Callable[..., Ledger]
    ) -> None:
        armed = False

        def clock() -> datetime:
            if armed:
                raise KeyboardInterrupt
            return datetime.now(UTC)

        budget = open_ledger(clock=clock).create("b", epsilon=1.0, delta=1e-6)
        budget.spend(COST)
        before = raw.everything(url)
        armed = True
        with pytest.raises(KeyboardInterrupt):
            budget.spend(COST)
        armed = False
        assert raw.everything(url) == before
        twin = dm.Filter(1.0, 1e-6)
        twin.spend(COST, 2)
        assert budget.spend(COST).epsilon == pytest.approx(twin.epsilon, rel=1e-6)


class TestOpening:
    @pytest.mark.parametrize("version", [-1, 0, 2, 99])
    @pytest.mark.parametrize("beside", [True, False])
    def test_an_unknown_schema_is_refused(
        self, url: str, ledger: Ledger, version: int, beside: bool
    ) -> None:
        if not beside:
            raw.query(url, "DELETE FROM dosimeter_schema")
        raw.query(url, "INSERT INTO dosimeter_schema VALUES (:at, 'later')", at=version)
        before = raw.everything(url)
        with pytest.raises(SchemaMismatch, match=rf"version 1 for this release, got .*{version}"):
            Ledger.open(url)
        assert raw.everything(url) == before

    def test_tables_without_a_version_are_refused(self, url: str, ledger: Ledger) -> None:
        raw.query(url, "DELETE FROM dosimeter_schema")
        with pytest.raises(SchemaMismatch, match="got none"):
            Ledger.open(url)

    def test_opening_twice_changes_nothing(self, url: str, ledger: Ledger) -> None:
        rows = raw.query(url, "SELECT * FROM dosimeter_schema")
        Ledger.open(url).disconnect()
        assert raw.query(url, "SELECT * FROM dosimeter_schema") == rows
        assert [row[0] for row in rows] == [1]
        assert len(raw.query(url, "SELECT * FROM dosimeter_identity")) == 1

    @pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" * 99])
    def test_a_file_that_is_no_database(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "b.db").write_bytes(content)
        with pytest.raises(LedgerUnavailable):
            Ledger.open(str(tmp_path / "b.db"))
        assert (tmp_path / "b.db").read_bytes() == content

    @pytest.mark.parametrize(
        "url",
        ["sqlite:///no/such/folder/b.db", "postgresql://postgres@/x?host=/no/such/folder"],
    )
    def test_what_cannot_be_reached(self, url: str) -> None:
        with pytest.raises(LedgerUnavailable):
            Ledger.open(url, timeout=2)

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite://",
            "sqlite:///:memory:",
            "sqlite:///file::memory:?uri=true",
            "sqlite:///file:b?mode=memory&cache=shared&uri=true",
            "mysql://x",
            "x://",
            "",
            7,
        ],
    )
    def test_what_is_no_place_for_a_ledger(self, url: object) -> None:
        with pytest.raises((TypeError, ValueError), match="url must"):
            Ledger.open(url)  # type: ignore[arg-type]

    def test_a_commit_is_durable_on_both_stores(self, url: str, ledger: Ledger) -> None:
        seen = []
        connection = ledger._desk.store.connect()
        cursor = connection.cursor()
        if url.startswith("sqlite"):
            for pragma in ("journal_mode", "synchronous"):
                seen += cursor.execute(f"PRAGMA {pragma}").fetchall()
            assert seen == [("wal",), (3,)]
        else:
            assert cursor.execute("SHOW synchronous_commit").fetchall() == [("on",)]
        connection.close()

    def test_an_asynchronous_server_is_made_to_wait(self, postgres: Postgres) -> None:
        url = postgres.fresh_url() + "%20-csynchronous_commit%3Doff"
        with Ledger.open(url) as ledger:
            self.test_a_commit_is_durable_on_both_stores(url, ledger)
