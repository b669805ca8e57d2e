"""Adversaries who know the menu and its prices, every purchase tried, played out in 60 digits."""

from dataclasses import replace

import pytest

import dosimeter as dm
from dosimeter.accounting.priced.items import Direction, Item, Menu
from dosimeter.accounting.priced.menu import Losses, lattice_level
from dosimeter.compare.adversaries import FiniteMechanism, examples, menu_adversary, play

DELTA = 1e-6
RARE = FiniteMechanism((1.2,), (0.002,))
MILD = FiniteMechanism((0.4,), (0.05,))
WIDE = FiniteMechanism((0.6, -0.5), (0.1, 0.2))
JUMP = FiniteMechanism((2.5,), (1e-5,))


def priced(epsilon, quanta, prices):
    """A menu at hand-made prices, its delta what V says that they cost."""
    items = tuple(Item(mechanism, 1, price) for mechanism, price in prices.items())
    losses = Losses(epsilon, DELTA, lattice_level(epsilon))
    tables = [losses.table(items, way, epsilon) for way in Direction]
    return Menu(epsilon, max(table.value(quanta, epsilon) for table in tables), quanta, items)


MENUS = {
    "equal prices": priced(3.0, 6, {RARE: 1, MILD: 1}),
    "a dear one": priced(2.0, 6, {MILD: 1, RARE: 3}),
    "three items": priced(1.5, 4, {WIDE: 1, MILD: 1, RARE: 2}),
    "one large jump": priced(2.4, 6, {MILD: 1, JUMP: 2}),
}


def gate_of(menu):
    return lambda: dm.Filter(menu.epsilon, total(menu), menu=menu)


def total(menu):
    """The delta of which the menu has nine tenths."""
    return menu.delta / 0.8999


@pytest.mark.parametrize("menu", MENUS.values(), ids=MENUS.keys())
def test_the_menu_adversary_gets_the_menus_delta_and_no_more(menu):
    """So the table is not slack: she reaches 0.95 of what it allows, by her exact divergence."""
    costs = [item.cost for item in menu.items]
    tree, value = menu_adversary(gate_of(menu), menu.epsilon, costs, depth=menu.quanta)
    realised = play(tree, gate_of(menu), menu.epsilon).hockey_stick
    assert realised == pytest.approx(value, rel=1e-6)
    assert 0.95 * menu.delta <= realised <= menu.delta


OFF_MENU = (0.01, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("menu", MENUS.values(), ids=MENUS.keys())
def test_strangers_besides_do_not_take_her_past_delta(menu):
    costs = [item.cost for item in menu.items]
    tree, _ = menu_adversary(gate_of(menu), menu.epsilon, costs, depth=3, off_menu=OFF_MENU)
    assert play(tree, gate_of(menu), menu.epsilon).hockey_stick <= total(menu)


@pytest.mark.slow
def test_nor_strangers_that_the_menu_sells_itself():
    """Two-point mechanisms, as likely as the gate admits, whoever of the two pays for them."""
    plain = MENUS["equal prices"]
    menu = replace(plain, credit=0.0199 * total(plain))
    costs = [item.cost for item in menu.items]
    tree, _ = menu_adversary(gate_of(menu), menu.epsilon, costs, depth=2, off_menu=OFF_MENU)
    assert play(tree, gate_of(menu), menu.epsilon).hockey_stick <= total(menu)


class Forgetful:
    """A menu and a mixture of which each pays only for what it admits itself."""

    epsilon = 0.0

    def __init__(self, menu):
        self.menu = dm.Filter(menu.epsilon, total(menu), menu=menu)
        self.mixture = dm.Filter(menu.epsilon, 0.1 * total(menu))

    def _payer(self, cost, count):
        on_the_menu = self.menu.price(cost) is not None and self.menu.admits(cost, count)
        return self.menu if on_the_menu else self.mixture

    def admits(self, cost, count=1):
        return self._payer(cost, count).admits(cost, count)

    def spend(self, cost, count=1):
        self._payer(cost, count).spend(cost, count)


def test_she_breaks_a_mixture_that_is_not_charged_for_the_menu():
    """So the test above has teeth."""
    menu = MENUS["equal prices"]
    tree, _ = menu_adversary(
        lambda: Forgetful(menu), menu.epsilon, [RARE, MILD], depth=3, off_menu=OFF_MENU
    )
    assert play(tree, lambda: Forgetful(menu), menu.epsilon).hockey_stick > total(menu)


@pytest.mark.parametrize("adversary", [examples.TIGHT_CONVERSION, examples.TAIL_CONVERSION])
def test_the_known_adversaries_do_not_beat_a_menu(adversary):
    gate = gate_of(MENUS["equal prices"])
    assert play(adversary, gate, examples.EPSILON).hockey_stick <= total(MENUS["equal prices"])


@pytest.mark.parametrize("depth", [0, 1])
def test_no_stranger_beats_a_menu(depth):
    menu = MENUS["equal prices"]
    first = [FiniteMechanism((loss,), (p,)) for loss in (0.3, 0.9, 2.0) for p in (1e-5, 1e-3)]
    tree, _ = menu_adversary(gate_of(menu), menu.epsilon, first, depth=depth, off_menu=OFF_MENU)
    assert 0 < play(tree, gate_of(menu), menu.epsilon).hockey_stick <= total(menu)


def test_nor_do_menu_and_strangers_in_any_order():
    """She may begin with a likely stranger, which the mixture pays for and which ends the menu."""
    menu = MENUS["equal prices"]
    likely = FiniteMechanism((1.0,), (0.7,))
    tree, _ = menu_adversary(gate_of(menu), menu.epsilon, [RARE, MILD, likely], depth=4)
    assert gate_of(menu)().admits(likely)
    assert 0 < play(tree, gate_of(menu), menu.epsilon).hockey_stick <= total(menu)


def test_nor_does_a_stranger_that_the_menu_sells_between_its_items():
    plain = MENUS["equal prices"]
    menu = replace(plain, credit=0.0199 * total(plain))
    sold = FiniteMechanism((0.9,), (0.01,))
    assert gate_of(menu)().account.price(sold).price == 4
    tree, _ = menu_adversary(gate_of(menu), menu.epsilon, [RARE, sold], depth=8)
    assert 0.8 * total(menu) <= play(tree, gate_of(menu), menu.epsilon).hockey_stick <= total(menu)
