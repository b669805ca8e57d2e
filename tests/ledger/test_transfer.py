# SPDX-License-Identifier: Apache-2.0
"""Export and import: the same bytes, checked line by line, closed where it left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import dosimeter as dm
from dosimeter.ledger import BudgetClosed, BudgetExists, JournalError, Ledger


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
    imported = other.import_journal(line + "\n" for line in lines)
    assert list(other.export(name)) == lines
    assert imported.statement() == filled[name].statement()
    assert other.verify(name).ok
    assert imported.spend(dm.Gaussian(20), 3, key="k").replayed
    step = dm.Gaussian(30)
    assert imported.spend(step).epsilon == filled[name].spend(step).epsilon


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


def test_a_moved_budget_goes_on_in_one_place_only(filled: Ledger, other: Ledger) -> None:
    name = "pâtients 🎉"
    before = list(filled.export(name))
    lines = filled.export(name, move=True)
    # Closed by the call, before the first line is read.
    with pytest.raises(BudgetClosed):
        filled[name].spend(dm.Gaussian(20))
    assert list(lines) == before
    assert list(filled.export(name, move=True)) == before
    moved = other.import_journal(before)
    moved.spend(dm.Gaussian(20))
    assert filled.verify(name).ok
    assert other.verify(name).ok


def test_a_closed_budget_is_not_moved_but_can_be_copied(filled: Ledger, other: Ledger) -> None:
    name = "pâtients 🎉"
    filled[name].close()
    with pytest.raises(BudgetClosed):
        list(filled.export(name, move=True))
    copy = other.import_journal(filled.export(name))
    assert copy.closed
    with pytest.raises(BudgetClosed):
        copy.spend(dm.Gaussian(1000))
