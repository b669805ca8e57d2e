"""An odometer with a menu: valid readings at any stop, near the exact accountant's."""

import json
import math

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
from adversaries import player
from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Direction, Item, Ladder, Menu
from dosimeter.accounting.priced.ladder import _worst, make_ladder
from dosimeter.accounting.priced.menu import Losses, lattice_level, least_epsilon
from dosimeter.accounting.priced.share import LADDER_SHARE
from dosimeter.accounting.priced.table import Bundle, stopping_value
from dosimeter.compare.adversaries import FiniteMechanism
from dosimeter.compare.adversaries.play import gate_after
from oracles import some_output_above

DELTA = 1e-6
NOMINAL = dm.Gaussian(100.0)
OTHER = dm.Laplace(50.0)
STRANGER = dm.SampledGaussian(0.01, 5.0)


@pytest.fixture(scope="module")
def ladder():
    return make_ladder([NOMINAL, OTHER], 0.94 * DELTA, (NOMINAL, 4000))


@pytest.fixture
def odometer(ladder):
    return dm.Odometer(DELTA, menu=ladder)


def gaussian_epsilon(mu, delta):
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(excess, 0.0, 100.0)


def test_readings_rise_and_are_above_the_exact_epsilon(odometer):
    assert odometer.epsilon == 0
    readings = []
    for runs in range(500, 12_001, 500):
        odometer.spend(NOMINAL, 500)
        readings.append(odometer.epsilon)
        assert odometer.epsilon >= gaussian_epsilon(np.sqrt(runs) / 100, DELTA)
    assert readings == sorted(readings)
    assert odometer.standing.menu


def test_the_planned_stop_is_tight(odometer):
    odometer.spend(NOMINAL, 4000)
    assert odometer.epsilon <= 1.03 * gaussian_epsilon(np.sqrt(4000) / 100, DELTA)


def test_is_never_worse_than_its_mixture(odometer):
    mixture = dm.Odometer(DELTA * 0.05)
    for _ in range(10):
        odometer.spend(NOMINAL, 700)
        mixture.spend(NOMINAL, 700)
        assert odometer.epsilon <= mixture.epsilon * 1.001 + 0.05


def test_a_stranger_leaves_the_reading_to_the_mixture(odometer):
    odometer.spend(NOMINAL, 1000)
    before = odometer.epsilon
    odometer.spend(STRANGER)
    assert not odometer.standing.menu
    assert odometer.standing.mixture
    assert odometer.epsilon > before
    odometer.spend(NOMINAL)
    assert odometer.epsilon >= before


def test_beyond_the_last_rung_the_mixture_reads(odometer):
    odometer.spend(NOMINAL, 50_000)
    assert not odometer.standing.menu
    assert odometer.epsilon > odometer.menu.epsilon


def test_mixture_is_charged_for_whole_bundles(odometer):
    odometer.spend(OTHER)
    item = next(item for item in odometer.menu.items if item.cost == OTHER)
    assert np.allclose(odometer.state()["rdp"], item.steps * OTHER.rdp(odometer.orders))


def test_state_round_trips_exactly_through_json(odometer):
    for cost, count in [(NOMINAL, 10), (OTHER, 3), (NOMINAL, 900), (STRANGER, 1), (NOMINAL, 5)]:
        odometer.spend(cost, count)
        restored = dm.Odometer.from_state(json.loads(json.dumps(odometer.state())))
        assert restored.state() == odometer.state()
        # A reading begins where the last one ended, which is not part of a state.
        assert restored.epsilon == pytest.approx(odometer.epsilon, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    "edit", [{"readings": []}, {"readings": [0.1]}, {"readings": None}, {"quanta_left": 10**9}]
)
def test_well_sealed_nonsense_is_refused(odometer, edit):
    from dosimeter.accounting.state import seal

    fields = {
        key: value
        for key, value in {**odometer.state(), **edit}.items()
        if key not in ("kind", "version", "checksum")
    }
    with pytest.raises(dm.StateError, match="state"):
        dm.Odometer.from_state(seal("odometer", fields))


def test_the_guarantee_names_its_conditions(odometer):
    odometer.spend(NOMINAL)
    assert "the same side in every round" in str(odometer.guarantee())
    assert not dm.Odometer(DELTA).guarantee().conditions


def test_bad_plans_and_menus_are_refused(ladder):
    with pytest.raises(ValueError, match="plan must come with a menu"):
        dm.Odometer(DELTA, plan=(NOMINAL, 10))
    with pytest.raises(TypeError, match="plan must be a pair"):
        dm.Odometer(DELTA, menu=[NOMINAL], plan=10)
    with pytest.raises(ValueError, match="plan must be for a cost on the menu"):
        dm.Odometer(DELTA, menu=[NOMINAL], plan=(OTHER, 1000))
    with pytest.raises(ValueError, match="plan must cost an epsilon between"):
        dm.Odometer(DELTA, menu=[NOMINAL], plan=(NOMINAL, 10**12))
    with pytest.raises(ValueError, match="plan count must be between"):
        dm.Odometer(DELTA, menu=[NOMINAL], plan=(NOMINAL, 0))
    for counts in [(1, 2, 3), (5,)]:
        with pytest.raises(TypeError, match="plan must be a pair"):
            dm.Odometer(DELTA, menu=[NOMINAL], plan=(NOMINAL, counts))
    for counts, word in [((20, 10), "low <= high"), ((0, 10), "plan count"), ((1.5, 9), "plan")]:
        with pytest.raises((TypeError, ValueError), match=word):
            dm.Odometer(DELTA, menu=[NOMINAL], plan=(NOMINAL, counts))
    with pytest.raises(ValueError, match="at least one cost"):
        dm.Odometer(DELTA, menu=[])
    with pytest.raises(ValueError, match="a cost twice"):
        dm.Odometer(DELTA, menu=[NOMINAL, NOMINAL])
    with pytest.raises(ValueError, match="off the menu"):
        dm.Odometer(DELTA, menu=[NOMINAL, dm.Curve([2.0], [math.inf])])
    with pytest.raises(ValueError, match="rate 1"):
        dm.Odometer(DELTA, menu=[dm.SampledGaussian(1.0, 3.0)])
    with pytest.raises(ValueError, match="menu must be made for a delta of at most"):
        dm.Odometer(DELTA / 2, menu=ladder)


def test_readings_never_fall_below_what_one_menu_would_promise():
    """Against the exact value of the one strategy there is: the k-fold Gaussian."""
    ladder = make_ladder([NOMINAL], DELTA, None)
    assert isinstance(ladder, Ladder)
    steps = ladder.menu.items[0].steps
    for quanta in (1, 5, 50, 300):
        mu = np.sqrt(quanta * steps) / 100
        assert ladder.readings[quanta] >= gaussian_epsilon(mu, DELTA)


@pytest.mark.parametrize(
    ("scale", "runs", "exact"),
    [(10.0, 100, 4.694), pytest.param(50.0, 1000, 2.906, marks=pytest.mark.slow)],
)
def test_a_plan_of_laplace_queries_is_confirmed(scale, runs, exact):
    """First readings are all that can be lost, where the checker's grid is far too coarse."""
    query = dm.Laplace(scale)
    planned = dm.Odometer(DELTA, menu=[query], plan=(query, runs))
    planned.spend(query, runs)
    assert planned.standing.menu
    assert exact <= planned.epsilon <= 1.06 * exact


def test_a_few_large_queries_are_confirmed_without_a_plan():
    """On a grid with half the points every reading would have to be a twentieth higher."""
    query, odometer = dm.Laplace(10.0), dm.Odometer(DELTA, menu=[dm.Laplace(10.0)])
    odometer.spend(query, 100)
    assert odometer.standing.menu
    assert 4.694 <= odometer.epsilon <= 1.15 * 4.694


@pytest.mark.parametrize(("share", "left"), [(0.5, 0.05), (0.95, 0.05), (0.97, 0.03)])
def test_the_mixture_has_what_a_ladder_leaves_and_no_more(share, left):
    """But never over a twentieth: one that was made when it had so much goes on as it was."""
    menu = Menu(9.0, share * DELTA, 1, (Item(NOMINAL, 1, 1),))
    terms = dm.Odometer(DELTA, menu=Ladder(menu, (0.0, 9.0))).account.terms
    mixture = mpf(terms.mixture.delta) / (1 - mpf(terms.cut))
    with mp.workdps(40):
        assert float(mixture) == pytest.approx(left * DELTA, rel=1e-9)
        assert mpf(menu.delta) + mixture <= mpf(DELTA)


@pytest.mark.parametrize("way", list(Direction))
def test_what_is_no_number_in_one_direction_is_none_in_both(way, monkeypatch):
    monkeypatch.setattr(
        verify, "_values", lambda menu, readings, at, points: [math.nan if at is way else 1e-9]
    )
    ladder = Ladder(Menu(9.0, DELTA, 1, (Item(sgd(1.0), 1, 1),)), (0.0, 9.0))
    assert math.isnan(verify.reached(ladder))


@pytest.mark.parametrize("turn", [1, -1])
def test_no_direction_is_left_out_where_a_coarser_lattice_judges_it(turn):
    step = sgd(1.0)
    losses, item = Losses(4.0, DELTA, lattice_level(4.0)), Item(step, 400, 1)
    ways = [[Bundle(losses.of(step, item.steps, way), 1)] for way in Direction][::turn]
    readings = (0.0, *(1.45 + 0.33 * n for n in range(6)))
    values = [stopping_value(bundles, readings) for bundles in ways]
    assert values[0] != values[1]
    assert _worst(ways, readings, 1.0) == max(values)
    assert _worst(ways, readings, values[0] / 2) >= values[0]


PLD = {1: 0.9703, 6: 1.7286, 20: 3.0019, 25: 3.3563, 30: 3.6827, 40: 4.2753, 50: 4.8103} | {
    70: 5.7661, 100: 7.0184, 150: 8.8247, 200: 10.4204, 250: 11.8805, 300: 13.2439
}  # fmt: skip
"""Epochs, and dp-accounting's epsilon (0.6.0, pessimistic, interval 1e-4)."""


def sgd(noise, batch=512):
    return dm.SampledGaussian(batch / 50000, noise)


@pytest.mark.slow
@pytest.mark.parametrize(
    "menu",
    [[sgd(1.0)], [sgd(1.0), sgd(1.2), sgd(1.5), sgd(2.0), sgd(1.0, 256), dm.Gaussian(100.0)]],
    ids=["one item", "six items"],
)
def test_stays_near_exact_accounting_at_every_stop(menu):
    """Noise 1, 98 steps an epoch, delta 1e-6."""
    ladder = make_ladder(menu, 0.9499 * DELTA, None)
    for epochs, epsilon in PLD.items():
        odometer = dm.Odometer(DELTA, menu=ladder)
        odometer.spend(menu[0], 98 * epochs)
        most = 1.40 if epochs < 6 else 1.22 if epochs < 20 else 1.17
        assert epsilon <= odometer.epsilon <= most * epsilon, epochs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("menu", "most"),
    [
        ([sgd(1.0)], 1.180),
        ([sgd(1.0), sgd(2.0)], 1.180),
        ([dm.SampledGaussian(0.05, 2.0)], 1.160),
        ([NOMINAL], 1.150),
        ([OTHER], 1.150),
    ],
    ids=["steps", "two noises", "larger batches", "plain", "Laplace"],
)
def test_without_a_plan_the_mean_over_all_stops_is_near_the_least_there_is(menu, most):
    """From a three-hundredth of its runs on, the logarithm of the stop evenly, at whole bundles."""
    ladder = make_ladder(menu, LADDER_SHARE * DELTA, None)
    item, losses = ladder.menu.items[0], Losses(16.0, DELTA, lattice_level(14.0) - 3)
    last, ratios = 0.93 * ladder.menu.quanta // item.price, []
    for part in np.geomspace(1 / 300, 1, 30).tolist():
        bundles = math.ceil(part * last)
        total = losses.of(item.cost, bundles * item.steps, Direction.REMOVE)
        low = least_epsilon(total, DELTA) - total.step  # passes delta
        ratios.append(ladder.readings[bundles * item.price] / low)
    assert np.exp(np.mean(np.log(ratios))) <= most


@pytest.mark.slow
def test_a_planned_stop_is_nearly_free():
    step = sgd(1.0)
    planned = dm.Odometer(DELTA, menu=[step], plan=(step, 9800))
    planned.spend(step, 9800)
    assert PLD[100] <= planned.epsilon <= 1.018 * PLD[100]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high", "most"), [(20, 100, 1.107), (50, 150, 1.087), (50, 100, 1.074)]
)
def test_a_window_is_as_near_to_exact_accounting_at_every_moment_of_it(low, high, most):
    step = sgd(1.0)
    odometer, spent = dm.Odometer(DELTA, menu=[step], plan=(step, (98 * low, 98 * high))), 0
    for epochs, epsilon in PLD.items():
        if low <= epochs <= high:
            odometer.spend(step, 98 * epochs - spent)
            spent = 98 * epochs
            assert odometer.standing.menu
            assert epsilon <= odometer.epsilon <= (most + 0.005) * epsilon


@pytest.fixture(scope="module")
def window():
    return make_ladder([NOMINAL, OTHER], 0.94 * DELTA, (NOMINAL, (1500, 4000)))


class TestAWindow:
    def test_is_equally_near_throughout(self, window):
        odometer, ratios = dm.Odometer(DELTA, menu=window), []
        odometer.spend(NOMINAL, 1000)
        for runs in range(1500, 4001, 500):
            odometer.spend(NOMINAL, 500)
            ratios.append(odometer.epsilon / gaussian_epsilon(np.sqrt(runs) / 100, DELTA))
        assert 1 <= min(ratios)
        # Bundles of the nominal one make steps of their own.
        assert max(ratios) <= min(1.10, min(ratios) + 0.02)

    def test_reads_before_it_what_it_does_at_its_beginning(self, window):
        first = next(n for n, reading in enumerate(window.readings) if reading > 0)
        item = window.menu.items[0]
        begins = math.ceil(1500 / item.steps) * item.price
        assert first == 1
        assert len(set(window.readings[1 : begins + 1])) == 1
        assert window.readings[begins + 5] > window.readings[begins]

    def test_and_no_less_than_exact_accounting_there(self):
        """Until it begins the mixture reads, up to what is read at its beginning."""
        cost = dm.Gaussian(10.0)
        odometer = dm.Odometer(DELTA, menu=[cost], plan=(cost, (20, 60)))
        assert odometer.epsilon == 0  # nothing is spent
        read = []
        for runs in range(1, 25):
            odometer.spend(cost)
            read.append(odometer.epsilon)
            mu = math.sqrt(runs) / 10
            far = read[-1] / mu
            below, above = (mp.ncdf(side * mu / 2 - far) for side in (-1, 1))
            assert 0 < above - mp.exp(read[-1]) * below <= DELTA
        assert read == sorted(read)
        assert len(set(read[14:20])) == 1 < len(set(read[:14]))

    def test_leaves_what_comes_after_it_to_the_mixture(self, window):
        odometer = dm.Odometer(DELTA, menu=window)
        odometer.spend(NOMINAL, 4500)
        assert not odometer.standing.menu
        assert odometer.epsilon >= gaussian_epsilon(np.sqrt(4500) / 100, DELTA)

    def test_no_player_reaches_more_than_her_delta(self, window):
        reached = player.stopping(window.menu, window.readings, turns=40)
        assert 0.5 * window.menu.delta <= reached <= window.menu.delta

    def test_and_one_that_reads_less_is_refused(self, window):
        low = tuple(reading * 0.97 for reading in window.readings)
        menu = Menu(low[-1], window.menu.delta, window.menu.quanta, window.menu.items)
        assert player.stopping(menu, low, turns=40) > window.menu.delta
        with pytest.raises(ValueError, match="second computation"):
            dm.Odometer(DELTA, menu=Ladder(menu, low))


@pytest.fixture(scope="module")
def exact():
    """A little over the exact epsilon after every seventh of an epoch, from 1 to 300."""
    step, losses = sgd(1.0), Losses(14.0, DELTA, lattice_level(14.0) - 1)
    places = sorted({round(n) for n in np.geomspace(1, 2100, 160)})
    known = [least_epsilon(losses.of(step, 14 * n, Direction.REMOVE), DELTA) for n in places]
    assert known[places.index(2100)] == pytest.approx(PLD[300], rel=1e-3)
    # Between places that are 5 % apart the curve is above its chord by less than that.
    return np.interp(np.arange(1, 2101), places, known) * (1 + 2e-4)


@pytest.mark.parametrize(
    ("low", "high", "ratio"), [(1, 300, 1.17), (20, 100, 1.095), (50, 150, 1.075), (50, 100, 1.06)]
)
def test_no_odometer_could_promise_much_less(exact, low, high, ratio):
    """Who stops at the best seventh of an epoch would pass delta: a lower bound on the truth."""
    readings = ratio * np.maximum(exact, exact[7 * low - 1])[: 7 * high]
    assert player.stopped(sgd(1.0), [14], readings.tolist(), DELTA) > 1.02 * DELTA


def test_a_tiny_cost_makes_a_menu_as_soon_as_any():
    # Twenty million runs a quantum: the lattice is coarse for them, and the menu gains nothing.
    tiny = dm.Gaussian(1e5)
    with_menu, without = dm.Odometer(DELTA, menu=[tiny]), dm.Odometer(DELTA)
    for odometer in (with_menu, without):
        odometer.spend(tiny, 10**9)
    assert 0.7 * without.epsilon < with_menu.epsilon < 1.2 * without.epsilon


def test_a_cost_beyond_the_lattice_is_refused_in_words():
    with pytest.raises(ValueError, match="far too much"):
        dm.Odometer(DELTA, menu=[dm.Gaussian(0.2)])


@pytest.mark.slow
def test_a_rare_event_at_a_small_rate_is_within_delta():
    """Some output above t; the reading after 969 runs of noise 0.6 once allowed 1.34 delta."""
    first, second = dm.SampledGaussian(1e-5, 0.8), dm.SampledGaussian(1e-5, 0.6)
    odometer = dm.Odometer(DELTA, menu=[first, second], plan=(first, 20_000))
    quanta = next(item for item in odometer.menu.items if item.cost == second)
    most = odometer.menu.quanta // quanta.price * quanta.steps
    for runs in (most // 10, most - most // 10):
        odometer.spend(second, runs)
        assert odometer.standing.menu
    assert 0 < some_output_above(1e-5, 0.6, most, odometer.epsilon) <= DELTA


class TestExactAdversaries:
    """Two two-point mechanisms and all moments of stopping, in 40 digits."""

    ONE = FiniteMechanism((0.9,), (0.01,))
    TWO = FiniteMechanism((0.3,), (0.1,))
    QUANTA = 5

    def ladder(self):
        items = (Item(self.ONE, 1, 1), Item(self.TWO, 1, 1))
        losses = Losses(1.0, DELTA, lattice_level(1.0))
        ways = [
            [Bundle(losses.of(item.cost, 1, way), item.price) for item in items]
            for way in Direction
        ]
        readings = tuple(0.05 + 0.3 * spent for spent in range(self.QUANTA + 1))
        share = max(stopping_value(bundles, (0.0, *readings[1:])) for bundles in ways)
        menu = Menu(readings[-1], share, self.QUANTA, items)
        return Ladder(menu, (0.0, *readings[1:]))

    def reached(self, new_odometer, spent, p, q):
        """The sum of (p - e^epsilon q)+ over views, each stopped where it gains most."""
        odometer = gate_after(spent, new_odometer)
        assert odometer.standing.menu
        best = max(mpf(0), p - mp.exp(mpf(odometer.epsilon)) * q)
        if len(spent) == self.QUANTA:
            return best
        for mechanism in (self.ONE, self.TWO):
            value = sum(
                self.reached(new_odometer, (*spent, mechanism), p * chance, q * other)
                for chance, other in mechanism.worlds()
            )
            best = max(best, value)
        return best

    def test_who_stops_at_the_best_moment_gets_the_promised_delta_and_no_more(self):
        ladder = self.ladder()
        share = ladder.menu.delta
        with mp.workdps(40):
            reached = self.reached(
                lambda: dm.Odometer(share / 0.9499, menu=ladder), (), mpf(1), mpf(1)
            )
        assert 0.95 * share <= reached <= share
