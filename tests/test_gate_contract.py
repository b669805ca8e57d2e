# SPDX-License-Identifier: Apache-2.0
"""The contract of every gate there is: ask, spend, read; a refusal changes nothing."""

from __future__ import annotations

import inspect
import math
import warnings

import pytest

import dosimeter as dm
from dosimeter.accounting import classic
from dosimeter.accounting.classic.rule import Rule
from dosimeter.ledger import Ledger
from dosimeter.training import PrivateEngine
from service.servers import running

GAUSSIAN = dm.Gaussian(10.0)
QUERY = dm.Laplace(50.0)
MENU = [GAUSSIAN, QUERY]
DELTA = 1e-6
REPLACED = dm.Neighbours.REPLACE_ONE_RECORD


def unsound(rule, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dm.UnsoundRuleWarning)
        return rule(*arguments, **options)


PLAIN = {
    "filter": lambda: dm.Filter(3.0, DELTA),
    "planned filter": lambda: dm.Filter(3.0, DELTA, plan=(QUERY, 100)),
    "filter with a menu": lambda: dm.Filter(3.0, DELTA, menu=MENU),
    "odometer": lambda: dm.Odometer(DELTA),
    "odometer with a menu": lambda: dm.Odometer(DELTA, menu=MENU),
    "planned odometer": lambda: dm.Odometer(DELTA, menu=MENU, plan=(GAUSSIAN, 100)),
    "engine": lambda: PrivateEngine(dm.Filter(3.0, DELTA)),
    "engine with a menu": lambda: PrivateEngine(dm.Filter(3.0, DELTA, menu=MENU)),
}
CLASSIC = {
    "FixedOrderFilter": lambda: classic.FixedOrderFilter(3.0, DELTA, order=8.0),
    "SingleOrderFilter": lambda: classic.SingleOrderFilter(3.0, DELTA, order=8.0),
    "CurveFilter": lambda: unsound(classic.CurveFilter, 3.0, DELTA, orders=[2.0, 8.0]),
    "LecuyerOdometer": lambda: classic.LecuyerOdometer(DELTA),
    "StackedOdometer": lambda: classic.StackedOdometer(DELTA, order=8.0, size=0.05),
    "RogersFilter": lambda: classic.RogersFilter(3.0, DELTA),
    "BasicComposition": lambda: classic.BasicComposition(3.0, delta=DELTA),
    "AdvancedComposition": lambda: classic.AdvancedComposition(delta=DELTA),
    "RdpComposition": lambda: classic.RdpComposition(delta=DELTA),
    "PldComposition": lambda: classic.PldComposition(delta=DELTA, discretization=0.05),
}
LEDGER = {
    "budget": lambda ledger: ledger.create("b", 3.0, DELTA),
    "budget with a menu": lambda ledger: ledger.create("b", 3.0, DELTA, menu=MENU),
    "odometer budget": lambda ledger: ledger.create_odometer("b", DELTA),
    "odometer budget with a menu": lambda ledger: ledger.create_odometer("b", DELTA, menu=MENU),
    "blocks": lambda ledger: (
        ledger.create_blocks("b", ["1", "2"], 3.0, DELTA) and ledger.blocks("b")
    ),
    "noted": lambda ledger: ledger.create("b", 3.0, DELTA).noted("a purpose"),
    "buffered": lambda ledger: ledger.create("b", 3.0, DELTA).buffered(7),
    "buffered with a menu": lambda ledger: ledger.create("b", 3.0, DELTA, menu=MENU).buffered(7),
}
REMOTE = {
    "budget of a service": lambda ledger, name: ledger.create(name, 3.0, DELTA),
    "buffered, of a service": lambda ledger, name: ledger.create(name, 3.0, DELTA).buffered(7),
}


def test_no_published_rule_is_forgotten():
    rules = {
        name
        for name in classic.__all__
        if inspect.isclass(made := getattr(classic, name))
        and issubclass(made, Rule)
        and not inspect.isabstract(made)
    }
    assert rules == set(CLASSIC)


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with running(f"sqlite:///{tmp_path_factory.mktemp('office')}/budgets.db") as service:
        with Ledger.open(service.address, token=service.token("owner:*")) as ledger:
            yield ledger


@pytest.fixture(params=[*PLAIN, *CLASSIC, *LEDGER, *REMOTE])
def gate(request, tmp_path):
    name = request.param
    if name in REMOTE:
        yield REMOTE[name](request.getfixturevalue("remote"), request.node.name)
    elif name in LEDGER:
        with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
            yield LEDGER[name](ledger)
    else:
        yield {**PLAIN, **CLASSIC}[name]()


def test_is_a_gate_that_starts_at_zero(gate):
    assert isinstance(gate, dm.Gate)
    assert gate.epsilon == 0


def test_asking_changes_nothing(gate):
    gate.spend(QUERY)
    before = gate.epsilon
    for _ in range(3):
        assert gate.admits(QUERY, 2)
    assert gate.epsilon == before


@pytest.mark.parametrize("relation", [REPLACED, dm.Neighbours.ADD_REMOVE_USER])
def test_a_cost_of_another_relation_is_refused_unchanged(gate, relation):
    gate.spend(QUERY)
    before = gate.epsilon
    for ask in (gate.admits, gate.spend):
        with pytest.raises(ValueError, match="cost must be for neighbours that add/remove one rec"):
            ask(dm.PureDp(0.001, neighbours=relation))
    assert gate.epsilon == before


def test_spending_raises_epsilon(gate):
    readings = [gate.epsilon]
    for _ in range(12):
        gate.spend(QUERY)
        readings.append(gate.epsilon)
    assert readings == sorted(readings)
    assert readings[-1] > 0


def test_spends_what_it_admits_and_refuses_the_rest_unchanged(gate):
    gate.spend(QUERY)
    before, kept = gate.epsilon, affordable(gate)
    huge = dm.PureDp(1000.0)
    if gate.admits(huge):
        gate.spend(huge)
        assert gate.epsilon > before
        return
    with pytest.raises(dm.BudgetExceeded) as refusal:
        gate.spend(huge)
    assert gate.epsilon == before
    assert affordable(gate) == kept
    assert refusal.value.spent == before
    assert refusal.value.affordable == 0
    gate.spend(QUERY)


def test_a_bundle_is_paid_whole_or_not_at_all(gate):
    gate.spend(QUERY)
    before, kept = gate.epsilon, affordable(gate)
    huge = dm.Together([QUERY, GAUSSIAN, dm.PureDp(1000.0), QUERY])
    if not gate.admits(huge):
        with pytest.raises(dm.BudgetExceeded) as refusal:
            gate.spend(huge)
        assert (refusal.value.cost, refusal.value.affordable) == (huge, 0)
        assert gate.epsilon == before
        assert affordable(gate) == kept
    second = GAUSSIAN if gate.admits(GAUSSIAN) else QUERY
    for _ in range(3):
        gate.spend(dm.Together([QUERY, second]), 2)
    assert gate.epsilon > before


def affordable(gate):
    return gate.affordable(QUERY) if hasattr(gate, "affordable") else None


def test_never_passes_its_limit(gate):
    limit = getattr(gate, "limit", math.inf)
    for cost in (GAUSSIAN, QUERY, GAUSSIAN):
        for count in (5000, 100, 10, 1):
            if gate.admits(cost, count):
                gate.spend(cost, count)
                assert gate.epsilon <= limit
            else:
                with pytest.raises(dm.BudgetExceeded):
                    gate.spend(cost, count)


@pytest.mark.parametrize("count", [0, -1, 2**53 + 1, 10**400])
def test_refuses_counts_out_of_range(gate, count):
    for ask in (gate.admits, gate.spend):
        with pytest.raises(ValueError, match=r"^count must be between 1 and"):
            ask(QUERY, count)
    assert gate.epsilon == 0


@pytest.mark.parametrize("count", [1.0, 1.5, 1e12, math.nan, "1", None, True])
def test_refuses_counts_of_another_type(gate, count):
    for ask in (gate.admits, gate.spend):
        with pytest.raises(TypeError, match=r"^count must be a whole number"):
            ask(QUERY, count)
    assert gate.epsilon == 0


@pytest.mark.parametrize("cost", [1.0, "gaussian", None, [QUERY], dm.Gaussian])
def test_refuses_what_is_no_cost(gate, cost):
    for ask in (gate.admits, gate.spend):
        with pytest.raises(TypeError, match="cost"):
            ask(cost)
    assert gate.epsilon == 0
