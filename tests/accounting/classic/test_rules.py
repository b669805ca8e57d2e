"""Each published rule against its formula, and the warnings it deserves."""

import math
import warnings

import dp_accounting as dpa
import numpy as np
import pytest

import dosimeter as dm
from dosimeter.accounting.classic import (
    PAPER_ORDERS,
    AdvancedComposition,
    BasicComposition,
    Conversion,
    CurveFilter,
    FixedOrderFilter,
    LecuyerOdometer,
    PldComposition,
    RdpComposition,
    RogersFilter,
    SingleOrderFilter,
    StackedOdometer,
    Validity,
)

PURE = dm.PureDp(0.1)
DELTA = 1e-6


def test_basic_composition_adds():
    rule = BasicComposition(1.0, delta=1e-6)
    rule.spend(dm.ApproxDp(0.25, 1e-7), 3)
    assert rule.epsilon == pytest.approx(0.75)
    assert not rule.admits(dm.PureDp(0.3))
    assert not rule.admits(dm.ApproxDp(0.01, 1e-6))
    assert rule.validity is Validity.FILTER


def test_advanced_composition_by_its_formula():
    rule = AdvancedComposition(delta=DELTA)
    rule.spend(PURE, 100)
    assert rule.epsilon == pytest.approx(
        math.sqrt(2 * math.log(1e6) * 100 * 0.01) + 100 * 0.1 * math.expm1(0.1)
    )
    rule.spend(dm.Gaussian(1.0))
    assert rule.epsilon == math.inf


def test_rogers_filter_by_its_formula():
    """Theorem 5.1 at epsilon_g = 3: computed by hand from the statement."""
    rule = RogersFilter(3.0, DELTA)
    rule.spend(dm.PureDp(0.01), 100)
    squares, growth = 100 * 1e-4, 100 * 0.01 * math.expm1(0.01)
    offset = 9.0 / (28.04 * math.log(1e6))
    root = 2 * (squares + offset) * (1 + 0.5 * math.log(squares / offset + 1)) * math.log(2e6)
    assert rule.epsilon == pytest.approx(growth / 2 + math.sqrt(root))
    assert rule.admits(dm.ApproxDp(0.001, DELTA / 2))
    assert not rule.admits(dm.ApproxDp(0.001, DELTA))
    assert not rule.admits(dm.Gaussian(1e6))


def test_rogers_filter_admits_less_than_a_third_of_ours():
    query = dm.PureDp(0.01)
    rule = RogersFilter(1.0, DELTA)
    count = 0
    while rule.admits(query):
        rule.spend(query)
        count += 1
    assert 0 < count < dm.Filter(1.0, DELTA).affordable(query) / 3


def test_fixed_order_is_a_mixture_with_all_weight_on_it():
    cost = dm.Gaussian(20.0)
    ours = dm.Filter(3.0, DELTA, orders=[6.0], cut=0.0)
    rule = FixedOrderFilter(3.0, DELTA, order=6.0)
    most = ours.affordable(cost)
    assert rule.admits(cost, most)
    assert not rule.admits(cost, most + 1)


def test_the_single_order_filter_by_the_papers_conversion():
    rule = SingleOrderFilter(3.0, DELTA, order=8.0)
    budget = 3.0 - math.log(1e6) / 7
    assert rule.admits(dm.Curve([8.0], [budget * (1 - 1e-12)]))
    assert not rule.admits(dm.Curve([8.0], [budget * (1 + 1e-12)]))


def test_the_curve_filter_warns_that_it_is_unsound():
    with pytest.warns(dm.UnsoundRuleWarning, match="order within budget may depend on the path"):
        rule = CurveFilter(3.0, DELTA)
    assert rule.orders == PAPER_ORDERS
    assert rule.validity is Validity.UNSOUND


def test_one_order_is_no_curve_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CurveFilter(3.0, DELTA, orders=[8.0])


@pytest.mark.parametrize("first_filter", [1.0, 0.25])
def test_lecuyers_odometer_by_its_definition(first_filter):
    """Smallest f with R <= 2^(f-1) first, then 2^(f-1) first + log(2 k f^2 / delta) / (a-1)."""
    rule = LecuyerOdometer(DELTA, orders=[2.0, 8.0, 32.0], first_filter=first_filter)
    cost = dm.Gaussian(0.7)
    rule.spend(cost, 3)
    readings = []
    for order, spent in zip([2.0, 8.0, 32.0], 3 * cost.rdp([2, 8, 32]), strict=True):
        first = first_filter * math.log(2 * 3 / DELTA) / (order - 1)
        f = next(f for f in range(1, 100) if spent <= 2 ** (f - 1) * first)
        readings.append(2 ** (f - 1) * first + math.log(3 * 2 * f * f / DELTA) / (order - 1))
    assert rule.epsilon == pytest.approx(min(readings))


def test_stacked_filters_waste_what_does_not_fit():
    rule = StackedOdometer(DELTA, order=8.0, size=1.0, conversion=Conversion.TAIL)
    assert rule.epsilon == 0
    big = dm.Curve([8.0], [0.6])
    rule.spend(big, 3)
    assert rule.epsilon == pytest.approx(3.0 + math.log(1e6) / 7)
    rule.spend(dm.Curve([8.0], [0.2]), 2)
    assert rule.epsilon == pytest.approx(3.0 + math.log(1e6) / 7)
    with pytest.raises(dm.BudgetExceeded, match="cannot hold one run"):
        rule.spend(dm.Curve([8.0], [1.1]))


def test_a_stack_counts_in_one_go():
    stack = StackedOdometer(DELTA, order=8.0, size=1.0, conversion=Conversion.TAIL)
    stack.spend(dm.Curve([8.0], [0.3]), 2**53)
    assert stack.epsilon == pytest.approx(2**53 / 3, rel=1e-9)


@pytest.mark.parametrize(
    "new_rule",
    [
        lambda: FixedOrderFilter(3.0, DELTA, order=8.0),
        lambda: LecuyerOdometer(DELTA),
        lambda: RdpComposition(delta=DELTA),
    ],
)
def test_a_cost_that_may_fail_has_no_curve(new_rule):
    rule = new_rule()
    if rule.admits(dm.ApproxDp(0.01, 0.9)):
        rule.spend(dm.ApproxDp(0.01, 0.9))
        assert rule.epsilon == math.inf


def test_conversions_by_their_formulas():
    a, rdp = np.array([8.0]), np.array([0.5])
    assert Conversion.TAIL.epsilon(a, rdp, DELTA)[0] == pytest.approx(0.5 + math.log(1e6) / 7)
    assert Conversion.TIGHT.epsilon(a, rdp, DELTA)[0] == pytest.approx(
        0.5 + math.log(7 / 8) - math.log(8 * DELTA) / 7
    )


def test_pld_takes_what_dp_accounting_has_a_distribution_for():
    rule = PldComposition(delta=DELTA, discretization=1e-3)
    assert rule.epsilon == 0
    rule.spend(dm.Gaussian(5.0), 2)
    rule.spend(dm.Laplace(10.0))
    rényi = RdpComposition(delta=DELTA)
    rényi.spend(dm.Gaussian(5.0), 2)
    rényi.spend(dm.Laplace(10.0))
    assert 0 < rule.epsilon < rényi.epsilon
    assert not rule.admits(dm.Zcdp(0.1))
    with pytest.raises(dm.BudgetExceeded, match="no privacy loss distribution"):
        rule.spend(dm.Zcdp(0.1))


def test_pld_takes_events_and_outcomes_but_nothing_without_noise():
    rule, pure = PldComposition(delta=DELTA), PldComposition(delta=DELTA)
    rule.spend(dm.Event(dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(10.0), 3)))
    pure.spend(dm.PureDp(0.1), 3)
    assert 0 < rule.epsilon <= pure.epsilon == pytest.approx(0.3, rel=1e-4)
    bare = dm.Event(dpa.ComposedDpEvent([dpa.GaussianDpEvent(5.0), dpa.NonPrivateDpEvent()]))
    assert not rule.admits(bare)


@pytest.mark.parametrize("bad", [0.0, 1.0, math.nan, -1.0])
def test_rules_check_their_delta(bad):
    with pytest.raises(ValueError, match=r"^delta must"):
        RdpComposition(delta=bad)
