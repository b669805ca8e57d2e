"""A client notices that an old backup was restored, however it comes to look."""

import os
import sqlite3
import threading

import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger, LedgerUnavailable
from dosimeter.ledger.errors import ConnectionLost, JournalError

COST = dm.Gaussian(50.0)


def copy_database(source, target):
    """Overwrites one database with another, as a restore from a backup does."""
    with sqlite3.connect(source) as old, sqlite3.connect(target) as new:
        old.backup(new)
    old.close()
    new.close()


@pytest.fixture
def restored(tmp_path):
    """A client that saw eight spends, of which the database has three again."""
    path, backup = tmp_path / "live.db", tmp_path / "backup.db"
    with Ledger.open(f"sqlite:///{path}") as ledger:
        budget = ledger.create("b", epsilon=3.0, delta=1e-6)
        for _ in range(3):
            budget.spend(COST)
        copy_database(path, backup)
        for _ in range(5):
            budget.spend(COST)
        ledger.disconnect()
        copy_database(backup, path)
        yield path, budget


def test_reading_first_does_not_hide_it(restored):
    _, budget = restored
    for deed in (budget.admits, budget.spend, budget.affordable, budget.spend):
        with pytest.raises(JournalError, match="was an old backup restored"):
            deed(COST)


def test_nor_does_another_client_that_goes_on(restored):
    path, budget = restored
    with Ledger.open(f"sqlite:///{path}") as other:
        for _ in range(7):
            other["b"].spend(COST)
    with pytest.raises(JournalError, match="was an old backup restored"):
        budget.spend(COST)


class TestTheFileItself:
    """A connection leads to a file, not to a name; spends must reach the one that has the name."""

    @pytest.fixture
    def live(self, tmp_path):
        path = tmp_path / "live.db"
        with Ledger.open(f"sqlite:///{path}") as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            for _ in range(3):
                budget.spend(COST)
            yield path, budget

    def test_nothing_is_acknowledged_into_a_file_that_was_removed(self, live):
        path, budget = live
        os.unlink(path)
        for deed in (budget.spend, budget.admits, budget.spend):
            with pytest.raises(LedgerUnavailable, match="is gone, and nothing was recorded"):
                deed(COST)
        assert not path.exists()

    def test_nor_into_one_that_was_moved_away(self, live, tmp_path):
        path, budget = live
        os.rename(path, tmp_path / "elsewhere.db")
        with pytest.raises(LedgerUnavailable, match="is gone"):
            budget.spend(COST)

    def test_an_older_file_in_its_place_is_refused(self, live, tmp_path):
        path, budget = live
        backup = tmp_path / "backup.db"
        copy_database(path, backup)
        for _ in range(5):
            budget.spend(COST)
        for end in ("-wal", "-shm"):
            os.path.exists(f"{path}{end}") and os.unlink(f"{path}{end}")
        os.rename(backup, path)
        for deed in (budget.spend, budget.admits, budget.spend):
            with pytest.raises(JournalError, match="was an old backup restored"):
                deed(COST)

    def test_the_same_budget_in_its_place_goes_on(self, live, tmp_path):
        path, budget = live
        backup = tmp_path / "backup.db"
        copy_database(path, backup)
        for end in ("-wal", "-shm"):
            os.path.exists(f"{path}{end}") and os.unlink(f"{path}{end}")
        os.rename(backup, path)
        receipt = budget.spend(COST)
        with Ledger.open(f"sqlite:///{path}") as other:
            assert other["b"].statement().head == receipt.hash

    def test_another_folder_is_no_other_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with Ledger.open("budgets.db") as ledger:
            budget = ledger.create("b", epsilon=1.0, delta=1e-6)
            (tmp_path / "elsewhere").mkdir()
            monkeypatch.chdir(tmp_path / "elsewhere")
            budget.spend(COST)
            ledger.disconnect()
            budget.spend(COST)
            assert budget.statement().entries == 3
        assert not list((tmp_path / "elsewhere").iterdir())


def test_reading_beside_a_thread_that_spends_raises_no_alarm(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("b", epsilon=30.0, delta=1e-6)
        done, failures = threading.Event(), []

        def read():
            while not done.is_set():
                try:
                    budget.statement()
                except Exception as error:
                    failures.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(300):
            budget.spend(COST)
        done.set()
        for reader in readers:
            reader.join()
        assert not failures


def test_what_a_slow_reader_kept_does_not_hide_a_restore(tmp_path):
    path, backup = tmp_path / "live.db", tmp_path / "backup.db"
    with Ledger.open(f"sqlite:///{path}") as ledger:
        budget = ledger.create("b", epsilon=3.0, delta=1e-6)
        for _ in range(3):
            budget.spend(COST)
        copy_database(path, backup)
        # Others spend between the moment that a question sees and its answer.
        ledger._desk.ask("b", lambda *_: [budget.spend(COST) for _ in range(4)])
        ledger.disconnect()
        copy_database(backup, path)
        with pytest.raises(JournalError, match="was an old backup restored"):
            budget.spend(COST)


def test_a_file_replaced_while_it_is_opened_is_noticed(tmp_path, monkeypatch):
    path, backup = tmp_path / "live.db", tmp_path / "backup.db"
    with Ledger.open(f"sqlite:///{path}") as ledger:
        ledger.create("b", epsilon=3.0, delta=1e-6)
    copy_database(path, backup)
    with Ledger.open(f"sqlite:///{path}") as client:
        budget = client["b"]
        client.disconnect()
        store = client._desk.store
        connect = store.connect

        def replaced():
            made = connect()
            if backup.exists():
                made.cursor().execute("SELECT 1 FROM dosimeter_budgets").fetchall()
                os.replace(backup, path)
                for end in ("-wal", "-shm"):
                    if os.path.exists(f"{path}{end}"):
                        os.unlink(f"{path}{end}")
            return made

        monkeypatch.setattr(store, "connect", replaced)
        with pytest.raises(ConnectionLost) as lost:
            budget.spend(COST)
        assert lost.value.outcome_unknown
        assert budget.spend(COST).sequence == 1
    with Ledger.open(f"sqlite:///{path}") as other:
        assert other["b"].statement().entries == 2
