"""What Filter and Odometer promise beyond the contract of every gate."""

import copy
import json
import math
import pickle
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.accounting.tally import charge
from strategies import HOSTILE, WRONG_TYPES, costs, spends

GAUSSIAN = dm.Gaussian(10.0)
QUERY = dm.Laplace(50.0)

BOTH = {
    "filter": lambda **more: dm.Filter(1e6, 1e-6, **more),
    "odometer": lambda **more: dm.Odometer(1e-6, **more),
}


@pytest.mark.parametrize("new_gate", BOTH.values(), ids=BOTH.keys())
class TestFilterAndOdometer:
    @given(spends=spends)
    def test_one_by_one_costs_as_much_as_all_at_once(self, new_gate, spends):
        """n spends of one are at least one spend of n, less two units in the last place."""
        each, together = new_gate(), new_gate()
        for cost, count in spends:
            count = min(count, 30)
            together.spend(cost, count)
            for _ in range(count):
                each.spend(cost)
        low = np.array(together.state()["rdp"], dtype=float)
        high = np.array(each.state()["rdp"], dtype=float)
        if math.inf in (each.tally.cut, together.tally.cut):
            return  # one run more or less may have been the first to be charged whole
        assert np.all(high >= low * (1 - 2**-51 * len(spends)))
        assert np.all(high <= low * (1 + 2**-52 * 800) + 1e-300) or np.isinf(low).any()

    def test_the_tally_can_be_read_and_not_changed(self, new_gate):
        gate = new_gate()
        gate.spend(dm.Laplace(2.0), 3)
        assert gate.tally.rdp.tolist() == gate.state()["rdp"]
        assert gate.tally.pure_epsilon == 1.5
        with pytest.raises(ValueError, match="read-only"):
            gate.tally.rdp[0] = 0.0
        gate.spend(dm.Laplace(2.0))

    @given(spends=spends, order=st.randoms(use_true_random=False))
    def test_the_order_of_spends_is_irrelevant(self, new_gate, spends, order):
        one, other = new_gate(), new_gate()
        for cost, count in spends:
            one.spend(cost, count)
        for cost, count in order.sample(spends, len(spends)):
            other.spend(cost, count)
        if math.inf in (one.tally.cut, other.tally.cut):
            return  # which runs were charged whole depends on which came last
        assert one.epsilon == pytest.approx(other.epsilon, rel=1e-9, abs=1e-7)

    @given(spends=spends)
    def test_the_sums_are_never_below_the_exact_ones(self, new_gate, spends):
        from fractions import Fraction

        gate = new_gate()
        orders, cutting = gate.orders, gate.account.terms.cutting
        exact = [Fraction(0)] * len(orders)
        for cost, count in spends:
            gate.spend(cost, count)
            curve = charge(cost, 1, orders, cutting).rdp  # never more than the whole curve
            exact = [
                total + count * Fraction(float(value)) if math.isfinite(value) else math.inf
                for total, value in zip(exact, curve, strict=True)
            ]
        for stored, true in zip(gate.state()["rdp"], exact, strict=True):
            assert float(stored) >= true

    @given(spends=spends)
    def test_epsilon_never_falls(self, new_gate, spends):
        gate = new_gate()
        last = 0.0
        for cost, count in spends:
            gate.spend(cost, count)
            assert gate.epsilon >= last
            last = gate.epsilon
            assert gate.epsilon == last

    @given(spends=spends)
    def test_state_round_trips_exactly_through_json(self, new_gate, spends):
        gate = new_gate()
        for cost, count in spends:
            gate.spend(cost, count)
        restored = type(gate).from_state(json.loads(json.dumps(gate.state())))
        assert restored.state() == gate.state()
        assert restored.epsilon == gate.epsilon
        gate.spend(GAUSSIAN)
        restored.spend(GAUSSIAN)
        # Two gates from here on: the same sums, and a mark that tells them apart.
        assert sums_of(restored.state()) == sums_of(gate.state())
        assert restored.state()["mark"] != gate.state()["mark"]
        assert gate.state() == gate.state()

    def test_pure_spending_costs_at_most_its_sum(self, new_gate):
        """docs/guarantees.md, point 7: the minimum with the pure total is free."""
        gate = new_gate()
        gate.spend(dm.PureDp(0.25), 3)
        assert gate.epsilon == 0.75
        gate.spend(dm.PureDp(0.1), 10)
        assert gate.epsilon == math.nextafter(1.75, 2.0)  # ten times the float 0.1 is over 1

    def test_one_non_pure_spend_ends_the_pure_total(self, new_gate):
        gate = new_gate()
        gate.spend(dm.PureDp(0.001))
        gate.spend(dm.Gaussian(1e6))
        assert gate.epsilon > 0.001

    def test_failure_probabilities_draw_on_their_cap(self, new_gate):
        gate = new_gate(approx_delta=1e-7)
        gate.spend(dm.ApproxDp(0.1, 4e-8), 2)
        before = gate.state()
        assert not gate.admits(dm.ApproxDp(0.1, 4e-8))
        with pytest.raises(dm.BudgetExceeded, match="over approx_delta=1e-07") as refusal:
            gate.spend(dm.ApproxDp(0.1, 4e-8))
        assert refusal.value.affordable == 0
        assert gate.state() == before
        gate.spend(dm.ApproxDp(0.1, 1e-8))
        assert gate.guarantee().delta == pytest.approx(1.1e-6)
        assert gate.guarantee().delta >= 1e-6 + 1e-7

    def test_without_a_cap_no_failure_probability_is_taken(self, new_gate):
        assert not new_gate().admits(dm.ApproxDp(0.1, 1e-300))

    def test_parameters_are_read_only(self, new_gate):
        gate = new_gate()
        for name in ("orders", "weights", "delta", "approx_delta", "epsilon", "total_delta"):
            with pytest.raises(AttributeError):
                setattr(gate, name, 0.5)
        with pytest.raises(ValueError, match="read-only"):
            gate.weights[0] = 1.0

    @pytest.mark.parametrize("cost", [1.0, None, "Gaussian", [1.0], dm.Gaussian])
    def test_only_costs_are_taken(self, new_gate, cost):
        gate = new_gate()
        for ask in (gate.admits, gate.spend):
            with pytest.raises(TypeError, match=r"^cost must be a mechanism"):
                ask(cost)

    @pytest.mark.parametrize("bad", [*HOSTILE[:3], -1.0, 1.0, 2.0])
    def test_refuses_a_bad_approx_delta(self, new_gate, bad):
        with pytest.raises(ValueError, match=r"^approx_delta must"):
            new_gate(approx_delta=bad)

    def test_threads_lose_no_spend(self, new_gate):
        gate = new_gate()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [
                threading.Thread(target=lambda: [gate.spend(GAUSSIAN) for _ in range(200)])
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        total = 1600 * GAUSSIAN.rdp(gate.orders)
        assert np.allclose(np.array(gate.state()["rdp"], dtype=float), total, rtol=1e-12)


def sums_of(state):
    """A state without what tells gates with equal sums apart."""
    return {key: value for key, value in state.items() if key not in ("mark", "checksum")}


class TestCopies:
    """A copy of a gate would be a second budget for the same data."""

    @pytest.mark.parametrize("new_gate", BOTH.values(), ids=BOTH.keys())
    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_gates_are_not_copied(self, new_gate, duplicate):
        with pytest.raises(TypeError, match="a copy would be a second budget"):
            duplicate(new_gate())

    def test_a_refusal_can_cross_processes(self):
        with pytest.raises(dm.BudgetExceeded) as refusal:
            dm.Filter(1.0, 1e-6).spend(dm.Gaussian(0.1))
        again = pickle.loads(pickle.dumps(refusal.value))
        assert str(again) == str(refusal.value)
        assert (again.cost, again.affordable) == (dm.Gaussian(0.1), 0)


class TestUnfitCosts:
    class Refunding(dm.Cost):
        def __init__(self, pure, failure):
            self._pure, self._failure = pure, failure

        pure_epsilon = property(lambda self: self._pure)
        delta = property(lambda self: self._failure)

        def _curve(self, orders):
            return np.ones(len(orders))

    @pytest.mark.parametrize(
        ("pure", "failure"),
        [(-5.0, 0.0), (math.nan, 0.0), (1.0, -1e-6), (1.0, math.nan), (1.0, 1.0)],
    )
    def test_scalars_below_zero_are_refused(self, pure, failure):
        gate = dm.Filter(3.0, 1e-6, approx_delta=1e-6)
        with pytest.raises(ValueError, match="cost must have pure_epsilon >= 0"):
            gate.spend(self.Refunding(pure, failure))
        assert gate.epsilon == 0


class TestFilter:
    @given(spends=spends, epsilon=st.floats(0.01, 50.0), delta=st.floats(1e-12, 0.1))
    def test_no_sequence_passes_the_limit(self, spends, epsilon, delta):
        gate = dm.Filter(epsilon, delta)
        for cost, count in spends:
            if gate.admits(cost, count):
                gate.spend(cost, count)
            else:
                before = gate.state()
                with pytest.raises(dm.BudgetExceeded):
                    gate.spend(cost, count)
                assert gate.state()["rdp"] == before["rdp"]
            assert gate.epsilon <= epsilon
            assert gate.remaining == pytest.approx(epsilon - gate.epsilon, abs=1e-12)

    @given(cost=costs, epsilon=st.floats(0.1, 20.0))
    def test_affordable_is_the_largest_count_admitted(self, cost, epsilon):
        gate = dm.Filter(epsilon, 1e-6)
        most = gate.affordable(cost)
        if most:
            assert gate.admits(cost, most)
        if most < 2**53:
            assert not gate.admits(cost, most + 1)

    def test_accepts_by_the_tangent_only_what_the_exact_solve_accepts(self):
        """Spending one by one reaches exactly the count that one large spend may have."""
        cost = dm.SampledGaussian(0.02, 1.1)
        gate = dm.Filter(2.0, 1e-5)
        most = gate.affordable(cost)
        spent = 0
        while gate.admits(cost):
            gate.spend(cost)
            spent += 1
        assert spent == most

    def test_a_refusal_names_everything(self):
        gate = dm.Filter(1.0, 1e-6)
        gate.spend(GAUSSIAN)
        with pytest.raises(dm.BudgetExceeded) as refusal:
            gate.spend(GAUSSIAN, 1000)
        error = refusal.value
        assert (error.cost, error.count, error.limit) == (GAUSSIAN, 1000, 1.0)
        assert error.spent == gate.epsilon
        assert error.affordable == gate.affordable(GAUSSIAN)
        text = str(error)
        assert "1000 x Gaussian(noise_multiplier=10.0) refused: epsilon would be" in text
        assert f"spend at most {error.affordable} of it" in text

    def test_refuses_what_has_no_finite_cost_and_stays_usable(self):
        gate = dm.Filter(1.0, 1e-6)
        assert not gate.admits(dm.Curve([2.0], [math.inf]))
        assert not gate.admits(dm.Gaussian(5e-324))
        gate.spend(dm.Gaussian(50.0))

    def test_a_huge_count_is_counted_not_looped(self):
        gate = dm.Filter(3.0, 1e-6)
        assert not gate.admits(GAUSSIAN, 10**12)
        gate.spend(dm.Gaussian(1e9), 10**12)
        assert gate.epsilon < 3.0

    @pytest.mark.parametrize("bad", HOSTILE)
    def test_refuses_a_bad_epsilon(self, bad):
        with pytest.raises(ValueError, match=r"^epsilon must"):
            dm.Filter(bad, 1e-6)

    @pytest.mark.parametrize("bad", WRONG_TYPES)
    def test_refuses_parameters_of_another_type(self, bad):
        with pytest.raises(TypeError, match=r"^epsilon must"):
            dm.Filter(bad, 1e-6)
        with pytest.raises(TypeError, match=r"^delta must"):
            dm.Filter(1.0, bad)

    @pytest.mark.parametrize("epsilon", [5e-324, 1e-12, 1e-3, 1e6, 1.7e308])
    def test_extreme_budgets_can_be_made_and_used(self, epsilon):
        gate = dm.Filter(epsilon, 1e-6)
        assert gate.affordable(dm.PureDp(epsilon)) >= 1
        assert not gate.admits(dm.Curve([2.0], [math.inf]))

    def test_says_what_holds(self):
        gate = dm.Filter(3.0, 1e-6)
        assert (
            str(gate.guarantee())
            == "(3.0, 1e-06)-DP, add/remove one record, fully adaptive, filter"
        )
        assert gate.limit == 3.0


class TestOdometer:
    def test_reads_infinity_after_a_spend_without_a_bound(self):
        odometer = dm.Odometer(1e-6)
        odometer.spend(dm.Curve([2.0], [math.inf]))
        assert odometer.epsilon == math.inf
        assert odometer.loss_bound == math.inf
        assert "no guarantee" in str(odometer.guarantee())
        odometer.spend(GAUSSIAN)
        assert odometer.epsilon == math.inf
        assert dm.Odometer.from_state(odometer.state()).epsilon == math.inf

    @given(spends=spends)
    def test_the_loss_bounds_are_ordered(self, spends):
        """The time-uniform bound costs more than the reading at one stop; two sides more again."""
        odometer = dm.Odometer(1e-6)
        for cost, count in spends:
            odometer.spend(cost, count)
        assert odometer.epsilon <= odometer.loss_bound + 1e-7
        assert odometer.loss_bound <= odometer.two_sided_loss_bound + 1e-7

    def test_the_loss_has_no_bound_once_a_cost_may_fail(self):
        """P = (1/2, 1/2), Q(y) = e^-0.1 (1/2 - 1e-3) is (0.1, 1e-3)-DP, yet P(loss > 0.1) = 1/2."""
        odometer = dm.Odometer(1e-6, approx_delta=1e-2)
        odometer.spend(dm.ApproxDp(0.1, 1e-3))
        assert odometer.epsilon == 0.1
        assert odometer.loss_bound == math.inf
        assert odometer.two_sided_loss_bound == math.inf

    def test_says_what_holds_if_one_stops_now(self):
        odometer = dm.Odometer(1e-6)
        odometer.spend(dm.PureDp(0.5))
        text = str(odometer.guarantee())
        assert text.startswith("ex-post (0.5, 1e-06)-DP at the moment of stopping: P(S) <= e^0.5")
        assert text.endswith("add/remove one record, fully adaptive, odometer")


class TestBadStates:
    @pytest.fixture(params=[dm.Filter, dm.Odometer])
    def gate(self, request):
        gate = dm.Filter(3.0, 1e-6) if request.param is dm.Filter else dm.Odometer(1e-6)
        gate.spend(GAUSSIAN)
        return gate

    @pytest.mark.parametrize(
        "edit",
        [
            {"version": 0},
            {"version": 2},
            {"version": True},
            {"kind": "ledger"},
            {"delta": 1e-5},
            {"rdp": []},
            {"spent_delta": -1.0},
            {"extra": 1},
            {"checksum": "0" * 64},
            {"weights": [math.nan]},
            {"orders": {1, 2}},
        ],
    )
    def test_edited_states_are_refused(self, gate, edit):
        with pytest.raises(dm.StateError, match="state"):
            type(gate).from_state({**gate.state(), **edit})

    def test_a_state_nested_without_end_is_refused(self, gate):
        nest = []
        for _ in range(100_000):
            nest = [nest]
        with pytest.raises(dm.StateError, match="state must be plain JSON"):
            type(gate).from_state({**gate.state(), "orders": nest})

    def test_states_with_something_missing_are_refused(self, gate):
        for name in gate.state():
            state = gate.state()
            del state[name]
            with pytest.raises(dm.StateError):
                type(gate).from_state(state)

    @pytest.mark.parametrize("state", [None, [], "{}", 3, {}])
    def test_other_things_are_refused(self, gate, state):
        with pytest.raises(dm.StateError, match="state"):
            type(gate).from_state(state)

    def test_one_kind_is_not_the_other(self):
        with pytest.raises(dm.StateError, match="kind must be 'filter', got 'odometer'"):
            dm.Filter.from_state(dm.Odometer(1e-6).state())

    @pytest.mark.parametrize(
        "edit",
        [
            {"rdp": [1.0]},
            {"rdp": "1"},
            {"rdp": [None] * 54},
            {"rdp": [-1.0] * 54},
            {"pure_epsilon": -1.0},
            {"spent_delta": 0.5},
            {"orders": [1.0]},
            {"weights": [1.0]},
            {"delta": 2.0},
            {"approx_delta": -1.0},
        ],
    )
    def test_well_sealed_nonsense_is_refused(self, gate, edit):
        from dosimeter.accounting.state import seal

        fields = {
            key: value
            for key, value in {**gate.state(), **edit}.items()
            if key not in ("kind", "version", "checksum")
        }
        with pytest.raises(dm.StateError, match="state"):
            type(gate).from_state(seal(gate.state()["kind"], fields))

    def test_a_state_without_the_mark_that_tells_gates_apart_is_refused(self, gate):
        from dosimeter.accounting.state import seal

        fields = {
            key: value
            for key, value in gate.state().items()
            if key not in ("kind", "version", "checksum", "mark")
        }
        with pytest.raises(dm.StateError, match=r"\['mark'\] amiss"):
            type(gate).from_state(seal(gate.state()["kind"], fields))

    def test_a_filter_past_its_limit_is_refused(self):
        from dosimeter.accounting.state import seal

        fields = {
            key: value
            for key, value in dm.Filter(3.0, 1e-6).state().items()
            if key not in ("kind", "version", "checksum")
        }
        fields |= {"rdp": [100.0] * 54, "pure_epsilon": "inf"}
        with pytest.raises(dm.StateError, match="within its limit"):
            dm.Filter.from_state(seal("filter", fields))


def test_no_number_from_the_mixture_is_no_bound(monkeypatch):
    """min and max pass over NaN: it would read 0."""
    from dosimeter.accounting.mixture import Mixture

    monkeypatch.setattr(Mixture, "solve", lambda self, sums, last: (math.nan, None))
    odometer = dm.Odometer(delta=1e-6)
    odometer.spend(dm.Gaussian(0.001))
    assert odometer.epsilon == math.inf
    assert not dm.Filter(epsilon=3, delta=1e-6).admits(dm.Gaussian(0.001))


def test_sums_that_are_no_float_are_infinite():
    huge = dm.PureDp(1.7e308)
    assert dm.Together([huge, huge]).pure_epsilon == math.inf
    odometer = dm.Odometer(delta=1e-6)
    odometer.spend(dm.Together([huge, huge]))
    assert odometer.epsilon == math.inf
