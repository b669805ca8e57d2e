"""Costs that were not declared, sold for quanta all the same; against bounds by other roads."""

import json
import math
from dataclasses import replace

import pytest
from mpmath import mp, mpf

import dosimeter as dm
from adversaries import player
from adversaries.observer import seen_of
from dosimeter.accounting.account import Account
from dosimeter.accounting.priced import quanta, strangers, verify
from dosimeter.accounting.priced.items import Item, Ladder, Menu
from dosimeter.accounting.state import seal
from dosimeter.compare.adversaries import FiniteMechanism
from dosimeter.ledger.accounts import read_position, write_position

DELTA = 1e-6
NOMINAL, CAREFUL = dm.Gaussian(100.0), dm.Gaussian(200.0)
STRANGER = dm.Gaussian(150.0)
STRANGERS = [STRANGER, dm.SampledGaussian(0.01, 5.0), dm.Laplace(50.0)]


@pytest.fixture(scope="module")
def start():
    return dm.Filter(3.0, DELTA, menu=[NOMINAL, CAREFUL]).account


@pytest.fixture
def gate(start):
    return dm.accounting.meter.Meter(start)


def gate_at(account):
    return dm.Filter.from_state(seal("filter", {**account.plain(), "mark": ""}))


def gaussian_delta(mu, epsilon):
    mu, e = mpf(mu), mpf(epsilon)
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


class TestSelling:
    def test_does_not_end_the_menu(self, gate):
        gate.spend(NOMINAL, 500)
        before, item = gate.quanta_left, gate.price(STRANGER)
        gate.spend(STRANGER)
        assert gate.standing.menu
        assert gate.quanta_left == before - item.price
        gate.spend(STRANGER, item.steps - 1)
        assert gate.quanta_left == before - item.price
        gate.spend(STRANGER)
        assert gate.quanta_left == before - 2 * item.price
        gate.spend(NOMINAL, gate.affordable(NOMINAL))
        assert gate.standing.menu

    def test_costs_little_more_than_if_it_were_declared(self, start):
        """At least this share of what the menu's budget admits of it alone."""
        for cost, share in zip(STRANGERS, (0.98, 0.95, 0.9), strict=True):
            alone = dm.Filter(3.0, DELTA, menu=[cost]).menu.quanta
            assert share * alone <= start.affordable(cost) <= alone

    @pytest.mark.slow
    def test_at_small_rates_only_lighter_jumps_are_sold_well(self):
        """The second gets 0.68 of its runs beside a menu of nine tenths of delta; this has 0.92."""
        gate = dm.Filter(0.6, DELTA, menu=[dm.SampledGaussian(1e-3, noise) for noise in (1.0, 2.0)])
        lighter, rarer, heavier = (
            dm.SampledGaussian(1e-3, 1.2),
            dm.SampledGaussian(5e-4, 0.9),
            dm.SampledGaussian(1e-3, 0.9),
        )
        for cost, share in ((lighter, 0.95), (rarer, 0.64)):
            alone = dm.Filter(0.6, DELTA, menu=[cost]).menu.quanta
            assert share * alone <= gate.affordable(cost) <= alone
        for cost in (heavier, dm.SampledGaussian(2e-3, 1.0)):
            assert gate.price(cost) is None

    def test_the_mixture_is_charged_for_whole_bundles_when_they_are_bought(self, gate):
        gate.spend(STRANGER)
        expected = gate.price(STRANGER).steps * STRANGER.rdp(gate.orders)
        assert gate.tally.rdp == pytest.approx(expected, rel=1e-12)
        gate.spend(STRANGER)
        assert gate.tally.rdp == pytest.approx(expected, rel=1e-12)

    def test_quanta_and_mixture_cannot_both_be_spent(self):
        """What was bought for quanta keeps the mixture from selling to another (331 delta)."""
        gate = dm.Filter(4.909, DELTA, menu=[NOMINAL, CAREFUL])
        last = dm.Curve(gate.orders, dm.Gaussian(1.2).rdp(gate.orders))
        assert gate.price(last) is None
        assert gate.admits(last)
        gate.spend(STRANGER, gate.affordable(STRANGER))
        gate.spend(NOMINAL, gate.affordable(NOMINAL))
        assert gate.standing.menu
        assert not gate.admits(last)

    def test_what_has_no_price_ends_the_menu(self, gate):
        curve = dm.Curve(gate.orders, STRANGER.rdp(gate.orders))
        for cost in (
            curve,
            dm.ApproxDp(0.1, 1e-9),
            dm.Gaussian(0.1),
            dm.SampledGaussian(1e-3, 0.5),
        ):
            assert gate.price(cost) is None
        gate.spend(STRANGER)
        gate.spend(curve)
        assert not gate.standing.menu
        held = gate.price(STRANGER)
        assert held is None  # nothing more is sold
        gate.spend(STRANGER, 100)  # but what is prepaid was charged to the mixture long ago
        assert gate.tally.rdp == pytest.approx(
            gate.account.strangers[0].steps * STRANGER.rdp(gate.orders) + curve.rdp(gate.orders),
            rel=1e-9,
        )

    def test_only_so_many_are_sold(self, gate, monkeypatch):
        monkeypatch.setattr(quanta, "MOST_STRANGERS", 1)
        gate.spend(STRANGER)
        assert gate.price(STRANGERS[1]) is None
        gate.spend(STRANGER, 1000)  # a known one is sold on
        assert gate.standing.menu

    def test_menus_made_without_credit_sell_none(self, start):
        menu = replace(start.terms.menu, credit=0.0)
        gate = dm.Filter(3.0, DELTA, menu=menu)
        assert gate.price(STRANGER) is None
        gate.spend(STRANGER)
        assert not gate.standing.menu

    def test_deltas_add_up_to_delta(self, start):
        terms = start.terms
        mixture = mpf(terms.mixture.delta) / (1 - mpf(terms.cut))
        with mp.workdps(40):
            assert mpf(terms.menu.delta) + mpf(terms.menu.credit) + mixture <= mpf(DELTA)


class TestGuarantee:
    def test_gaussians_keep_to_delta_exactly(self, start):
        """All of the quanta on strangers, or half, and the rest on the menu; 30 digits."""
        for part in (1.0, 0.5):
            gate = dm.accounting.meter.Meter(start)
            strange = math.floor(gate.affordable(STRANGER) * part)
            gate.spend(STRANGER, strange)
            more = gate.affordable(STRANGER) if part == 1.0 else 0
            nominal = gate.affordable(NOMINAL)
            gate.spend(NOMINAL, nominal)
            with mp.workdps(30):
                mu = mp.sqrt(mpf(strange + more) / 150**2 + mpf(nominal) / 100**2)
                assert 0.5 * DELTA < gaussian_delta(mu, 3.0) <= DELTA

    @pytest.mark.parametrize("cost", STRANGERS, ids=str)
    def test_the_best_buyer_of_menu_and_strangers_gets_no_more_than_both_deltas(self, start, cost):
        menu = start.terms.menu
        richer = replace(menu, items=(*menu.items, start.price(cost)))
        reached = player.adaptive(richer, turns=48)
        assert 0.8 * menu.delta < reached <= menu.delta + menu.credit

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("epsilon", "costs", "others"),
        [
            (7.0, [dm.SampledGaussian(0.01, 1.0)], [dm.SampledGaussian(0.01, 1.2), STRANGER]),
            (1.0, [dm.Laplace(50.0)], [dm.SampledGaussian(0.01, 5.0), STRANGER]),
            (
                0.3,
                [dm.SampledGaussian(1e-3, 1.0), dm.Gaussian(300.0)],
                [dm.SampledGaussian(1e-4, 1.0), dm.Gaussian(200.0)],
            ),
        ],
        ids=["steps", "queries", "small"],
    )
    def test_nor_of_other_menus(self, epsilon, costs, others):
        gate = dm.Filter(epsilon, DELTA, menu=costs)
        items = tuple(gate.price(cost) for cost in others)
        richer = replace(gate.menu, items=(*gate.menu.items, *items))
        reached = player.adaptive(richer, turns=60)
        assert 0.3 * DELTA < reached <= gate.menu.delta + gate.menu.credit


class TestConfirming:
    def test_either_road_refuses_a_bundle_with_more_runs(self, start):
        menu = start.terms.menu
        shop = strangers._shop(menu)
        for cost, more in zip(STRANGERS, (1.04, 1.06, 1.2), strict=True):
            sold = start.price(cost)
            dear = replace(sold, steps=math.ceil(sold.steps * more))
            assert verify.sells(menu, sold)
            assert shop._holds(sold, 1)
            assert not verify.sells(menu, dear)
            assert not shop._holds(dear, 1)

    def test_either_road_looks_both_ways(self, start):
        """Prices that one direction alone would allow."""
        menu = start.terms.menu
        for loss, price in ((-1.0, 250), (1.0, 150)):
            item = Item(FiniteMechanism((loss,), (0.05,)), 1, price)
            assert not strangers._shop(menu)._holds(item, 1)
            assert not verify.sells(menu, item)

    def test_what_the_builder_gets_wrong_is_not_sold(self, start, monkeypatch):
        """Without its check it would sell at the fair rate, which is too much for Laplace noise."""
        monkeypatch.setattr(strangers._Shop, "_falls", lambda *_: True)
        strangers.priced.cache_clear()
        found = strangers.priced(start.terms.menu, dm.Laplace(50.0))
        strangers.priced.cache_clear()
        assert found is None or verify.sells(start.terms.menu, found)

    def test_and_what_the_checker_gets_wrong_neither(self, start, monkeypatch):
        monkeypatch.setattr(verify, "sells", lambda *_: True)
        strangers.priced.cache_clear()
        found = strangers.priced(start.terms.menu, dm.Laplace(50.0))
        strangers.priced.cache_clear()
        monkeypatch.undo()
        assert verify.sells(start.terms.menu, found)

    def test_one_mechanism_is_sold_in_blocks(self):
        gate = dm.Filter(3.0, DELTA, menu=[NOMINAL])
        blocks, size = gate.menu.in_blocks()
        assert blocks.quanta * size >= gate.menu.quanta > (blocks.quanta - 1) * size
        item = gate.price(STRANGER)
        assert item.price % size == 0
        assert not verify.sells(gate.menu, replace(item, price=item.price - 1))
        gate.spend(NOMINAL, 7)
        gate.spend(STRANGER, gate.affordable(STRANGER))
        gate.spend(NOMINAL, gate.affordable(NOMINAL))
        assert gate.standing.menu
        spent = gate.account.strangers[0].steps * (gate.menu.quanta // item.price)
        with mp.workdps(30):
            mu = mp.sqrt(mpf(spent) / 150**2 + mpf(gate.menu.quanta % item.price) / 100**2)
            assert gaussian_delta(mu, 3.0) <= DELTA


class TestStates:
    def test_go_on_with_what_was_sold(self, gate):
        gate.spend(STRANGER, 3)
        gate.spend(NOMINAL, 2)
        restored = dm.Filter.from_state(json.loads(json.dumps(gate_at(gate.account).state())))
        assert restored.account.strangers == gate.account.strangers
        assert restored.account.prepaid == gate.account.prepaid
        left = restored.quanta_left
        restored.spend(STRANGER, gate.price(STRANGER).steps - 3)
        assert restored.quanta_left == left

    @pytest.mark.parametrize(
        "edit",
        [
            {"steps": 10**4},
            {"price": 1},
            {"price": 0},
            {"cost": {"kind": "gaussian", "noise_multiplier": 100.0}},
            {"cost": {"kind": "gaussian", "noise_multiplier": 20.0}},
            {"cost": {"kind": "approx_dp", "epsilon": 0.1, "delta": 1e-9}},
        ],
        ids=str,
    )
    def test_prices_that_are_not_confirmed_are_refused(self, gate, edit):
        gate.spend(STRANGER, 3)
        plain = gate.account.plain()
        plain["strangers"][0].update(edit)
        with pytest.raises(dm.StateError, match="state must describe an account"):
            Account.from_plain(plain)

    def test_more_than_was_bought_or_another_credit_is_refused(self, gate):
        gate.spend(STRANGER, 3)
        plain = gate.account.plain()
        for edit in (
            {"prepaid": [0, 0, 10**6]},
            {"prepaid": [0, 0]},
            {"strangers": 2 * plain["strangers"], "prepaid": [0, 0, 0, 0]},
            {"menu": {**plain["menu"], "credit": 0.1 * DELTA}},
            {"menu": {**plain["menu"], "credit": 0.0}},
            {"menu": {**plain["menu"], "credit": math.nan}},
        ):
            with pytest.raises(dm.StateError):
                Account.from_plain({**plain, **edit})

    def test_a_ledger_writes_them_down(self, gate):
        gate.spend(STRANGER, 3)
        gate.spend(STRANGERS[2])
        text = write_position(gate.account)
        found = read_position(gate.account.terms, text)
        assert found.strangers == gate.account.strangers
        assert write_position(found) == text

    def test_an_odometer_has_none(self):
        odometer = dm.Odometer(DELTA, menu=[dm.Gaussian(10.0)], plan=(dm.Gaussian(10.0), 20))
        assert odometer.price(dm.Gaussian(12.0)) is None
        menu, readings = odometer.menu, odometer.account.terms.readings
        with pytest.raises(ValueError, match=r"^menu must have no credit with readings"):
            dm.Odometer(DELTA, menu=Ladder(replace(menu, credit=1e-9), readings))


def test_a_menu_with_a_credit_beyond_its_share_is_refused():
    menu = Menu(1.0, 0.9 * DELTA * (1 - 1e-9), 1, (Item(dm.Gaussian(100.0), 1, 1),), 0.05 * DELTA)
    with pytest.raises(ValueError, match="a credit of at most"):
        dm.Filter(1.0, DELTA, menu=menu)


@pytest.mark.slow
def test_a_run_of_which_nothing_was_declared_is_near_exact_accounting():
    """Four costs beside three references that are never used."""
    rate = dm.SampledGaussian
    spent = [(rate(0.01, 1.0), 2500), (rate(0.02, 1.5), 2000)]
    spent += [(rate(0.005, 0.9), 4000), (rate(0.01, 2.0), 8000)]
    epsilon = 6.437
    gate = dm.Filter(epsilon, DELTA, menu=[dm.Gaussian(50.0), rate(0.01, 0.8), rate(0.1, 3.0)])
    for cost, count in spent:
        gate.spend(cost, count)
    assert gate.standing.menu
    # An observer of these very runs would pass delta at a little less.
    assert seen_of(spent, epsilon, DELTA) < DELTA < seen_of(spent, epsilon / 1.085, DELTA)


SMALL_RATES = {
    "near 0.001": (
        [(1e-3, 1.0, 2500), (5e-4, 0.9, 5000), (2e-3, 1.5, 2500), (1e-3, 1.2, 5000)],
        [dm.SampledGaussian(1e-3, 0.9), dm.Gaussian(300.0)],
        *(0.559, 1.065),
    ),
    "near 0.0001": (
        [(1e-4, 1.0, 25_000), (2e-4, 1.2, 12_000), (1e-4, 1.5, 50_000), (3e-4, 2.0, 20_000)],
        [dm.SampledGaussian(1e-4, 0.9), dm.Gaussian(1000.0)],
        *(0.156, 1.055),
    ),
}
"""Steps (rate, noise, count), two references that are never used, and dp-accounting's epsilon."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "menu", "exact", "times"), SMALL_RATES.values(), ids=SMALL_RATES.keys()
)
def test_so_it_is_at_small_rates_between_a_gaussian_and_the_least_noise(steps, menu, exact, times):
    spent = [(dm.SampledGaussian(rate, noise), count) for rate, noise, count in steps]
    gate = dm.Filter(times * exact, DELTA, menu=menu)
    for cost, count in spent:
        gate.spend(cost, count)
    assert gate.standing.menu
    assert seen_of(spent, times * exact, DELTA) < DELTA
    assert gate.quanta_left < gate.menu.quanta / 50


@pytest.mark.parametrize("item", [dm.PureDp(1.28), dm.Laplace(0.517)])
def test_beside_a_menu_that_never_passes_epsilon(item):
    """Its V is 0, by which a share of V was once divided."""
    gate = dm.Filter(21.06, 1.32e-12, menu=[item])
    stranger = dm.PureDp(0.73)
    gate.spend(item)
    gate.spend(stranger)
    assert gate.epsilon >= 0.73


@pytest.mark.parametrize(
    ("epsilon", "delta", "cost", "stranger"),
    [
        (500.0, 1e-6, dm.PureDp(450.0), dm.PureDp(0.0216641)),
        (467.0, 0.5, dm.Laplace(0.009036411483588068), dm.PureDp(4.3)),
    ],
)
def test_a_reference_that_no_lattice_takes_is_left_out(epsilon, delta, cost, stranger):
    """It raised about a Gaussian that nobody asked for, though the mixture could pay."""
    gate = dm.Filter(epsilon, delta, menu=[cost])
    assert gate.admits(stranger)
    gate.spend(stranger)
    assert gate.epsilon <= epsilon
