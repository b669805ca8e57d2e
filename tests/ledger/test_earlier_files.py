# SPDX-License-Identifier: Apache-2.0
"""Ledgers that earlier releases wrote: they open, verify, spend and move."""

from __future__ import annotations

import json
import pathlib
import sqlite3

import pytest

import dosimeter as dm
from dosimeter.ledger import JournalError, Ledger, LedgerRefusal
from dosimeter.ledger.audit import Replay
from dosimeter.ledger.journal import import_line
from dosimeter.ledger.records import digest

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
    with Ledger.open(f"sqlite:///{tmp_path / 'today.db'}") as today:
        lines = list(ledger.export("patients", to=today.identity))
        moved = today.import_journal(lines)
        assert today.verify("patients").ok
        moved.spend(dm.Gaussian(30.0))
        assert today.verify("patients").ok


def test_an_export_of_then_is_a_closed_copy_now(ledger, tmp_path):
    *journal, end = ledger.export("patients")
    values = json.loads(end)
    del values["sums"]  # which earlier exports did not carry
    with Ledger.open(f"sqlite:///{tmp_path / 'today.db'}") as today:
        copy = today.import_journal([*journal, json.dumps(values, separators=(",", ":"))])
        assert copy.closed
        assert today.verify("patients").ok


def test_an_entry_of_the_old_format_cannot_follow_one_of_the_new(ledger, tmp_path):
    """Else whoever may write could leave out the balance that an entry leads to."""
    budget = ledger["patients"]
    budget.spend(dm.Gaussian(20.0))
    budget.spend(dm.Gaussian(20.0))
    *journal, _ = ledger.export("patients")
    replay = Replay("patients")
    for text in journal[:-1]:
        replay.feed(import_line(text))
    last = import_line(journal[-1])
    body = last.entry()._replace(state=None).body()
    with pytest.raises(JournalError, match="balance that it leads to"):
        replay.feed(last._replace(body=body, hash=digest(body)))
