# SPDX-License-Identifier: Apache-2.0
"""Reservations: paid for first, drawn later, lost in a crash, never drawn twice."""

from __future__ import annotations

import copy
import os
import pickle
import time
from collections.abc import Callable

import pytest

import dosimeter as dm
from dosimeter.ledger import Budget, Kind, Ledger, ReservationError

STEP = dm.SampledGaussian(0.01, 1.0)


@pytest.fixture
def budget(ledger: Ledger) -> Budget:
    return ledger.create("patients", epsilon=3.0, delta=1e-6)


class TestReservation:
    def test_it_is_spent_before_anything_is_drawn(self, ledger: Ledger, budget: Budget) -> None:
        twin = dm.Filter(3.0, 1e-6)
        twin.spend(STEP, 100)
        reservation = budget.reserve(STEP, 100, purpose="epoch 1")
        assert budget.epsilon == pytest.approx(twin.epsilon, rel=1e-6)
        reservation.draw(99)
        reservation.draw()
        with pytest.raises(ReservationError, match="left"):
            reservation.draw()
        reservation.commit()
        assert budget.epsilon == pytest.approx(twin.epsilon, rel=1e-6)
        last = budget.history()[-1]
        assert (last.kind, last.count, last.reference) == (Kind.COMMIT, 100, 1)
        assert ledger.verify("patients").ok

    def test_what_was_not_drawn_is_not_handed_back(self, ledger: Ledger, budget: Budget) -> None:
        with budget.reserve(STEP, 100) as reservation:
            full = budget.epsilon
            reservation.draw()
        assert budget.epsilon == full
        assert budget.history()[-1].count == 1
        assert ledger.verify("patients").ok

    def test_an_untouched_one_is_free_again(self, ledger: Ledger, budget: Budget) -> None:
        budget.spend(STEP, 10)
        before, affordable = budget.epsilon, budget.affordable(STEP)
        with budget.reserve(STEP, 500):
            budget.spend(STEP, 7)
            assert budget.affordable(STEP) == affordable - 507
        assert before < budget.epsilon < before * 1.1
        assert affordable - 8 <= budget.affordable(STEP) <= affordable - 7
        assert budget.history()[-1].kind is Kind.RELEASE
        assert ledger.verify("patients").ok

    def test_what_another_client_frees_is_seen(
        self, ledger: Ledger, budget: Budget, open_ledger: Callable[..., Ledger]
    ) -> None:
        affordable = budget.affordable(STEP)
        reservation = open_ledger()["patients"].reserve(STEP, affordable)
        with pytest.raises(dm.BudgetExceeded):
            budget.spend(STEP, 10)
        reservation.commit()
        assert budget.spend(STEP, 10).sequence == 4  # after a note of the refusal

    def test_a_release_never_leaves_less_than_the_other_spends(self, ledger: Ledger) -> None:
        budget = ledger.create("many", epsilon=30.0, delta=1e-6, approx_delta=1e-3)
        twin = dm.Filter(30.0, 1e-6, approx_delta=1e-3)
        for i in range(30):
            with budget.reserve(dm.ApproxDp(0.1 + i / 7, 1e-6), 3 + i % 4):
                cost = dm.Laplace(3.0 + i)
                budget.spend(cost)
                twin.spend(cost)
        assert budget.epsilon >= twin.epsilon
        assert budget.epsilon == pytest.approx(twin.epsilon, rel=1e-9)
        assert ledger.verify("many").ok

    def test_an_infinite_cost_is_not_released(self, ledger: Ledger) -> None:
        budget = ledger.create_odometer("o", delta=1e-6)
        with budget.reserve(dm.Curve([2.0], [1.0]), 5):
            pass
        # Only order 2 and below have a bound that can be taken off again.
        assert budget.spend(dm.Gaussian(10)).epsilon < 30
        assert ledger.verify("o").ok

    def test_it_expires_without_a_refund(self, ledger: Ledger, budget: Budget) -> None:
        reservation = budget.reserve(STEP, 10, lifetime=0.05)
        reservation.draw()
        time.sleep(0.06)
        assert reservation.remaining == 0
        with pytest.raises(ReservationError):
            reservation.draw()
        full = budget.epsilon
        reservation.commit()
        assert budget.epsilon == full

    def test_it_ends_once(self, ledger: Ledger, budget: Budget) -> None:
        reservation = budget.reserve(STEP, 10)
        reservation.commit()
        reservation.commit()
        assert len(budget.history()) == 3
        with pytest.raises(ReservationError):
            reservation.draw()

    def test_a_closed_budget_takes_no_note(self, ledger: Ledger, budget: Budget) -> None:
        reservation = budget.reserve(STEP, 10)
        budget.close()
        reservation.draw()
        reservation.commit()
        assert ledger.verify("patients").ok

    def test_another_process_cannot_draw_it(self, budget: Budget) -> None:
        reservation = budget.reserve(STEP, 10)
        with pytest.raises(TypeError, match="process"):
            pickle.dumps(reservation)
        child = os.fork()
        if child == 0:
            try:
                reservation.draw()
            except ReservationError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    def test_refusals_reserve_nothing(self, budget: Budget) -> None:
        with pytest.raises(dm.BudgetExceeded):
            budget.reserve(STEP, 10**6)
        assert len(budget.history()) == 1


class TestBuffered:
    def test_a_loop_runs_as_long_as_with_a_filter(self, ledger: Ledger) -> None:
        budget = ledger.create("patients", epsilon=1.6, delta=1e-6)
        twin = dm.Filter(1.6, 1e-6)
        affordable = twin.affordable(STEP)
        steps = 0
        with budget.buffered(block=50) as gate:
            while gate.admits(STEP):
                gate.spend(STEP)
                steps += 1
            with pytest.raises(dm.BudgetExceeded):
                gate.spend(STEP)
        assert affordable - 1 <= steps <= affordable
        reserved = [entry.count for entry in budget.history() if entry.kind is Kind.RESERVE]
        assert sum(reserved) == steps
        assert len(reserved) == -(-steps // 50)
        assert ledger.verify("patients").ok

    def test_another_cost_begins_a_new_reservation(self, ledger: Ledger, budget: Budget) -> None:
        with budget.buffered(block=10) as gate:
            gate.spend(STEP, 4)
            gate.spend(dm.Gaussian(50))
            gate.spend(dm.Gaussian(50), 12)
        kinds = [(entry.kind, entry.count) for entry in budget.history()[1:]]
        assert kinds == [
            (Kind.RESERVE, 10),
            (Kind.RESERVE, 10),
            (Kind.COMMIT, 4),
            (Kind.RESERVE, 12),
            (Kind.COMMIT, 1),
            (Kind.COMMIT, 12),
        ]
        assert ledger.verify("patients").ok

    def test_a_refusal_leaves_the_reservation_at_hand(self, budget: Budget) -> None:
        with budget.buffered(block=10) as gate:
            gate.spend(STEP)
            entries = budget.statement().entries
            with pytest.raises(dm.BudgetExceeded):
                gate.spend(dm.Gaussian(0.1))
            gate.spend(STEP, 9)
            assert budget.statement().entries == entries

    @pytest.mark.parametrize("count", [0, -1, True, 1.0])
    def test_a_count_that_is_none_reserves_nothing(self, budget: Budget, count: object) -> None:
        gate = budget.buffered(block=10)
        with pytest.raises((TypeError, ValueError), match="count must"):
            gate.spend(STEP, count)  # type: ignore[arg-type]
        assert budget.epsilon == 0

    def test_it_is_not_copied(self, budget: Budget) -> None:
        with budget.buffered(block=10) as gate, pytest.raises(TypeError, match="make one in each"):
            copy.deepcopy(gate)

    @pytest.mark.parametrize("lifetime", [0, -1.0, float("nan"), "long"])
    def test_a_lifetime_that_is_none_reserves_nothing(
        self, budget: Budget, lifetime: object
    ) -> None:
        with pytest.raises((TypeError, ValueError), match="lifetime must"):
            budget.reserve(STEP, 5, lifetime=lifetime)  # type: ignore[arg-type]
        assert budget.epsilon == 0
