# SPDX-License-Identifier: Apache-2.0
"""Ledgers that earlier releases wrote: they open, verify, spend and move."""

from __future__ import annotations

import json
import pathlib
import sqlite3

import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger, LedgerRefusal

DATA = pathlib.Path(__file__).parent / "data"


@pytest.fixture(scope="module", params=["first_schema"])
def earlier(request):
    """The dump of a ledger, and what it said of its budgets."""
    dump = (DATA / f"{request.param}.sql").read_text()
    return dump, json.loads((DATA / f"{request.param}.json").read_text())


@pytest.fixture
def ledger(earlier, tmp_path):
    path = tmp_path / "earlier.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(earlier[0])
    connection.close()
    with Ledger.open(f"sqlite:///{path}") as opened:
        yield opened


def test_every_budget_stands_where_it_stood(ledger, earlier):
    assert set(ledger) == set(earlier[1])
    for name, wanted in earlier[1].items():
        found = ledger[name].statement()
        assert (found.entries, found.head, found.closed) == (
            wanted["entries"],
            wanted["head"],
            wanted["closed"],
        )
        assert found.epsilon == wanted["epsilon"]
        assert ledger.verify(name).ok, str(ledger.verify(name))


def test_an_open_budget_goes_on(ledger):
    budget = ledger["patients"]
    before = budget.epsilon
    receipt = budget.spend(dm.Gaussian(20.0), key="new")
    assert receipt.epsilon > before
    assert ledger.verify("patients").ok
    with pytest.raises(LedgerRefusal):
        budget.spend(dm.Gaussian(0.5))


def test_a_key_used_then_is_known_now(ledger):
    again = ledger["patients"].spend(dm.Gaussian(20.0), 3, key="job-1")
    assert again.replayed
    assert again.sequence == 1


def test_it_moves_to_a_ledger_of_today(ledger, tmp_path):
    lines = list(ledger.export("patients", move=True))
    with Ledger.open(f"sqlite:///{tmp_path / 'today.db'}") as today:
        moved = today.import_journal(lines)
        assert today.verify("patients").ok
        moved.spend(dm.Gaussian(30.0))
        assert today.verify("patients").ok
