# SPDX-License-Identifier: Apache-2.0
"""Spending from a ledger: what a filter would do, once, whoever asks."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.ledger import (
    BudgetClosed,
    BudgetNotFound,
    ConnectionLost,
    KeyConflict,
    Ledger,
    LedgerBusy,
    LedgerRefusal,
)
from dosimeter.ledger.records import Kind, _written
from ledger import raw

STEP = dm.SampledGaussian(0.01, 1.0)
costs = st.sampled_from(
    [STEP, dm.Gaussian(5), dm.Gaussian(50), dm.Laplace(20), dm.PureDp(0.2), dm.Zcdp(0.01)]
)


class TestReceipts:
    def test_a_receipt_says_where_and_how_much(self, ledger: Ledger) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        twin = dm.Filter(1.0, 1e-6)
        for sequence in (1, 2, 3):
            twin.spend(dm.Gaussian(40), 2)
            receipt = budget.spend(dm.Gaussian(40), 2, purpose="mean", actor="ada")
            assert (receipt.sequence, receipt.count) == (sequence, 2)
            assert receipt.epsilon == pytest.approx(twin.epsilon, rel=1e-6)
            assert receipt.epsilon == budget.epsilon
            assert receipt.hash == budget.statement().head
            assert not receipt.replayed

    def test_two_clients_share_one_budget(
        self, ledger: Ledger, open_ledger: Callable[..., Ledger]
    ) -> None:
        ledger.create("patients", epsilon=1.0, delta=1e-6)
        gates = [ledger["patients"], open_ledger()["patients"]]
        twin = dm.Filter(1.0, 1e-6)
        spent = 0
        while twin.admits(dm.Gaussian(20)):
            twin.spend(dm.Gaussian(20))
            assert gates[spent % 2].admits(dm.Gaussian(20))
            gates[spent % 2].spend(dm.Gaussian(20))
            spent += 1
        for gate in gates:
            assert not gate.admits(dm.Gaussian(20))
            with pytest.raises(dm.BudgetExceeded):
                gate.spend(dm.Gaussian(20))
        # The opening entry, the spends, and a note of each of the two refusals.
        assert ledger["patients"].statement().entries == 1 + spent + 2
        assert ledger.verify("patients").ok

    def test_an_odometer_reads_and_does_not_refuse(self, ledger: Ledger) -> None:
        budget = ledger.create_odometer("survey", delta=1e-6)
        twin = dm.Odometer(1e-6)
        for _ in range(3):
            budget.spend(dm.Gaussian(1))
            twin.spend(dm.Gaussian(1))
        assert budget.epsilon == pytest.approx(twin.epsilon, rel=1e-6)
        assert budget.statement().limit == math.inf
        budget.spend(dm.Curve([2.0], [math.inf]))
        assert budget.epsilon == math.inf
        assert ledger.verify("survey").ok

    def test_clocks_may_disagree(self, open_ledger: Callable[..., Ledger]) -> None:
        now = datetime.now(UTC)
        early = open_ledger(clock=lambda: now - timedelta(days=400))
        late = open_ledger(clock=lambda: now + timedelta(days=400))
        early.create("patients", epsilon=1.0, delta=1e-6)
        receipts = [ledger["patients"].spend(dm.Gaussian(50)) for ledger in (late, early, late)]
        assert [receipt.sequence for receipt in receipts] == [1, 2, 3]
        assert receipts[0].time > receipts[1].time < receipts[2].time
        assert early.verify("patients").ok


class TestRefusals:
    def test_whoever_asks_is_named_by_the_environment(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("USER", "ada")
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        monkeypatch.setenv("DOSIMETER_ACTOR", "job-7")
        budget.spend(dm.Gaussian(20))
        budget.spend(dm.Gaussian(20), actor="bob")
        monkeypatch.delenv("DOSIMETER_ACTOR")
        with budget.reserve(dm.Gaussian(20), 2) as reservation:
            reservation.draw(2)
        budget.close()
        actors = [entry.actor for entry in budget.history()]
        assert actors == ["ada", "job-7", "bob", "ada", "ada", "ada"]

    def test_a_refused_reservation_leaves_no_note(self, ledger: Ledger) -> None:
        """A buffered gate asks for blocks that need not fit, and then for less."""
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        with budget.buffered(block=1000) as gate:
            gate.spend(dm.Gaussian(20))
        assert Kind.REFUSE not in [entry.kind for entry in budget.history()]

    def test_a_refusal_spends_nothing_is_noted_and_says_what_is_affordable(
        self, ledger: Ledger, url: str
    ) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        budget.spend(dm.Gaussian(20))
        before, sums = budget.history(), raw.sums(url)
        with pytest.raises(LedgerRefusal, match="'patients'") as caught:
            budget.spend(dm.Gaussian(20), 1000, key="k", purpose="too much", actor="eve")
        assert raw.sums(url) == sums
        *same, note = budget.history()
        assert same == before
        said = (note.kind, note.count, note.actor, note.purpose, note.key, note.epsilon)
        assert said == (Kind.REFUSE, 1000, "eve", "too much", None, before[-1].epsilon)
        assert note.priced() == dm.Gaussian(20)
        assert ledger.verify("patients").ok
        assert caught.value.budget == "patients"
        assert caught.value.affordable == budget.affordable(dm.Gaussian(20)) > 0
        assert budget.spend(dm.Gaussian(20), caught.value.affordable, key="k").sequence == 3
        assert not budget.admits(dm.Gaussian(20))

    @pytest.mark.parametrize(
        "error",
        [
            BudgetNotFound("a\nb"),
            ConnectionLost("gone", outcome_unknown=True),
            LedgerBusy("locked"),
            KeyConflict("taken"),
        ],
    )
    def test_errors_reach_another_process(self, error: Exception) -> None:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
        assert vars(copy) == vars(error)

    def test_refusals_reach_another_process(self, ledger: Ledger) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        with pytest.raises(LedgerRefusal) as caught:
            budget.spend(dm.Gaussian(1))
        copy = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(copy, LedgerRefusal)
        assert str(copy) == str(caught.value)
        assert (copy.budget, copy.affordable) == ("patients", 0)

    def test_what_was_accepted_once_does_not_hide_what_is_wrong(self, ledger: Ledger) -> None:
        budget = ledger.create("patients", epsilon=3.0, delta=1e-6)
        budget.spend(dm.Gaussian(20), 1, purpose="a")
        with pytest.raises(TypeError, match="count must be a whole number"):
            budget.spend(dm.Gaussian(20), True, purpose="a")
        with pytest.raises(TypeError, match="count must be a whole number"):
            budget.spend(dm.Gaussian(20), 1.0, purpose="a")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="purpose must be text"):
            budget.spend(dm.Gaussian(20), 1, purpose=["a"])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="cost must be"):
            budget.spend([20.0])  # type: ignore[arg-type]
        assert budget.statement().entries == 2

    def test_failures_have_their_own_cap(self, ledger: Ledger) -> None:
        budget = ledger.create("patients", epsilon=10.0, delta=1e-6, approx_delta=1.05e-6)
        assert budget.affordable(dm.ApproxDp(0.01, 1e-7)) == 10
        budget.spend(dm.ApproxDp(0.01, 1e-7), 10)
        with pytest.raises(LedgerRefusal, match="approx_delta"):
            budget.spend(dm.ApproxDp(0.01, 1e-7))
        assert ledger.verify("patients").ok

    @pytest.mark.parametrize("count", [0, -1, 1.5, True, math.nan, 2**53 + 1, None])
    def test_hostile_counts_spend_nothing(self, ledger: Ledger, url: str, count: object) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        before = raw.everything(url)
        with pytest.raises((TypeError, ValueError), match="count must"):
            budget.spend(dm.Gaussian(20), count)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="cost must"):
            budget.spend("gaussian")  # type: ignore[arg-type]
        assert raw.everything(url) == before

    @given(asked=st.lists(st.tuples(costs, st.integers(1, 400)), max_size=12))
    @settings(max_examples=15, deadline=None)
    def test_decisions_and_epsilons_are_those_of_a_filter(
        self, asked: list[tuple[dm.Cost, int]]
    ) -> None:
        twin = dm.Filter(2.0, 1e-6)
        with TemporaryDirectory() as folder, Ledger.open(str(Path(folder) / "b.db")) as ledger:
            ledger.create("b", epsilon=2.0, delta=1e-6)
            for cost, count in asked:
                admitted = twin.admits(cost, count)
                # A new client has nothing cached, so the stored sums alone must decide alike.
                with Ledger.open(str(Path(folder) / "b.db")) as other:
                    assert other["b"].admits(cost, count) == admitted
                if admitted:
                    twin.spend(cost, count)
                    ledger["b"].spend(cost, count)
                assert ledger["b"].epsilon == pytest.approx(twin.epsilon, rel=1e-6)
            assert ledger.verify("b").ok


class TestKeys:
    def test_a_retry_spends_once_and_returns_the_first_receipt(
        self, ledger: Ledger, open_ledger: Callable[..., Ledger], url: str
    ) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        first = budget.spend(dm.Gaussian(20), 2, key="report-7", purpose="a")
        budget.spend(dm.Gaussian(20))
        before = raw.everything(url)
        again = open_ledger()["patients"].spend(dm.Gaussian(20), 2, key="report-7", purpose="b")
        assert again.replayed
        assert (again.sequence, again.hash, again.epsilon) == (
            first.sequence,
            first.hash,
            first.epsilon,
        )
        assert raw.everything(url) == before

    @pytest.mark.parametrize(("cost", "count"), [(dm.Gaussian(21), 2), (dm.Gaussian(20), 3)])
    def test_a_key_names_one_spend(
        self, ledger: Ledger, url: str, cost: dm.Cost, count: int
    ) -> None:
        budget = ledger.create("patients", epsilon=1.0, delta=1e-6)
        budget.spend(dm.Gaussian(20), 2, key="k")
        before = raw.everything(url)
        with pytest.raises(KeyConflict, match="'k'"):
            budget.spend(cost, count, key="k")
        assert raw.everything(url) == before

    def test_a_cost_may_be_written_in_two_ways(
        self, ledger: Ledger, open_ledger: Callable[..., Ledger]
    ) -> None:
        whole, decimal = (dm.Event(dp_accounting.GaussianDpEvent(noise)) for noise in (20, 20.0))
        ledger.create("patients", epsilon=3.0, delta=1e-6)
        first = ledger["patients"].spend(whole, key="k")
        _written.cache_clear()
        ledger["patients"].spend(decimal)
        again = open_ledger()["patients"].spend(whole, key="k")
        assert again.replayed
        assert again.hash == first.hash

    def test_a_key_is_that_of_one_spend_among_others_that_are_alike(self, ledger: Ledger) -> None:
        budget = ledger.create("b", epsilon=1.0, delta=1e-6)
        keys = ["k1", None, "k2", None]
        receipts = [budget.spend(dm.Gaussian(20), key=key) for key in keys]
        assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4]
        assert [entry.key for entry in budget.history()[1:]] == keys

    def test_keys_of_different_budgets_are_different(self, ledger: Ledger) -> None:
        for name in ("a", "b"):
            budget = ledger.create(name, epsilon=1.0, delta=1e-6)
            assert not budget.spend(dm.Gaussian(20), key="k").replayed


class TestSeveralAtOnce:
    def test_all_or_nothing(self, ledger: Ledger, url: str) -> None:
        ledger.create("small", epsilon=0.3, delta=1e-6)
        ledger.create("large", epsilon=3.0, delta=1e-6)
        both = {"small": dm.Gaussian(20), "large": dm.Gaussian(5)}
        receipts = ledger.spend_all(both, key="q1")
        assert {name: receipt.sequence for name, receipt in receipts.items()} == {
            "small": 1,
            "large": 1,
        }
        sums = raw.sums(url)
        with pytest.raises(LedgerRefusal) as caught:
            ledger.spend_all(both, key="q2")
        assert caught.value.budget == "small"
        assert raw.sums(url) == sums
        assert [entry.kind for entry in ledger["small"].history()[2:]] == [Kind.REFUSE]
        assert ledger["large"].statement().entries == 2
        assert ledger.verify("small").ok
        assert ledger["large"].spend(dm.Gaussian(5)).sequence == 2
        assert ledger.verify("large").ok

    def test_a_retry_spends_once_in_each(self, ledger: Ledger, url: str) -> None:
        ledger.create_blocks("day", ["1", "2"], epsilon=1.0, delta=1e-6)
        both = dict.fromkeys(("day/1", "day/2"), dm.Gaussian(20))
        first = ledger.spend_all(both, key="q")
        again = ledger.spend_all(both, key="q")
        assert all(receipt.replayed for receipt in again.values())
        assert [r.hash for r in first.values()] == [r.hash for r in again.values()]
        ledger.create("day/3", epsilon=1.0, delta=1e-6)
        with pytest.raises(KeyConflict):
            ledger.spend_all({**both, "day/3": dm.Gaussian(20)}, key="q")

    def test_closed_or_unknown_parts_stop_the_whole(self, ledger: Ledger, url: str) -> None:
        ledger.create_blocks("day", ["1", "2"], epsilon=1.0, delta=1e-6)
        ledger["day/2"].close()
        before = raw.everything(url)
        for other in ("day/2", "day/9"):
            with pytest.raises(dm.DosimeterError, match=other):
                ledger.spend_all({"day/1": dm.Gaussian(20), other: dm.Gaussian(20)})
        with pytest.raises(ValueError, match="costs must"):
            ledger.spend_all({})
        assert raw.everything(url) == before


COST = dm.Gaussian(30)


def test_blocks_that_stand_alike_and_apart_are_spent_from_together(
    open_ledger: Callable[..., Ledger],
) -> None:
    """Each goes on from where it stands, for a client that knows them and for one that does not."""
    ledger = open_ledger()
    blocks = ledger.create_blocks("day", map(str, range(6)), epsilon=3.0, delta=1e-6)
    odometer = ledger.create_odometer("all", delta=1e-6)
    before = [0, 0, 1, 2, 2, 5]
    for block, count in zip(blocks, before, strict=True):
        for _ in range(count):
            block.spend(COST)
    costs = {block.name: COST for block in blocks} | {"all": COST}
    for number, client in enumerate([ledger, open_ledger(), open_ledger()], 1):
        receipts = client.spend_all(costs, key=f"k{number}")
        for block, count in zip(blocks, before, strict=True):
            twin = dm.Filter(3.0, 1e-6)
            twin.spend(COST, count + number)
            assert receipts[block.name].epsilon == pytest.approx(twin.epsilon, rel=1e-6)
        reading = dm.Odometer(1e-6)
        reading.spend(COST, number)
        assert odometer.epsilon == pytest.approx(reading.epsilon, rel=1e-6)
    assert all(ledger.verify(name).ok for name in costs)


@pytest.mark.parametrize("moved", ["a", "b", "c"])
def test_a_group_goes_on_from_what_others_did_to_one_of_it(
    open_ledger: Callable[..., Ledger], url: str, moved: str
) -> None:
    """What a client remembers is never the last word, on which one it may be wrong."""
    first, second = open_ledger(), open_ledger()
    for name in "abc":
        first.create(name, epsilon=3.0, delta=1e-6)
    costs = dict.fromkeys("abc", COST)
    assert {r.sequence for r in first.spend_all(costs).values()} == {1}
    spent = second[moved].spend(COST, 7)
    for number in (2, 3, 4):  # it finds out, looks, and goes on by memory again
        receipts = first.spend_all(costs, key=f"k{number}")
        for name, receipt in receipts.items():
            assert receipt.sequence == number + (name == moved)
        again = first.spend_all(costs, key=f"k{number}")
        assert all(r.replayed and r.hash == receipts[r.budget].hash for r in again.values())
    for name in "abc":
        twin = dm.Filter(3.0, 1e-6)
        twin.spend(COST, 4 + 7 * (name == moved))
        assert first[name].epsilon == pytest.approx(twin.epsilon, rel=1e-6)
        assert first[name].statement().entries == 5 + (name == moved)
        assert first.verify(name).ok
    assert first[moved].holds(spent.sequence, spent.hash)


def test_a_group_is_refused_and_admitted_by_the_rows_and_not_by_memory(
    open_ledger: Callable[..., Ledger], url: str
) -> None:
    first, second = open_ledger(), open_ledger()
    for name in "ab":
        first.create(name, epsilon=1.0, delta=1e-6)
    costs = dict.fromkeys("ab", COST)
    first.spend_all(costs)
    held = second["b"].reserve(COST, second["b"].affordable(COST))
    before = raw.sums(url)
    with pytest.raises(LedgerRefusal, match="'b'"):  # by memory there is room
        first.spend_all(costs)
    assert raw.sums(url) == before
    held.commit()  # nothing was drawn, so it is free again
    receipts = first.spend_all(costs)  # by memory there is none
    assert {name: r.sequence for name, r in receipts.items()} == {"a": 2, "b": 5}
    second["b"].close()
    before = raw.everything(url)
    with pytest.raises(BudgetClosed):  # by memory it is open
        first.spend_all(costs)
    assert raw.everything(url) == before
    assert all(first.verify(name).ok for name in "ab")


def test_clients_in_turn_go_on_from_each_other(open_ledger: Callable[..., Ledger]) -> None:
    """Whoever finds that others spend looks first, takes the lock first, and forgets it again."""
    first, second = open_ledger(), open_ledger()
    first.create("b", epsilon=3.0, delta=1e-6)
    sequences = [client["b"].spend(COST).sequence for _ in range(6) for client in (first, second)]
    sequences += [first["b"].spend(COST).sequence for _ in range(3)]
    assert sequences == list(range(1, 16))
    twin = dm.Filter(3.0, 1e-6)
    twin.spend(COST, 15)
    assert first["b"].epsilon == pytest.approx(twin.epsilon, rel=1e-6)
    assert first["b"].affordable(COST) == second["b"].affordable(COST) == twin.affordable(COST)
    assert first.verify("b").ok
