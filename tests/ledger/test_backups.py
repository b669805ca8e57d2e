"""A client notices that an old backup was restored, however it comes to look."""

import sqlite3

import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from dosimeter.ledger.errors import JournalError

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
