# SPDX-License-Identifier: Apache-2.0
"""Budgets of a ledger: made once, shared by all, kept for good."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

import dosimeter as dm
from dosimeter.accounting.priced import share
from dosimeter.ledger import BudgetClosed, BudgetExists, BudgetNotFound, Kind, Ledger
from ledger import raw
from ledger.servers import Postgres

ODD_NAMES = [
    "O'Brien",
    'say "hello"',
    "line\nbreak\r\n",
    "🎉 fête",
    "'; DROP TABLE dosimeter_budgets; --",
    "%s %(name)s :name ?",
    "\\x00 \\",
    " ",
    "ﬀ",
    "ff",
    "x" * 500,
]


class TestCreation:
    def test_a_budget_is_there_for_other_clients(
        self, ledger: Ledger, open_ledger: Callable[..., Ledger]
    ) -> None:
        ledger.create("patients", epsilon=1.0, delta=1e-6)
        other = open_ledger()
        assert "patients" in other
        assert list(other) == ["patients"]
        assert other["patients"].statement() == ledger["patients"].statement()

    def test_it_is_a_gate(self, ledger: Ledger) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        assert isinstance(budget, dm.Gate)
        assert isinstance(budget.buffered(), dm.Gate)

    def test_names_are_taken_for_good(self, ledger: Ledger, url: str) -> None:
        ledger.create("patients", epsilon=1.0, delta=1e-6)
        before = raw.everything(url)
        with pytest.raises(BudgetExists, match="'patients'"):
            ledger.create("patients", epsilon=2.0, delta=1e-6)
        with pytest.raises(BudgetExists):
            ledger.create_odometer("patients", delta=1e-6)
        assert raw.everything(url) == before

    def test_an_unknown_budget_is_named(self, ledger: Ledger) -> None:
        with pytest.raises(BudgetNotFound, match="'nobody'") as caught:
            ledger["nobody"]
        assert isinstance(caught.value, KeyError)
        with pytest.raises(BudgetNotFound):
            ledger.spend_all({"nobody": dm.Gaussian(1)})

    def test_a_mistyped_name_has_a_suggestion(self, ledger: Ledger) -> None:
        ledger.create_blocks("visits", ["2026-01", "2026-02"], epsilon=1.0, delta=1e-6)
        said = "got 'vists/2026-01'; nothing was spent; did you mean 'visits/2026-01'"
        with pytest.raises(BudgetNotFound, match=said) as caught:
            ledger["vists/2026-01"]
        assert "did you mean" in str(pickle.loads(pickle.dumps(caught.value)))
        with pytest.raises(BudgetNotFound, match=said):
            ledger.spend_all({"vists/2026-01": dm.Gaussian(1)})
        with pytest.raises(BudgetNotFound, match="did you mean 'visits'"):
            ledger.blocks("vists")
        with pytest.raises(BudgetNotFound, match=r"group of 2 blocks, which ledger.blocks"):
            ledger["visits"]

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_and_texts_are_stored_exactly(self, ledger: Ledger, name: str) -> None:
        budget = ledger.create(name, epsilon=1.0, delta=1e-6, purpose=name, actor=name)
        ledger.create("other", epsilon=1.0, delta=1e-6)
        long = (name * 10_000)[:10_240]
        budget.spend(dm.Gaussian(20), key=name, purpose=long, actor=name)
        assert list(ledger) == [name, "other"]
        first, last = ledger[name].history()
        assert (first.budget, first.actor, first.purpose) == (name, name, name)
        assert (last.key, last.actor, last.purpose) == (name, name, long)
        assert ledger.verify(name).ok
        assert ledger["other"].statement().entries == 1

    @pytest.mark.parametrize("text", ["\0", "\ud800", "a\tb\x01\x1b[2J"])
    def test_purposes_may_hold_anything(self, ledger: Ledger, text: str) -> None:
        budget = ledger.create("b", epsilon=1.0, delta=1e-6)
        budget.spend(dm.Gaussian(20), purpose=text)
        assert budget.history()[-1].purpose == text
        assert ledger.verify("b").ok

    @pytest.mark.parametrize("name", ["", "x" * 501, "a\0b", "\ud800", 7, None])
    def test_names_that_no_database_keeps_are_refused(self, ledger: Ledger, name: object) -> None:
        with pytest.raises((TypeError, ValueError), match="name must"):
            ledger.create(name, epsilon=1.0, delta=1e-6)  # type: ignore[arg-type]

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, "1", None])
    def test_hostile_numbers_make_no_budget(self, ledger: Ledger, bad: object) -> None:
        with pytest.raises((TypeError, ValueError)):
            ledger.create("b", epsilon=bad, delta=1e-6)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError)):
            ledger.create("b", epsilon=1.0, delta=bad)  # type: ignore[arg-type]
        assert list(ledger) == []

    def test_parameters_are_those_of_the_filter(self, ledger: Ledger) -> None:
        plan = (dm.SampledGaussian(0.01, 1.0), 1000)
        ledger.create("planned", epsilon=3.0, delta=1e-6, plan=plan, approx_delta=1e-7)
        expected = dm.Filter(3.0, 1e-6, plan=plan, approx_delta=1e-7)
        statement = ledger["planned"].statement()
        assert (statement.limit, statement.approx_delta) == (3.0, 1e-7)
        assert ledger["planned"].affordable(plan[0]) == expected.affordable(plan[0])
        assert ledger["planned"].guarantee() == expected.guarantee()


def test_a_budget_keeps_its_relation(ledger: Ledger, open_ledger: Callable[..., Ledger]) -> None:
    relation = dm.Neighbours.ADD_REMOVE_USER
    ledger.create("users", epsilon=1.0, delta=1e-6, neighbours=relation)
    ledger.create_odometer("clicks", delta=1e-6, neighbours=relation)
    ledger.create_blocks("days", ["1", "2"], 1.0, 1e-6, neighbours=relation)
    for name in ("users", "clicks", "days/2"):
        budget = open_ledger()[name]
        assert budget.guarantee().neighbours is relation
        with pytest.raises(ValueError, match="add/remove one user"):
            budget.spend(dm.Gaussian(20))
        budget.spend(dm.Gaussian(20, neighbours=relation))
        assert ledger.verify(name).ok
        assert budget.statement().entries == 2


class TestBlocks:
    def test_blocks_are_budgets_of_their_own(self, ledger: Ledger) -> None:
        blocks = ledger.create_blocks("visits", ["jan", "feb"], epsilon=1.0, delta=1e-6)
        assert [block.name for block in blocks] == ["visits/jan", "visits/feb"]
        blocks[0].spend(dm.Gaussian(20))
        assert blocks[0].epsilon > 0
        assert blocks[1].epsilon == 0

    def test_all_blocks_or_none(self, ledger: Ledger) -> None:
        ledger.create("visits/feb", epsilon=1.0, delta=1e-6)
        with pytest.raises(BudgetExists):
            ledger.create_blocks("visits", ["jan", "feb"], epsilon=1.0, delta=1e-6)
        assert list(ledger) == ["visits/feb"]

    def test_blocks_share_one_row_of_parameters(self, ledger: Ledger, url: str) -> None:
        ledger.create_blocks("day", map(str, range(20)), epsilon=1.0, delta=1e-6)
        assert len(raw.everything(url)[2]) == 1


class TestClosing:
    def test_a_closed_budget_is_readable_and_spends_no_more(self, ledger: Ledger, url: str) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        receipt = budget.spend(dm.Gaussian(20), key="first")
        ledger["patients"].close(purpose="study over", actor="lead")
        before = raw.everything(url)
        with pytest.raises(BudgetClosed, match="'patients'"):
            budget.spend(dm.Gaussian(20))
        with pytest.raises(BudgetClosed):
            budget.reserve(dm.Gaussian(20), 5)
        assert not budget.admits(dm.Gaussian(1000))
        assert budget.affordable(dm.Gaussian(1000)) == 0
        ledger["patients"].close()
        assert raw.everything(url) == before
        assert budget.closed
        assert budget.epsilon == receipt.epsilon
        assert budget.history()[-1].kind is Kind.CLOSE
        assert budget.spend(dm.Gaussian(20), key="first").hash == receipt.hash
        assert ledger.verify("patients").ok

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE dosimeter_journal SET body = ''",
            "DELETE FROM dosimeter_journal",
            "DELETE FROM dosimeter_budgets",
            "UPDATE dosimeter_parameters SET body = ''",
            "DELETE FROM dosimeter_parameters",
        ],
    )
    def test_the_database_itself_keeps_what_was_written(
        self, ledger: Ledger, url: str, change: str
    ) -> None:
        ledger.create("patients", epsilon=1.0, delta=1e-6)
        with pytest.raises(DBAPIError, match="kept for good"):
            raw.query(url, change)


def test_a_server_that_writes_floats_short_changes_nothing(postgres: Postgres) -> None:
    with Ledger.open(f"{postgres.fresh_url()}%20-cextra_float_digits%3D0") as ledger:
        budget = ledger.create("b", epsilon=3.0, delta=1e-6)
        receipt = budget.spend(dm.Gaussian(20))
        assert budget.epsilon == receipt.epsilon
        assert ledger.verify("b").ok


@pytest.mark.parametrize("last", [-1, 0, 1.0, True])
def test_a_history_has_a_length(ledger: Ledger, last: object) -> None:
    budget = ledger.create("b", epsilon=1.0, delta=1e-6)
    with pytest.raises((TypeError, ValueError), match="last must be"):
        budget.history(last)  # type: ignore[arg-type]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.create("b", epsilon=1.0, delta=1e-6)
        for path in tmp_path.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_what_is_there_on_the_same_terms_is_used_as_it_stands(
    open_ledger: Callable[..., Ledger],
) -> None:
    ledger = open_ledger()
    ledger.create("a", 1.0, 1e-6, exist_ok=True).spend(dm.Gaussian(20))
    spent = ledger["a"].statement()
    again = open_ledger().create("a", 1.0, 1e-6, exist_ok=True, purpose="other words")
    assert again.statement() == spent
    ledger["a"].close()
    assert ledger.create("a", 1.0, 1e-6, exist_ok=True).closed
    for other in (
        lambda: ledger.create("a", 1.0, 1e-7, exist_ok=True),
        lambda: ledger.create("a", 2.0, 1e-6, exist_ok=True),
        lambda: ledger.create_odometer("a", 1e-6, exist_ok=True),
        lambda: ledger.create("a", 1.0, 1e-6),
    ):
        with pytest.raises(BudgetExists):
            other()
    ledger.create_blocks("b", ["1", "2"], 1.0, 1e-6)
    ledger["b/1"].spend(dm.Gaussian(20))
    ledger.create_blocks("b", ["1", "2", "3"], 1.0, 1e-6, exist_ok=True)
    assert [budget.statement().entries for budget in ledger.blocks("b")] == [2, 1, 1]
    with pytest.raises(BudgetExists, match="other"):
        ledger.create_blocks("b", ["4", "1"], 2.0, 1e-6, exist_ok=True)
    assert "b/4" not in ledger  # all of them or none


def test_so_is_one_whose_menu_was_priced_otherwise(
    open_ledger: Callable[..., Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another release may: here the menu has nine tenths of delta, whatever epsilon."""
    ledger, costs = open_ledger(), [dm.Gaussian(1000.0)]
    with monkeypatch.context() as patch:
        patch.setattr(share, "menu_part", lambda epsilon, delta: 0.9 * (1 - 1e-15) * delta)
        made = ledger.create("a", 0.1, 1e-6, menu=costs)
        ledger.create_blocks("b", ["1"], 0.1, 1e-6, menu=costs)
        ledger.create_stream("c", "shard", 0.1, 1e-6, menu=costs)
    made.spend(dm.Gaussian(1000.0))
    spent, again = made.statement(), open_ledger()
    assert again.create("a", 0.1, 1e-6, menu=costs, exist_ok=True).statement() == spent
    again.create_blocks("b", ["1", "2"], 0.1, 1e-6, menu=costs, exist_ok=True)
    again.create_stream("c", "shard", 0.1, 1e-6, menu=costs, exist_ok=True)
    assert again.verify("b/2").ok
    for other in (
        {"menu": None},
        {"menu": [dm.Gaussian(1001.0)]},
        {"menu": [*costs, dm.Gaussian(2000.0)]},
        {"menu": costs, "approx_delta": 1e-9},
        {"menu": costs, "plan": (dm.Gaussian(50.0), 1)},
        {"menu": costs, "orders": [2.0, 8.0, 64.0]},
    ):
        with pytest.raises(BudgetExists, match="other terms"):
            again.create("a", 0.1, 1e-6, **other, exist_ok=True)  # type: ignore[arg-type]
    with pytest.raises(BudgetExists, match="other terms"):
        again.create("a", 0.1001, 1e-6, menu=costs, exist_ok=True)
    with pytest.raises(BudgetExists, match="other terms"):
        again.create_odometer("a", 1e-6, menu=costs, exist_ok=True)
    chosen = {"orders": [2.0, 8.0, 64.0], "exist_ok": True}
    again.create("d", 0.1, 1e-6, menu=costs, **chosen)  # type: ignore[arg-type]
    with pytest.raises(BudgetExists, match="other terms"):
        again.create("d", 0.1, 1e-6, menu=[dm.Gaussian(1001.0)], **chosen)  # type: ignore[arg-type]


def test_many_make_the_same_budget_at_once(open_ledger: Callable[..., Ledger]) -> None:
    clients = [open_ledger() for _ in range(6)]
    with ThreadPoolExecutor(len(clients)) as pool:
        made = pool.map(lambda one: one.create("a", 1.0, 1e-6, exist_ok=True).name, clients)
        assert list(made) == ["a"] * len(clients)
    assert len(clients[0]["a"].history()) == 1
