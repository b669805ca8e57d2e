"""The counterexamples, exactly; and a search that breaks the curve rule but never ours."""

import math
import warnings

import numpy as np
import pytest
from mpmath import mp, mpf

import dosimeter as dm
import oracles
from dosimeter.accounting.classic import Conversion, CurveFilter, FixedOrderFilter
from dosimeter.compare.adversaries import FiniteMechanism, Shape, Step, examples, play, strongest

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


SHAPES = [Shape(1, 2), Shape(2, 2), Shape(2, 3), pytest.param(Shape(3, 2), marks=pytest.mark.slow)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_adversary_found_beats_our_filter(shape):
    adversary, value = strongest(ours, EPSILON, shape, tries=40, restarts=1, seed=1)
    exact = play(adversary, ours, EPSILON).hockey_stick
    assert exact == pytest.approx(value, rel=1e-9)
    assert exact <= DELTA


def test_the_search_comes_close_to_our_delta():
    """So the test above has teeth: the mixture leaves an adversary less than 1 percent."""
    adversary, _ = strongest(ours, EPSILON, Shape(1, 2), tries=100, restarts=1)
    assert 0.99 * DELTA <= play(adversary, ours, EPSILON).hockey_stick <= DELTA


def test_the_search_breaks_the_curve_rule():
    adversary, _ = strongest(curve_rule, EPSILON, Shape(2, 2), tries=100)
    assert play(adversary, curve_rule, EPSILON).hockey_stick > 1.5 * DELTA


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [Shape(2, 2), Shape(2, 4), Shape(2, 8), Shape(3, 2), Shape(3, 3)], ids=str
)
@pytest.mark.parametrize(
    ("epsilon", "delta", "orders"),
    [(3.0, 1e-6, (8.0, 32.0)), (6.0, 1e-5, (4.0, 32.0)), (1.0, 1e-6, (16.0, 64.0, 256.0))],
)
def test_a_longer_search_finds_none_either(shape, epsilon, delta, orders):
    weights = [1 / len(orders)] * len(orders)

    def gate():
        return dm.Filter(epsilon, delta, orders=orders, weights=weights)

    adversary, _ = strongest(gate, epsilon, shape, tries=150, seed=7)
    assert play(adversary, gate, epsilon).hockey_stick <= delta


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_two_stages_come_close_too(seed):
    adversary, _ = strongest(ours, EPSILON, Shape(2, 2), tries=900, restarts=3, seed=seed)
    assert 0.99 * DELTA <= play(adversary, ours, EPSILON).hockey_stick <= DELTA


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
