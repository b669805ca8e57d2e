"""Shapes of weights: they sum to one, cover every order, and put mass where it pays."""

import numpy as np
import pytest

import dosimeter as dm
from dosimeter.accounting.weights import (
    DEFAULT_ORDERS,
    budget_orders,
    budget_weights,
    default_weights,
    plan_weights,
)
from dosimeter.rdp import Orders


def test_the_default_orders_are_54_and_whole_above_12():
    assert len(DEFAULT_ORDERS) == 54
    assert (DEFAULT_ORDERS[0], DEFAULT_ORDERS[-1]) == (1.25, 1024.0)
    assert all(order == int(order) for order in DEFAULT_ORDERS if order > 12)


@pytest.mark.parametrize("orders", [DEFAULT_ORDERS, Orders([7.0]), Orders([1.01, 60000.0])])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e4])
def test_weights_are_positive_and_sum_to_one(orders, epsilon):
    for weights in (default_weights(orders), budget_weights(orders, epsilon, 1e-6)):
        assert np.all(weights > 0)
        assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_the_default_hump_is_at_order_nine_on_a_log_scale():
    spacing = np.gradient(np.log(DEFAULT_ORDERS.beta))
    density = default_weights(DEFAULT_ORDERS) / spacing
    assert DEFAULT_ORDERS[int(np.argmax(density))] == pytest.approx(9.0)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 8.0])
def test_the_budget_hump_follows_the_budget(epsilon):
    spacing = np.gradient(np.log(DEFAULT_ORDERS.beta))
    density = budget_weights(DEFAULT_ORDERS, epsilon, 1e-6) / spacing
    peak = DEFAULT_ORDERS.beta[int(np.argmax(density))]
    assert peak == pytest.approx(1.5 * np.log(1e6) / epsilon, rel=0.15)


@pytest.mark.parametrize(("epsilon", "most"), [(0.01, 65536.0), (3.0, 1024.0), (200.0, 1024.0)])
def test_budget_orders_reach_as_far_as_the_budget_needs(epsilon, most):
    orders = budget_orders(epsilon, 1e-6)
    assert orders[-1] <= most
    assert set(DEFAULT_ORDERS) <= set(orders)
    if epsilon == 0.01:
        assert orders[-1] > 8000
    if epsilon == 200.0:
        assert orders[0] < 1.1


def test_a_tiny_budget_admits_what_a_fixed_order_would():
    """At epsilon = 0.01 the default orders alone would leave most of the budget unusable."""
    cost = dm.Gaussian(10_000.0)
    best = max(
        dm.Filter(0.01, 1e-6, orders=[order]).affordable(cost) for order in (2000.0, 3000.0, 4000.0)
    )
    assert dm.Filter(0.01, 1e-6).affordable(cost) > 0.8 * best


def test_a_plan_moves_the_weight_to_its_best_order():
    cost = dm.SampledGaussian(512 / 50000, 1.0)
    others = default_weights(DEFAULT_ORDERS)
    weights = plan_weights(DEFAULT_ORDERS, others, (cost, 98 * 20), 1e-6)
    assert DEFAULT_ORDERS[int(np.argmax(weights))] == 7.0
    assert weights.max() > 0.8
    assert np.all(weights > 0)


@pytest.mark.parametrize(
    "plan", [dm.Gaussian(1.0), (dm.Gaussian(1.0),), (1.0, 2), (dm.Gaussian(1.0), 1.5), "plan"]
)
def test_a_plan_must_be_a_cost_and_a_count(plan):
    with pytest.raises(TypeError, match=r"^plan"):
        dm.Filter(1.0, 1e-6, plan=plan)


def test_a_plan_must_be_finite_somewhere_and_not_go_with_weights():
    with pytest.raises(ValueError, match="plan must be finite"):
        dm.Filter(1.0, 1e-6, orders=[4.0], plan=(dm.Curve([2.0], [1.0]), 1))
    with pytest.raises(ValueError, match="plan must not be given together with weights"):
        dm.Filter(1.0, 1e-6, orders=[4.0], weights=[1.0], plan=(dm.Gaussian(1.0), 1))
