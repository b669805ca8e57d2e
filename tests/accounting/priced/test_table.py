"""V is the value of the worst adaptive adversary: against enumeration, and on finer lattices."""

import itertools
import math

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
from dosimeter.accounting.priced.items import Direction
from dosimeter.accounting.priced.lattice import LatticeError, Measure, Runs
from dosimeter.accounting.priced.losses import single_loss
from dosimeter.accounting.priced.table import Bundle, ValueTable, stopping_value

LEVEL = 10
STEP = Measure(LEVEL, 0, np.ones(1), 0.0, 0.0).step


def two_point(up, down):
    """Losses up * step and -down * step with the one probability that makes them a pair."""
    with mp.workdps(50):
        p = (mp.exp(down * STEP) - 1) / (mp.exp(down * STEP) - mp.exp(-up * STEP))
    masses = np.zeros(up + down + 1)
    masses[0], masses[-1] = float(1 - p), float(p)
    return Measure(LEVEL, -down, masses, 0.0, 0.0)


def enumerated(bundles, quanta, index):
    """The best strategy from the leaves of the whole tree up, in 50 digits, nothing shared."""
    best = max(mpf(0), 1 - mp.exp(-mpf(STEP) * index))
    for bundle in bundles:
        if bundle.price <= quanta:
            low, high = mpf(float(bundle.loss.p[0])), mpf(float(bundle.loss.p[-1]))
            top = index + bundle.loss.lo + len(bundle.loss.p) - 1
            value = low * enumerated(bundles, quanta - bundle.price, index + bundle.loss.lo)
            value += high * enumerated(bundles, quanta - bundle.price, top)
            best = max(best, value)
    return best


MENUS = [
    [(two_point(3, 1), 1), (two_point(1, 2), 1)],
    [(two_point(7, 2), 2), (two_point(2, 2), 1)],
    [(two_point(1, 1), 1), (two_point(12, 1), 3)],
    [(two_point(5, 4), 2), (two_point(9, 1), 3)],
]


@pytest.mark.parametrize("menu", MENUS)
@pytest.mark.parametrize("quanta", [1, 2, 3, 4, 5, 6])
def test_equals_the_enumeration_of_all_strategies(menu, quanta):
    bundles = [Bundle(loss, price) for loss, price in menu]
    table = ValueTable(bundles, -60, 60)
    with mp.workdps(50):
        for index in (-2, 0, 1, 2, 5, 8, 11):
            exact = enumerated(bundles, quanta, -index)
            value = table.level(quanta)[60 - index]
            assert table.value(quanta, index * STEP) >= value >= exact
            assert value == pytest.approx(float(exact), rel=2e-13, abs=1e-300)


def enumerated_with_stops(bundles, readings, spent, index):
    """The best strategy of one who may also stop at any time, in 50 digits, nothing shared."""
    best = max(mpf(0), 1 - mp.exp(mpf(readings[spent]) - mpf(STEP) * index))
    for bundle in bundles:
        after = spent + bundle.price
        if after < len(readings):
            low, high = mpf(float(bundle.loss.p[0])), mpf(float(bundle.loss.p[-1]))
            top = index + bundle.loss.lo + len(bundle.loss.p) - 1
            value = low * enumerated_with_stops(bundles, readings, after, index + bundle.loss.lo)
            value += high * enumerated_with_stops(bundles, readings, after, top)
            best = max(best, value)
    return best


@pytest.mark.parametrize("menu", MENUS)
@pytest.mark.parametrize(
    "rises",
    [(0, 3, 3, 1, 1, 2, 5), (0, 6, 2, 1, 1, 1, 1), (0, 0, 0, 9, 0, 0, 0), (0, 2, 0, 4, 0, 3, 0)],
)
def test_stopping_equals_the_enumeration_of_all_strategies(menu, rises):
    """Readings on the lattice, low and high, some of them flat."""
    bundles = [Bundle(loss, price) for loss, price in menu]
    readings = [float(rise) * STEP for rise in itertools.accumulate(rises)]
    value = stopping_value(bundles, readings)
    with mp.workdps(50):
        exact = enumerated_with_stops(bundles, readings, 0, 0)
    assert exact > 0
    # The grid ends somewhat above the last reading: the value may be a little high there.
    assert exact <= value <= 1.02 * exact


def test_readings_between_lattice_points_only_raise_the_stopping_value():
    bundles = [Bundle(loss, price) for loss, price in MENUS[0]]
    readings = [0.0, *((4 + 0.4 * n) * STEP for n in range(6))]
    with mp.workdps(50):
        assert stopping_value(bundles, readings) >= enumerated_with_stops(bundles, readings, 0, 0)


def test_one_last_reading_is_the_value_of_a_filter():
    coarse, _ = sgd_tables(4, 4)
    table = ValueTable(coarse, -1100, 300)
    high = [800 * table.step] * 21
    assert stopping_value(coarse, high) == pytest.approx(table.value(20, high[-1]), rel=1e-4)


def test_no_listed_strategy_beats_the_table():
    """Every map from histories to items, one by one, for three quanta."""
    bundles = [Bundle(two_point(3, 1), 1), Bundle(two_point(1, 2), 1)]
    table = ValueTable(bundles, -60, 60)
    histories = [h for n in range(3) for h in itertools.product((0, 1), repeat=n)]
    best = 0.0
    for plan in itertools.product((0, 1), repeat=len(histories)):
        strategy = dict(zip(histories, plan, strict=True))
        value = 0.0
        for path in itertools.product((0, 1), repeat=3):
            chance, loss = 1.0, -2 * STEP
            for turn, outcome in enumerate(path):
                bought = bundles[strategy[path[:turn]]].loss
                chance *= float(bought.p[-outcome])
                loss += (bought.lo + outcome * (len(bought.p) - 1)) * STEP
            value += chance * max(0.0, -math.expm1(-loss))
        best = max(best, value)
    assert best == pytest.approx(table.value(3, 2 * STEP), rel=1e-9)


def sgd_tables(level, fine):
    """Two items of DP-SGD on a lattice and on a finer one."""
    way = Direction.REMOVE
    costs = [(dm.SampledGaussian(0.01024, 1.0), 98), (dm.SampledGaussian(0.01024, 2.0), 600)]
    bundles = {
        wanted: [
            Bundle(Runs(single_loss(c, way, wanted), wanted, top=1e-17, bottom=1e-9).of(k), 1)
            for c, k in costs
        ]
        for wanted in (level, fine)
    }
    return bundles[level], bundles[fine]


def expected(value, loss):
    """E of a function on a lattice at y + X; flat at both ends, which only lowers it on top."""
    left, right = -loss.lo, loss.lo + len(loss.p) - 1
    padded = np.concatenate([np.zeros(left), value, np.full(right, value[-1])])
    return np.correlate(padded, loss.p, "valid")


def test_the_maximising_policy_gets_what_the_table_says_on_a_finer_lattice():
    """So the table is not slack: 0.95 of it is really there for an adversary who knows V."""
    quanta, epsilon, refine = 20, 3.2, 1
    coarse, fine = sgd_tables(4, 4 - refine)
    step = coarse[0].loss.step
    low, high = -math.ceil(1.5 * epsilon / step), math.ceil(0.5 * epsilon / step)
    table = ValueTable(coarse, low, high)
    scale = 2**refine
    y = np.arange(low * scale, high * scale + 1) * (step / scale)
    value = -np.expm1(-np.maximum(y, 0.0))
    used = set()
    for left in range(1, quanta + 1):
        choice = np.repeat(table.choices(left), scale)[: len(value)]
        used |= set(choice[(y > -3) & (y < 0)].tolist())
        after = value.copy()
        for number, bundle in enumerate(fine):
            after = np.where(choice == number, expected(value, bundle.loss), after)
        value = after
    reached = value[-low * scale - round(epsilon / step) * scale]
    claimed = table.value(quanta, round(epsilon / step) * step)
    assert 0.95 * claimed <= reached <= claimed
    assert {0, 1} <= used


def test_levels_grow_and_stay_convex_in_u():
    coarse, _ = sgd_tables(4, 4)
    table = ValueTable(coarse, -900, 300)
    u = np.exp(-table.losses_above)
    for quanta in range(1, 6):
        level = table.level(quanta)
        assert np.all(level >= table.level(quanta - 1))
        assert np.all(np.diff(level) >= 0)
        slopes = np.diff(level) / np.diff(u)
        assert np.all(np.diff(slopes) <= 1e-9 * np.abs(slopes[1:]) + 1e-12)


def test_ends_of_the_grid_only_raise_the_value():
    coarse, _ = sgd_tables(4, 4)
    wide = ValueTable(coarse, -3000, 2000)
    for low, high in ((-900, 300), (-850, 50), (-810, 5)):
        narrow = ValueTable(coarse, low, high)
        for quanta in (1, 5, 20):
            assert narrow.value(quanta, 3.2) >= wide.value(quanta, 3.2) * (1 - 1e-13)


def test_between_lattice_points_the_value_is_linear_in_u():
    coarse, _ = sgd_tables(4, 4)
    table = ValueTable(coarse, -900, 300)
    step = table.step
    low, high = table.value(5, 500 * step), table.value(5, 499 * step)
    for share in (0.25, 0.5, 0.9):
        u = math.exp(500 * step) * (1 - share) + math.exp(499 * step) * share
        value = table.value(5, math.log(u))
        assert value == pytest.approx(low * (1 - share) + high * share, rel=1e-7)
        assert low <= value <= high


def test_measures_of_different_lattices_are_not_tabulated_together():
    fine = single_loss(dm.Gaussian(10.0), Direction.REMOVE, 0)
    bundles = [Bundle(fine, 1), Bundle(fine.coarser(), 1)]
    with pytest.raises(LatticeError, match="on one lattice"):
        ValueTable(bundles, -100, 50)
    with pytest.raises(LatticeError, match="on one lattice"):
        stopping_value(bundles, (0.0, 1.0))
