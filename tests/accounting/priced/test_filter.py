"""A filter with a menu: what it sells and what it refuses.

tests/adversaries says whether it holds.
"""

import json
import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import norm

import dosimeter as dm
from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.accounting.priced.menu import make_menu
from dosimeter.accounting.priced.share import menu_part, mixture_part
from oracles import some_output_above

DELTA = 1e-6
NOMINAL = dm.Gaussian(100.0)
QUERY = dm.Laplace(50.0)
STRANGER = dm.SampledGaussian(0.01, 5.0)


@pytest.fixture(scope="module")
def menu():
    return make_menu([NOMINAL, dm.Gaussian(30.0), QUERY], 4.909, 0.89 * DELTA)


@pytest.fixture
def gate(menu):
    return dm.Filter(4.909, DELTA, menu=menu)


def gaussian_delta(mu, epsilon):
    """The exact hockey stick of a Gaussian of mean mu and deviation 1."""
    mu, e = mpf(mu), mpf(epsilon)
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


class TestSelling:
    def test_is_a_gate_that_keeps_the_whole_delta(self, gate):
        assert isinstance(gate, dm.Gate)
        assert gate.delta == gate.total_delta == DELTA
        assert gate.epsilon == 0

    def test_runs_are_bought_in_bundles_and_used_one_by_one(self, gate):
        item, full = gate.price(NOMINAL), gate.quanta_left
        gate.spend(NOMINAL)
        assert gate.quanta_left == full - item.price
        for _ in range(item.steps - 1):
            gate.spend(NOMINAL)
        assert gate.quanta_left == full - item.price
        gate.spend(NOMINAL)
        assert gate.quanta_left == full - 2 * item.price

    def test_what_is_affordable_can_be_spent_and_no_more(self, gate):
        for cost in (QUERY, dm.Gaussian(30.0)):
            gate.spend(cost)
        most = gate.affordable(NOMINAL)
        assert gate.admits(NOMINAL, most)
        assert not gate.admits(NOMINAL, most + 1)
        before = gate.state()
        with pytest.raises(dm.BudgetExceeded, match="quanta left, and by the mixture epsilon"):
            gate.spend(NOMINAL, most + 1)
        assert gate.state() == before
        gate.spend(NOMINAL, most)
        assert gate.affordable(NOMINAL) == 0
        assert gate.admits(QUERY)  # what is prepaid stays usable

    def test_one_by_one_costs_no_more_than_together(self, menu):
        each, together = (dm.Filter(4.909, DELTA, menu=menu) for _ in range(2))
        for _ in range(500):
            each.spend(NOMINAL)
        together.spend(NOMINAL, 500)
        assert each.quanta_left == together.quanta_left

    def test_epsilon_never_falls_and_never_passes_the_limit(self, gate):
        readings = []
        while gate.admits(NOMINAL, 500):
            gate.spend(NOMINAL, 500)
            readings.append(gate.epsilon)
        assert readings == sorted(readings)
        assert readings[-1] <= gate.limit
        assert gate.standing.menu

    def test_plain_gaussians_reach_the_lossless_price(self):
        """Within 0.5 percent of Gaussian DP at the menu's share of delta, and of the whole."""
        gate = dm.Filter(4.909, DELTA, menu=[NOMINAL])
        mu = math.sqrt(gate.affordable(NOMINAL)) / 100
        assert gaussian_delta(mu, 4.909) <= 0.9 * DELTA
        with mp.workdps(30):
            lossless = mp.findroot(lambda e: gaussian_delta(mu, e) - DELTA, 4.9)
        assert 4.909 <= lossless * 1.005

    def test_the_guarantee_names_its_conditions(self, gate):
        text = str(gate.guarantee())
        assert text.startswith("(4.909, 1e-06)-DP, add/remove one record, fully adaptive, filter")
        assert "filter with a menu of costs that was fixed before the first spend, provided" in text
        assert "the same side in every round" in text
        assert gate.guarantee().conditions

    def test_parameters_are_read_only(self, gate):
        for name in ("menu", "quanta_left", "standing"):
            with pytest.raises(AttributeError):
                setattr(gate, name, None)

    def test_the_last_digits_of_a_cost_do_not_make_it_a_stranger(self, gate):
        """One step of noise 1.0000000000000002 once ended the menu without a word."""
        near = dm.Gaussian(math.nextafter(100.0, 200.0))
        assert near != NOMINAL
        assert gate.price(near) == gate.price(NOMINAL)
        assert gate.affordable(near) == gate.affordable(NOMINAL)
        for cost in (near, NOMINAL, near):
            gate.spend(cost)
        assert gate.standing.menu
        assert gate.quanta_left == gate.menu.quanta - gate.price(NOMINAL).price
        assert gate.price(dm.Gaussian(100.0000001)) is None

    def test_remaining_is_not_gone_while_quanta_are_left(self, gate):
        gate.spend(NOMINAL, gate.affordable(NOMINAL) - 500)
        assert not gate.standing.mixture
        assert 0 < gate.remaining < 0.2 * gate.limit
        gate.spend(NOMINAL, 500)
        assert gate.remaining < 0.01 * gate.limit

    def test_a_price_is_in_whole_numbers(self, gate):
        assert isinstance(gate.price(QUERY), Item)
        assert gate.price(QUERY).per_run == gate.price(QUERY).price / gate.price(QUERY).steps
        assert gate.price(STRANGER) is None
        assert dm.Filter(1.0, DELTA).price(NOMINAL) is None
        assert dm.Filter(1.0, DELTA).quanta_left == 0

    @pytest.mark.parametrize("cost", [1.0, None, "Gaussian", [1.0], dm.Gaussian])
    def test_only_costs_are_taken(self, gate, cost):
        for ask in (gate.admits, gate.spend):
            with pytest.raises(TypeError, match=r"^cost must be a mechanism"):
                ask(cost)

    @pytest.mark.parametrize("count", [0, -1, 2**53 + 1])
    def test_counts_out_of_range_are_refused(self, gate, count):
        for ask in (gate.admits, gate.spend):
            with pytest.raises(ValueError, match=r"^count must be between 1 and"):
                ask(NOMINAL, count)


class TestStrangers:
    def test_are_paid_by_the_mixture_and_end_the_menu(self, gate):
        gate.spend(NOMINAL)
        assert gate.standing.menu
        assert gate.standing.mixture
        gate.spend(STRANGER)
        assert not gate.standing.menu
        assert gate.quanta_left == 0
        gate.spend(NOMINAL, gate.price(NOMINAL).steps - 1)  # prepaid, charged long ago
        assert gate.epsilon < gate.limit

    def test_what_is_admitted_after_them_is_charged_to_the_mixture(self, gate):
        gate.spend(STRANGER)
        before = gate.epsilon
        gate.spend(NOMINAL, 1000)
        assert gate.epsilon > before
        most = gate.affordable(NOMINAL)
        assert 0 < most < 10_000
        gate.spend(NOMINAL, most)
        assert not gate.admits(NOMINAL)

    def test_a_refused_stranger_does_not_end_the_menu(self, gate):
        before = gate.state()
        with pytest.raises(dm.BudgetExceeded, match="off the menu, and by the mixture epsilon"):
            gate.spend(dm.Gaussian(0.1))
        assert gate.state() == before
        assert gate.standing.menu

    def test_the_mixture_is_charged_for_whole_bundles_when_they_are_bought(self, gate):
        gate.spend(NOMINAL)
        expected = gate.price(NOMINAL).steps * NOMINAL.rdp(gate.orders)
        assert np.allclose(gate.state()["rdp"], expected, rtol=1e-12)
        gate.spend(NOMINAL)
        assert np.allclose(gate.state()["rdp"], expected, rtol=1e-12)

    def test_nor_in_a_small_budget_whose_menu_has_more_of_delta(self):
        """Beside a whole menu, what is admitted at first would take her past 10 delta."""
        body = dm.Gaussian(1000.0)
        gate = dm.Filter(0.1, DELTA, menu=[body], plan=(dm.Gaussian(50.0), 1))
        assert gate.menu.delta > 0.96 * DELTA
        noise = 50.0
        while not gate.admits(dm.Gaussian(noise)):
            noise *= 1.01
        most = gate.affordable(body)
        with mp.workdps(30):
            both = mp.sqrt(mpf(most) / 10**6 + 1 / mpf(noise) ** 2)
            assert gaussian_delta(both, 0.1) > 10 * DELTA
        gate.spend(body, most)
        assert gate.standing.menu
        assert not gate.admits(dm.Gaussian(noise))
        assert not gate.admits(dm.Gaussian(10 * noise))

    def test_menu_and_mixture_cannot_both_be_spent(self):
        """Charging only what runs would let an adversary reach 331 delta (docs/prices.md)."""
        plan = (dm.Gaussian(1 / 0.873), 1)
        gate = dm.Filter(4.909, DELTA, menu=[NOMINAL], plan=plan)
        noise = 1.1
        while not gate.admits(dm.Gaussian(noise)):
            noise += 0.005
        assert 1 / noise == pytest.approx(0.873, abs=0.01)  # the mixture's share of delta alone
        most = gate.affordable(NOMINAL)
        with mp.workdps(30):
            assert gaussian_delta(mp.sqrt(1 + mpf("0.873") ** 2), 4.909) / DELTA > 325
            both = mp.sqrt(mpf(most) / 10**4 + 1 / mpf(noise) ** 2)
            assert gaussian_delta(both, 4.909) > 250 * DELTA
        gate.spend(NOMINAL, most)
        assert not gate.admits(dm.Gaussian(noise))
        assert not gate.admits(dm.Gaussian(10 * noise))

    def test_bought_and_unused_runs_keep_strangers_out(self):
        """The bundle is bought, one run is used: the mixture already holds the whole bundle."""
        big = Menu(4.908, 0.89 * DELTA, 1, (Item(NOMINAL, 9900, 1),))
        gate = dm.Filter(4.909, DELTA, menu=big)
        stranger = dm.Gaussian(1.3)
        assert gate.admits(stranger)
        gate.spend(NOMINAL)
        assert not gate.admits(stranger)

    def test_failure_probabilities_draw_on_their_cap(self, menu):
        gate = dm.Filter(4.909, DELTA, menu=menu, approx_delta=1e-8)
        assert not gate.admits(dm.ApproxDp(0.1, 2e-8))
        gate.spend(dm.ApproxDp(0.1, 1e-8))
        assert not gate.standing.menu
        assert gate.total_delta >= DELTA + 1e-8


LEAST = Item(dm.Gaussian(1e4), 1, 1)
"""One run of it is next to nothing, so that a menu of one quantum is sound for any share."""


class TestShares:
    """Of delta. What is promised is their sum, so it must never pass 1, by any rounding."""

    @pytest.mark.parametrize("epsilon", [1e-3, 0.0123, 0.0901, 0.1, 0.37, 0.999, 1.0, 4.909, 500.0])
    @pytest.mark.parametrize("delta", [1e-12, 1e-6, 3.7e-5, 0.01, 0.7])
    def test_never_add_up_to_more_than_delta(self, epsilon, delta):
        for share in (menu_part(epsilon, delta), 0.97 * (1 - 1e-15) * delta, 0.91 * delta):
            menu = Menu(epsilon, share, 1, (LEAST,), 0.02 * delta)
            parts = [menu.delta, menu.credit, mixture_part(menu, delta)]
            whole = sum(Fraction(part) for part in parts) / Fraction(delta)
            assert 1 - Fraction(1, 10**13) < whole <= 1
            assert parts[-1] >= 0.01 * delta * (1 - 1e-12)

    @pytest.mark.parametrize(
        ("epsilon", "beside"),
        [(0.01, 0.03), (0.09, 0.03), (0.25, 0.05), (0.81, 0.09), (1.0, 0.1), (7.0, 0.1)],
    )
    def test_of_the_menu_fall_with_the_root_of_epsilon(self, epsilon, beside):
        assert menu_part(epsilon, DELTA) == pytest.approx((1 - beside) * DELTA, rel=1e-12)

    @pytest.mark.parametrize(("epsilon", "noise"), [(0.05, 1000.0), (4.909, 30.0)])
    def test_are_those_of_a_gate(self, epsilon, noise):
        gate = dm.Filter(epsilon, DELTA, menu=[dm.Gaussian(noise)], cut=0.0)
        assert gate.menu.delta == menu_part(epsilon, DELTA)
        assert gate.menu.credit == 0.02 * DELTA
        assert gate.account.terms.mixture.delta == mixture_part(gate.menu, DELTA)
        assert_restored(gate)

    @pytest.mark.parametrize("credit", [0.0, 0.02 * DELTA])
    @pytest.mark.parametrize("epsilon", [0.05, 4.909])
    def test_of_the_mixture_are_what_they_were_beside_menus_of_less(self, epsilon, credit):
        """Such menus lie in states and ledgers, whose readings must not change in a digit."""
        for share in (0.5, 0.89, 0.9 * (1 - 1e-15)):
            menu = Menu(epsilon, DELTA * share, 1, (LEAST,), credit)
            gate = dm.Filter(epsilon, DELTA, menu=menu, cut=0.0)
            assert gate.account.terms.mixture.delta == DELTA * (0.1 * (1 - 1e-15)) - credit
            assert_restored(gate)

    def test_of_a_menu_made_by_hand_leave_the_mixture_a_hundredth(self):
        most = Menu(4.909, 0.97 * (1 - 1e-15) * DELTA, 1, (LEAST,), 0.02 * DELTA)
        gate = dm.Filter(4.909, DELTA, menu=most, cut=0.0)
        assert gate.account.terms.mixture.delta == pytest.approx(0.01 * DELTA, rel=1e-12)
        assert_restored(gate)
        with pytest.raises(ValueError, match=r"^menu must be made for a budget within"):
            dm.Filter(4.909, DELTA, menu=replace(most, delta=0.97 * DELTA * (1 + 1e-12)))


def assert_restored(gate):
    one, two = (g.account.terms for g in (gate, dm.Filter.from_state(gate.state())))
    assert one.plain() == two.plain()
    assert one.mixture.delta == two.mixture.delta


class TestStates:
    def test_round_trip_exactly_through_json(self, gate):
        for step, cost in enumerate([NOMINAL, QUERY, dm.Gaussian(30.0), STRANGER, NOMINAL]):
            gate.spend(cost, 3 + step)
            restored = dm.Filter.from_state(json.loads(json.dumps(gate.state())))
            assert restored.state() == gate.state()
            assert restored.quanta_left == gate.quanta_left
            assert restored.standing == gate.standing
            assert restored.affordable(NOMINAL) == gate.affordable(NOMINAL)

    def test_a_filter_whose_mixture_is_over_can_be_restored(self, gate):
        gate.spend(NOMINAL, gate.affordable(NOMINAL))
        assert not gate.standing.mixture
        restored = dm.Filter.from_state(gate.state())
        assert not restored.admits(NOMINAL)
        assert restored.epsilon == gate.epsilon

    @pytest.mark.parametrize(
        "edit",
        [
            {"quanta_left": 10**6},
            {"quanta_left": -1},
            {"quanta_left": 1.5},
            {"prepaid": [0]},
            {"prepaid": [-1, 0, 0]},
            {"prepaid": None},
            {"prepaid": [10**6, 0, 0]},
            {"menu_open": 1},
            {"menu": None},
            {"menu": {}},
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
            dm.Filter.from_state(seal("filter", fields))

    def test_prices_of_another_version_are_refused(self, gate):
        now = gate.state()
        others = [{**now, "menu_format": found} for found in (0, 2, 99, "1", True, None)]
        for state in (*others, {k: v for k, v in now.items() if k != "menu_format"}):
            with pytest.raises(dm.StateError, match="Make a new gate and spend what was spent"):
                dm.Filter.from_state(state)

    def test_a_larger_menu_cannot_be_smuggled_in(self, gate):
        from dosimeter.accounting.state import seal

        state = gate.state()
        state["menu"]["delta"] = 1e-5
        fields = {k: v for k, v in state.items() if k not in ("kind", "version", "checksum")}
        with pytest.raises(dm.StateError, match="budget within"):
            dm.Filter.from_state(seal("filter", fields))


class TestSmallBudgets:
    """Rates far below those of training, where one large output decides."""

    @pytest.mark.parametrize(
        ("noise", "runs"), [(0.5, 64), pytest.param(0.6, 520, marks=pytest.mark.slow)]
    )
    def test_a_rare_event_does_not_pass_delta(self, noise, runs):
        """Some output above t: menus at this budget once sold 16.9 and 6.6 delta."""
        menu = [dm.SampledGaussian(1e-4, 0.8), dm.SampledGaussian(1e-4, noise)]
        gate = dm.Filter(0.1, DELTA, menu=menu)
        assert some_output_above(1e-4, noise, runs, 0.1) > 6 * DELTA
        assert not gate.admits(menu[1], runs)
        most = gate.affordable(menu[1])
        assert gate.standing.menu
        assert some_output_above(1e-4, noise, most, 0.1) <= DELTA


class TestBadMenus:
    @pytest.mark.parametrize(
        ("menu", "error", "reason"),
        [
            ([], ValueError, "at least one cost"),
            ([NOMINAL, NOMINAL], ValueError, "a cost twice"),
            ([dm.Gaussian(100.0 + i) for i in range(41)], ValueError, "at most 40 costs"),
            ([NOMINAL, 3.0], TypeError, "costs such as"),
            (NOMINAL, TypeError, "a list of costs"),
            ("Gaussian", TypeError, "a list of costs"),
            ([dm.SampledGaussian(1.0, 3.0)], ValueError, "rate 1"),
            ([NOMINAL, dm.Curve([2.0], [math.inf])], ValueError, "off the menu"),
            ([NOMINAL, dm.ApproxDp(0.1, 1e-9)], ValueError, "off the menu"),
        ],
    )
    def test_are_refused_with_a_way_out(self, menu, error, reason):
        with pytest.raises(error, match=f"^menu must.*{reason}"):
            dm.Filter(3.0, DELTA, menu=menu)

    def test_a_budget_too_small_for_one_run_says_which_would_do(self):
        with pytest.raises(ValueError, match=r"^epsilon must admit one run.*needs 4\.9") as error:
            dm.Filter(0.5, DELTA, menu=[dm.Gaussian(1.0)])
        needed = float(str(error.value).split("needs ")[1].split()[0])
        assert dm.Filter(needed * 1.002, DELTA, menu=[dm.Gaussian(1.0)]).quanta_left > 0

    def test_an_item_dearer_than_the_whole_budget_is_named(self):
        with pytest.raises(ValueError, match=r"one run of each item.*Gaussian\(noise_multiplier=1"):
            dm.Filter(2.0, DELTA, menu=[NOMINAL, dm.Gaussian(1.0)])

    def test_a_menu_for_a_larger_budget_is_refused(self, menu):
        with pytest.raises(ValueError, match=r"^menu must be made for a budget within"):
            dm.Filter(4.0, DELTA, menu=menu)
        with pytest.raises(ValueError, match=r"^menu must be made for a budget within"):
            dm.Filter(5.0, DELTA / 2, menu=menu)

    @pytest.mark.parametrize("epsilon", [1e-4, 1e3])
    def test_budgets_beyond_the_lattice_are_refused(self, epsilon):
        with pytest.raises(ValueError, match=r"^epsilon must lie between"):
            dm.Filter(epsilon, DELTA, menu=[NOMINAL])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 0.1), (0.02, 0.02)])
def test_a_delta_that_is_large_beside_epsilon_is_priced_in_seconds(epsilon, delta):
    """Losses spread far beyond epsilon there, and the lattice of epsilon would be too fine."""
    began, step = time.process_time(), dm.Gaussian(100.0)
    gate = dm.Filter(epsilon, delta, menu=[step])
    assert time.process_time() - began < 30

    def hockey_stick(runs):
        mu = math.sqrt(runs) / 100
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )

    sold = gate.affordable(step)
    assert hockey_stick(sold) <= gate.menu.delta
    assert hockey_stick(1.02 * sold + 1) > gate.menu.delta


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "costs"),
    [
        (0.439, 0.00388, [(1.9e-05, 0.432)]),
        (0.605, 0.00626, [(4.08e-06, 0.361)]),
        (0.359, 0.0841, [(1.84e-04, 0.301)]),
        (0.0059, 0.00332, [(0.0976, 50.9)]),
        (0.0157, 0.00388, [(0.347, 629.0), (5.51e-4, 1.114)]),
    ],
)
def test_rare_jumps_and_wide_losses_at_a_large_delta_are_priced_in_seconds(epsilon, delta, costs):
    """Two of these were refused after minutes, for the checker saw more outside of its windows."""
    began = time.process_time()
    menu = [dm.SampledGaussian(*cost) for cost in costs]
    gate = dm.Filter(epsilon, delta, menu=menu)
    assert time.process_time() - began < 60  # half of it on a quiet machine
    plain = dm.Filter(epsilon, delta)
    assert all(gate.affordable(cost) > plain.affordable(cost) for cost in menu)
