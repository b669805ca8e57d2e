"""The counterexamples, exactly; and adversaries that break the curve rule but never ours."""

import math
import warnings

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
import oracles
from dosimeter.accounting.classic import Conversion, CurveFilter, FixedOrderFilter
from dosimeter.compare.adversaries import FiniteMechanism, Step, examples, menu_adversary, play

EPSILON, DELTA, ORDERS = examples.EPSILON, examples.DELTA, examples.ORDERS


def curve_rule(conversion=Conversion.TIGHT, epsilon=EPSILON, delta=DELTA, orders=ORDERS):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dm.UnsoundRuleWarning)
        return CurveFilter(epsilon, delta, orders=orders, conversion=conversion)


def ours():
    """All of delta in the mixture: nothing can be cut off mechanisms with two outcomes."""
    return dm.Filter(EPSILON, DELTA, orders=ORDERS, weights=[0.5, 0.5], cut=0)


class Anything:
    """A gate that admits everything."""

    epsilon = 0.0

    def admits(self, cost, count=1):
        return True

    def spend(self, cost, count=1):
        pass


def test_the_curve_rule_with_the_tight_conversion_is_broken():
    realised = play(examples.TIGHT_CONVERSION, curve_rule, EPSILON)
    assert realised.hockey_stick / DELTA == pytest.approx(1.997189371, abs=1e-8)


def test_no_order_keeps_its_budget_on_that_adversary():
    """The paper's Corollary says some order does: D_8 and D_32 are both over."""
    with mp.workdps(60):
        views = []
        first = examples.TIGHT_CONVERSION
        for output, (p, q) in enumerate(first.mechanism.worlds()):
            for p2, q2 in first.after(output).mechanism.worlds():
                views.append((p * p2, q * q2))
        for order, divergence, budget in ((8, 1.61180, 1.45695), (32, 2.75999, 2.69788)):
            exact = oracles.divergence(views, order)
            assert float(exact) == pytest.approx(divergence, abs=1e-5)
            a = mpf(order)
            limit = EPSILON + mp.log(DELTA * a) / (a - 1) - mp.log(1 - 1 / a)
            assert float(limit) == pytest.approx(budget, abs=1e-5)
            assert exact > limit


def test_the_curve_rule_with_the_papers_conversion_breaks_its_tail_bound():
    realised = play(examples.TAIL_CONVERSION, lambda: curve_rule(Conversion.TAIL), EPSILON)
    assert realised.tail / DELTA == pytest.approx(1.990540029, abs=1e-8)
    assert realised.hockey_stick / DELTA == pytest.approx(0.0003934, abs=1e-6)


def test_the_two_sided_equation_is_off_without_any_adaptivity():
    order = examples.TWO_SIDED_ORDER
    rdp = float(examples.TWO_SIDED.rdp([order])[0])
    assert rdp == pytest.approx(0.05, abs=1e-8)
    bound = rdp + math.log(1 / DELTA) / (order - 1)
    realised = play(Step(examples.TWO_SIDED), Anything, bound)
    assert realised.two_sided_tail / DELTA == pytest.approx(1.90478, abs=1e-5)
    assert realised.tail <= DELTA


@pytest.mark.parametrize("adversary", [examples.TIGHT_CONVERSION, examples.TAIL_CONVERSION])
def test_ours_stands_against_the_known_adversaries(adversary):
    for gate in (ours, lambda: dm.Filter(EPSILON, DELTA)):
        assert play(adversary, gate, EPSILON).hockey_stick <= DELTA


OFF_MENU = (0.005, 0.02, 0.06, 0.2)
FIRST = [
    *(FiniteMechanism((loss,), (p,)) for loss in (0.2, 0.6, 1.2, 2.0) for p in (1e-5, 1e-4, 1e-2)),
    FiniteMechanism((0.6, -0.5), (0.1, 0.2)),
    FiniteMechanism((1.5, 0.8, -0.4), (1e-5, 1e-3, 0.1)),
    FiniteMechanism((1.2, 0.9, 0.6, 0.3, -0.3), (1e-6, 1e-5, 1e-4, 1e-3, 0.1)),
]
"""Mechanisms that adversaries begin with; none of them is that of an example."""


@pytest.mark.parametrize(
    ("depth", "first", "off_menu"),
    [
        (0, [], examples.OFF_MENU),
        (1, FIRST, OFF_MENU),
        pytest.param(2, FIRST[::3], OFF_MENU, marks=pytest.mark.slow),
    ],
    ids=["one step", "two steps", "three steps"],
)
def test_no_adversary_beats_our_filter_and_the_best_comes_close(depth, first, off_menu):
    """So the test has teeth: the mixture leaves an adversary less than 1 percent."""
    tree, value = menu_adversary(ours, EPSILON, first, depth=depth, off_menu=off_menu)
    exact = play(tree, ours, EPSILON).hockey_stick
    assert exact == pytest.approx(value, rel=1e-6)
    assert 0.99 * DELTA <= exact <= DELTA


def test_the_best_adversary_of_two_steps_breaks_the_curve_rule():
    """She finds her way without the example."""
    tree, _ = menu_adversary(curve_rule, EPSILON, FIRST, depth=1, off_menu=OFF_MENU)
    assert play(tree, curve_rule, EPSILON).hockey_stick > 1.8 * DELTA


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "size"), [(1, 15), (2, 5), (3, 2)])
@pytest.mark.parametrize(
    ("epsilon", "delta", "orders"),
    [(3.0, 1e-6, (8.0, 32.0)), (6.0, 1e-5, (4.0, 32.0)), (1.0, 1e-6, (16.0, 64.0, 256.0))],
)
def test_nor_do_longer_ones_beat_others(depth, size, epsilon, delta, orders):
    weights = [1 / len(orders)] * len(orders)

    def gate():
        return dm.Filter(epsilon, delta, orders=orders, weights=weights)

    first = FIRST[:: len(FIRST) // size][:size]
    tree, _ = menu_adversary(gate, epsilon, first, depth=depth, off_menu=OFF_MENU)
    assert 0 < play(tree, gate, epsilon).hockey_stick <= delta


def test_a_refusal_ends_the_view():
    tree = Step(FiniteMechanism((10.0,), (0.5,)))
    realised = play(tree, lambda: FixedOrderFilter(1.0, DELTA, order=8.0), 1.0)
    assert realised.hockey_stick == 0.0
    assert play(tree, Anything, 1.0).hockey_stick > 0.49


class TestFiniteMechanism:
    @pytest.mark.parametrize(
        ("losses", "chances"),
        [
            ((0.59,), (4e-5,)),
            ((3.0, -1.0, 0.2), (1e-6, 0.1, 0.3)),
            ((1e-6,), (0.5,)),
            ((0.10778,), (0.9999999999999987,)),
        ],
    )
    def test_its_curve_is_exact_in_both_directions_and_never_low(self, losses, chances):
        mechanism = FiniteMechanism(losses, chances)
        orders = [1.5, 2.0, 8.0, 32.0, 200.0]
        with mp.workdps(80):
            pairs = mechanism.worlds()
            assert mp.almosteq(mp.fsum(p for p, _ in pairs), 1)
            assert mp.almosteq(mp.fsum(q for _, q in pairs), 1)
            for order, value in zip(orders, mechanism.rdp(orders), strict=True):
                back = [(q, p) for p, q in pairs]
                exact = max(oracles.divergence(pairs, order), oracles.divergence(back, order))
                assert float(value) >= float(exact)
                assert float(value) == pytest.approx(float(exact), rel=1e-9)

    def test_a_loss_of_zero_costs_nothing(self):
        assert FiniteMechanism((0.0,), (0.5,)).rdp([2.0, 8.0]) == pytest.approx([0.0, 0.0])

    def test_is_a_thresholded_laplace_count(self):
        """loss l, p <= 1/2: a Laplace count of scale 1/l against a threshold."""
        loss, p = 0.59, 0.01
        threshold = np.log(1 / (2 * p)) / loss
        above = 0.5 * np.exp(-loss * threshold), 0.5 * np.exp(-loss * (threshold + 1))
        assert above[0] == pytest.approx(p)
        assert above[1] == pytest.approx(p * np.exp(-loss))

    @pytest.mark.parametrize(
        ("losses", "chances"),
        [
            ((), ()),
            ((1.0,), (0.5, 0.1)),
            ((1.0,), (0.0,)),
            ((1.0, 1.0), (0.5, 0.5)),
            ((-1.0,), (0.9,)),
            ((800.0,), (0.1,)),
            ((math.inf,), (0.1,)),
        ],
    )
    def test_refuses_what_is_no_distribution(self, losses, chances):
        with pytest.raises(ValueError, match="must"):
            FiniteMechanism(losses, chances)
