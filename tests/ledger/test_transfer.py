# SPDX-License-Identifier: Apache-2.0
"""Export and import: the same bytes, checked line by line, closed where it left."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import dosimeter as dm
from dosimeter.ledger import BudgetClosed, BudgetExists, JournalError, Ledger
from dosimeter.ledger.records import canonical


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(str(tmp_path / "other.db")) as opened:
        yield opened


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    budget = ledger.create("pâtients 🎉", epsilon=30.0, delta=1e-6, approx_delta=1e-7)
    budget.spend(dm.Gaussian(20), 3, key="k", purpose="a\nb")
    budget.spend(dm.ApproxDp(0.1, 1e-8))
    budget.spend(dm.Curve([2.0, 3.0], [0.001, math.inf]))
    with budget.reserve(dm.Laplace(100), 5):
        pass
    return ledger


def test_an_export_is_stable_to_the_byte_and_comes_back(filled: Ledger, other: Ledger) -> None:
    name = "pâtients 🎉"
    lines = list(filled.export(name))
    assert lines == list(filled.export(name))
    assert all("\n" not in line and json.loads(line)["budget"] == name for line in lines[:-1])
    assert json.loads(lines[-1])["entries"] == len(lines) - 1
    head = filled[name].statement().head
    other.import_journal(line + "\n" for line in lines)
    assert list(other.export(name))[: len(lines) - 1] == lines[:-1]
    assert other.verify(name, head=head).ok


def test_a_copy_of_an_open_budget_is_read_only(filled: Ledger, other: Ledger) -> None:
    name = "pâtients 🎉"
    copy = other.import_journal(filled.export(name))
    with pytest.raises(BudgetClosed):
        copy.spend(dm.Gaussian(1000))
    there, here = copy.statement(), filled[name].statement()
    assert (there.epsilon, there.entries) == (here.epsilon, here.entries + 1)
    assert "goes on in the ledger" in copy.history()[-1].purpose
    # Which in turn is no way to open it again.
    with pytest.raises(BudgetClosed):
        list(other.export(name, to=filled.identity))
    filled[name].spend(dm.Gaussian(1000))
    assert filled.verify(name).ok
    assert other.verify(name).ok


def test_an_export_that_was_edited_is_refused_whole(filled: Ledger, other: Ledger) -> None:
    lines = list(filled.export("pâtients 🎉"))
    wrong = [
        [],
        ["{}"],
        ["not json"],
        lines[1:],
        [*lines[:2], *lines[3:]],
        [lines[0], lines[2], lines[1]],
        [lines[0], lines[1].replace("20.0", "90.0")],
        [lines[0], lines[1].replace('"count":3', '"count":2')],
        [lines[0].replace("30.0", "90.0")],
        [lines[0], lines[1][:-70] + '"hash":"x"}'],
        [*lines, lines[-1]],
        # Cut short, wherever, with or without an end of its own.
        *(lines[:end] for end in range(len(lines))),
        *([*lines[:end], lines[-1]] for end in range(len(lines) - 1)),
        [*lines[:-1], lines[-1].replace('"entries":6', '"entries":7')],
        [*lines[:-1], lines[-1][:-1]],
    ]
    for export in wrong:
        with pytest.raises(JournalError):
            other.import_journal(export)
    assert list(other) == []


def test_a_taken_name_is_refused(filled: Ledger) -> None:
    with pytest.raises(BudgetExists):
        filled.import_journal(list(filled.export("pâtients 🎉")))


def test_a_moved_budget_goes_on_in_one_place_only(
    filled: Ledger, other: Ledger, tmp_path: Path
) -> None:
    name = "pâtients 🎉"
    before = filled[name].statement()
    copied = list(filled.export(name))
    lines = filled.export(name, to=other.identity)
    # Closed by the call, before the first line is read.
    with pytest.raises(BudgetClosed):
        filled[name].spend(dm.Gaussian(20))
    moved = list(lines)
    assert moved[:-1] == copied[:-1]
    assert list(filled.export(name, to=other.identity)) == moved
    with Ledger.open(str(tmp_path / "third.db")) as third:
        with pytest.raises(JournalError, match=other.identity):
            third.import_journal(moved)
        assert list(third) == []
        # Nor can it be made out to another one later.
        with pytest.raises(BudgetClosed, match="once"):
            list(filled.export(name, to=third.identity))
    gone_on = other.import_journal(moved)
    assert gone_on.statement() == before
    with pytest.raises(BudgetExists):
        other.import_journal(moved)
    assert gone_on.spend(dm.Gaussian(20), 3, key="k").replayed
    gone_on.spend(dm.Gaussian(20))
    assert filled.verify(name).ok
    assert other.verify(name).ok


def test_a_move_that_was_edited_is_refused(filled: Ledger, other: Ledger) -> None:
    *journal, end = filled.export("pâtients 🎉", to=other.identity)
    values = json.loads(end)
    less = values["sums"].replace("3f", "00")
    without = {name: value for name, value in values.items() if name != "sums"}
    ends = [{**values, "sums": other} for other in (less, "", None, 5, [])]
    ends += [without, {**values, "to": "x"}, {**values, "to": ""}, {**values, "to": 5}]
    for edited in ends:
        with pytest.raises(JournalError):
            other.import_journal([*journal, canonical(edited)])
    assert list(other) == []


def test_an_import_does_not_hold_the_lines(filled: Ledger, other: Ledger) -> None:
    budget = filled.create("long", epsilon=30.0, delta=1e-6)
    for _ in range(300):
        budget.spend(dm.Gaussian(500), purpose="x" * 10_000)
    lines = list(filled.export("long"))
    other.import_journal(filled.export("pâtients 🎉"))  # whatever is loaded once is loaded
    tracemalloc.start()
    other.import_journal(iter(lines))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < sum(map(len, lines)) / 2


def test_a_closed_budget_is_not_moved_but_can_be_copied(filled: Ledger, other: Ledger) -> None:
    name = "pâtients 🎉"
    filled[name].close()
    with pytest.raises(BudgetClosed):
        list(filled.export(name, to=other.identity))
    copy = other.import_journal(filled.export(name))
    assert copy.closed
    with pytest.raises(BudgetClosed):
        copy.spend(dm.Gaussian(1000))
