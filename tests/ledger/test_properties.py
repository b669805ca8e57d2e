# SPDX-License-Identifier: Apache-2.0
"""Whatever clients do in turn, the journal fits and epsilon is that of what was spent."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.accounting import Account, Terms
from dosimeter.ledger import BudgetClosed, Ledger

costs = st.sampled_from([dm.SampledGaussian(0.01, 1.0), dm.Gaussian(8), dm.Laplace(9)])
deeds = st.lists(
    st.tuples(
        st.sampled_from(["spend", "spend", "key", "draw", "release", "close"]),
        st.integers(0, 1),
        costs,
        st.integers(1, 60),
    ),
    max_size=10,
)


@given(deeds=deeds)
@settings(max_examples=20)
def test_any_deeds_of_two_clients(deeds: list[tuple[str, int, dm.Cost, int]]) -> None:
    twin = dm.Filter(3.0, 1e-6)
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "b.db")
        with Ledger.open(path) as first, Ledger.open(path) as second:
            first.create("b", epsilon=3.0, delta=1e-6)
            for number, (deed, client, cost, count) in enumerate(deeds):
                budget = (first, second)[client]["b"]
                try:
                    if deed == "close":
                        budget.close()
                    elif deed in ("spend", "key"):
                        budget.spend(cost, count, key=f"k{number}" if deed == "key" else None)
                        twin.spend(cost, count)
                    else:
                        with budget.reserve(cost, count) as reservation:
                            if deed == "draw":
                                reservation.draw()
                                twin.spend(cost, count)
                        if deed != "draw" and cost.pure_epsilon == math.inf:
                            # What is given back is finite; the pure total is over for good.
                            twin.spend(dm.Zcdp(0.0))
                except BudgetClosed:
                    assert budget.closed
                except dm.BudgetExceeded:
                    assert not budget.admits(cost, count)
            found = first.verify("b")
            assert found.ok, found
            assert found.epsilon >= twin.epsilon * (1 - 1e-12)
            assert first["b"].epsilon == pytest.approx(twin.epsilon, rel=1e-6, abs=1e-9)
            lines = list(second.export("b"))
            with Ledger.open(str(Path(folder) / "copy.db")) as copy:
                copied = list(copy.export(copy.import_journal(lines).name))
                # But for the last line, which counts: a copy of an open budget is closed besides.
                assert copied[: len(lines) - 1] == lines[:-1]


MENU = [dm.Gaussian(8), dm.Laplace(9)]
"""A sampled step is off this menu: a stranger. One of whole records is priced at once."""


@given(deeds=deeds)
@settings(max_examples=20)
def test_any_deeds_of_two_clients_with_a_menu(deeds: list[tuple[str, int, dm.Cost, int]]) -> None:
    """A ledger's budget, step by step, is the account that the same deeds lead to."""
    account = Account.open(Terms.of_filter(3.0, 1e-6, menu=MENU))
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "b.db")
        with Ledger.open(path) as first, Ledger.open(path) as second:
            first.create("b", epsilon=3.0, delta=1e-6, menu=MENU)
            for number, (deed, client, cost, count) in enumerate(deeds):
                budget = (first, second)[client]["b"]
                try:
                    if deed == "close":
                        budget.close()
                    elif deed in ("spend", "key"):
                        budget.spend(cost, count, key=f"k{number}" if deed == "key" else None)
                        account = account.after(cost, count)
                    else:
                        with budget.reserve(cost, count) as reservation:
                            account = account.after(cost, count)
                            if deed == "draw":
                                reservation.draw()
                        if deed == "release":
                            account = account.released(cost, count)
                except BudgetClosed:
                    assert budget.closed
                except dm.BudgetExceeded:
                    assert not account.admits(cost, count)
            stored = second._desk.ask("b", lambda _, now: now)
            assert stored.plain() == account.plain()
            assert stored.epsilon == pytest.approx(account.epsilon, rel=1e-9)
            found = first.verify("b")
            assert found.ok, found
            lines = list(second.export("b"))
            with Ledger.open(str(Path(folder) / "copy.db")) as copy:
                copied = list(copy.export(copy.import_journal(lines).name))
                assert copied[: len(lines) - 1] == lines[:-1]
