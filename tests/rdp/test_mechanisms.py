"""Closed forms against 50-digit oracles, dp-accounting, and hostile numbers."""

import pickle
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp as dp_accounting_rdp
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

import dosimeter as dm
import oracles
from dosimeter.accounting.weights import DEFAULT_ORDERS
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.loss import Direction
from strategies import HOSTILE, WRONG_TYPES, costs

ORDERS = [1.01, 1.25, 2.0, 3.5, 16.0, 128.0, 1024.0]
SIZES = [1e-9, 1e-4, 0.03, 0.7, 5.0, 60.0]


def assert_tight(curve, oracle, orders=ORDERS, tolerance=1e-9):
    for order, value in zip(orders, curve, strict=True):
        exact = oracle(order)
        assert mpf(float(value)) >= exact
        assert mpf(float(value)) <= exact * (1 + mpf(tolerance)) + mpf(5e-324)


@pytest.mark.parametrize("noise", [1e-100, 0.3, 1.0, 77.7, 1e100])
def test_gaussian(noise):
    with mp.workdps(50):
        assert_tight(dm.Gaussian(noise).rdp(ORDERS), lambda a: oracles.gaussian_rdp(noise, a))


@pytest.mark.parametrize("epsilon", SIZES)
def test_pure_dp_is_randomised_response(epsilon):
    with mp.workdps(80):
        curve = dm.PureDp(epsilon).rdp(ORDERS)
        assert_tight(curve, lambda a: oracles.randomised_response_rdp(epsilon, a))
        assert np.all(curve <= epsilon)


@pytest.mark.parametrize("scale", [0.2, 1.0, 20.0])
def test_laplace_by_quadrature(scale):
    orders = [1.25, 2.0, 3.5, 16.0]
    with mp.workdps(30):
        curve = dm.Laplace(scale).rdp(orders)
        assert_tight(curve, lambda a: oracles.laplace_rdp(scale, a), orders)


@pytest.mark.parametrize("epsilon", SIZES)
def test_laplace_by_its_closed_form(epsilon):
    scale = 1 / epsilon

    def exact(order):
        a, e = mpf(order), 1 / mpf(scale)
        moment = a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)
        return mp.log(moment / (2 * a - 1)) / (a - 1)

    with mp.workdps(80):
        assert_tight(dm.Laplace(scale).rdp(ORDERS), exact)


def test_dp_accounting_is_low_for_a_small_laplace_cost():
    """Why the closed form is written out here instead of being called there."""
    event = dp_accounting.LaplaceDpEvent(1e9)
    theirs = dp_accounting_rdp.RdpAccountant([2.0]).compose(event).rdp[0]
    assert theirs < dm.Laplace(1e9).rdp([2.0])[0] * (1 - 1e-7)


def test_laplace_costs_no_more_than_any_pure_mechanism():
    for scale in (0.1, 1.0, 30.0):
        pure = dm.PureDp(1 / scale).rdp(DEFAULT_ORDERS)
        assert np.all(dm.Laplace(scale).rdp(DEFAULT_ORDERS) <= pure * (1 + 1e-12))


def test_zcdp_is_linear_and_rounded_up():
    curve = dm.Zcdp(rho=0.1, xi=0.3).rdp([2.0, 7.0])
    assert np.all(curve >= [0.5, 1.0])
    assert np.allclose(curve, [0.5, 1.0], rtol=1e-12)
    assert dm.Zcdp(0.0).rdp([2.0])[0] == 0


def test_approx_dp_costs_the_pure_curve_and_carries_its_delta():
    cost = dm.ApproxDp(0.5, 1e-7)
    assert np.array_equal(cost.rdp(ORDERS), dm.PureDp(0.5).rdp(ORDERS))
    assert (cost.delta, cost.pure_epsilon) == (1e-7, 0.5)
    assert repr(cost) == "ApproxDp(epsilon=0.5, delta=1e-07)"
    assert cost != dm.PureDp(0.5)
    assert cost == dm.ApproxDp(0.5, 1e-7)
    assert hash(cost) == hash(dm.ApproxDp(0.5, 1e-7))


def test_a_delta_of_zero_is_none():
    pure, named = dm.PureDp(0.5), dm.ApproxDp(0.5, 0)
    for way in Direction:
        assert named.loss(way) == pure.loss(way)
        assert dm.ApproxDp(0.5, 1e-9).loss(way) is None
    # A gate without room for failures takes it, and a menu has a price for it.
    for cost in (named, dm.ApproxDp(0.5, -0.0), dm.ApproxZcdp(0.1, 0)):
        dm.Filter(3.0, 1e-6).spend(cost)
    assert dm.Filter(1.0, 1e-6, menu=[dm.ApproxDp(0.05, 0)]).quanta_left > 0


def test_approximate_zcdp_is_zcdp_but_for_its_delta():
    cost = dm.ApproxZcdp(0.02, 1e-7)
    assert np.array_equal(cost.rdp(ORDERS), dm.Zcdp(0.02).rdp(ORDERS))
    gate = dm.Filter(3.0, 1e-6, approx_delta=2.5e-7)
    assert gate.affordable(cost) == 2
    gate.spend(cost, 2)
    with pytest.raises(dm.BudgetExceeded, match="approx_delta"):
        gate.spend(cost)
    assert gate.total_delta >= 1.25e-6


@given(cost=costs)
def test_every_cost_is_a_frozen_hashable_value_with_a_rising_curve(cost):
    curve = cost.rdp(DEFAULT_ORDERS)
    assert isinstance(cost, Cost)
    assert cost == eval(repr(cost), vars(dm).copy())  # a repr that can be pasted back
    assert hash(cost) == hash(eval(repr(cost), vars(dm).copy()))
    assert np.all(np.diff(curve[np.isfinite(curve)]) >= 0)
    with pytest.raises(ValueError, match="WRITEABLE"):
        curve.flags.writeable = True
    assert cost.rdp(DEFAULT_ORDERS) is curve
    with pytest.raises(AttributeError):
        cost.noise_multiplier = 0.0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (dm.Gaussian, "noise_multiplier"),
        (lambda x: dm.SampledGaussian(0.5, x), "noise_multiplier"),
        (dm.Laplace, "scale"),
        (dm.PureDp, "epsilon"),
        (lambda x: dm.ApproxDp(x, 1e-6), "epsilon"),
        (lambda x: dm.SampledGaussian(x, 1.0), "sample_rate"),
        (lambda x: dm.ApproxDp(1.0, x), "delta"),
        (lambda x: dm.ApproxZcdp(1.0, x), "delta"),
        (lambda x: dm.ApproxZcdp(x, 1e-6), "rho"),
    ],
)
def test_hostile_numbers_are_refused_by_name(make, name):
    for value in HOSTILE:
        if value == 0 and name in ("delta", "rho"):
            continue
        with pytest.raises(ValueError, match=f"^{name} must"):
            make(value)
    for value in WRONG_TYPES:
        with pytest.raises(TypeError, match=f"^{name} must"):
            make(value)


@pytest.mark.parametrize("scale", [1.0, 2.0, 0.5, 10.0, 3.0, 0.1])
def test_laplace_is_as_pure_as_its_scale_says(scale):
    """Rounded up only where 1/scale is no float, so a budget of 1/scale admits it."""
    assert Fraction(dm.Laplace(scale).pure_epsilon) * Fraction(scale) >= 1
    assert dm.Laplace(scale).pure_epsilon <= np.nextafter(1 / scale, 2e9)
    if scale in (1.0, 2.0, 0.5):
        assert dm.Filter(1 / scale, 1e-6).admits(dm.Laplace(scale))


def test_numbers_that_are_not_floats_are_refused():
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        dm.PureDp(Fraction(1, 3))


def test_numbers_beyond_their_range_are_refused():
    with pytest.raises(ValueError, match=r"sample_rate must lie in \(0, 1\], got 1.5"):
        dm.SampledGaussian(1.5, 1.0)
    with pytest.raises(ValueError, match="delta must be at least 0 and below 1"):
        dm.ApproxDp(1.0, 1.0)
    with pytest.raises(ValueError, match="rho must be finite and >= 0"):
        dm.Zcdp(-1.0)
    with pytest.raises(ValueError, match="xi must not be NaN"):
        dm.Zcdp(1.0, float("nan"))
    with pytest.raises(ValueError, match="must fit in a float"):
        dm.Gaussian(10**400)


@pytest.mark.parametrize("make", [dm.Gaussian, dm.Laplace, dm.PureDp])
@pytest.mark.parametrize("value", [5e-324, 1e-308, 1e-160, 1e160, 1.7e308])
def test_denormal_and_huge_parameters_never_lower_a_cost_to_zero(make, value):
    curve = make(value).rdp(DEFAULT_ORDERS)
    assert np.all(curve > 0)
    assert not np.isnan(curve).any()


class TestOrders:
    def test_holds_the_grid_and_order_minus_one(self):
        orders = Orders([1.25, 2, 8])
        assert orders == (1.25, 2.0, 8.0)
        assert orders.beta.tolist() == [0.25, 1.0, 7.0]
        assert Orders(orders) is orders
        assert hash(orders) == hash(Orders([1.25, 2, 8]))
        with pytest.raises(ValueError, match="read-only"):
            orders.array[0] = 2.0
        again = pickle.loads(pickle.dumps(orders))
        assert again == orders
        assert not again.beta.flags.writeable

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ([], "at least one"),
            ([1.0, 2.0], "between 1.01 and 65536, got 1.0"),
            ([0.5], "between"),
            ([2.0, 2.0], "increase strictly, got 2.0 before 2.0"),
            ([4.0, 2.0], "increase strictly"),
            ([2.0, float("nan")], "not be NaN"),
            ([2.0, float("inf")], "between"),
            ([70000.0], "between"),
        ],
    )
    def test_refuses_other_grids(self, bad, message):
        with pytest.raises(ValueError, match=f"^orders must .*{message}"):
            Orders(bad)

    @pytest.mark.parametrize("bad", ["28", 2.0, None, ["2"], [True]])
    def test_refuses_other_types(self, bad):
        with pytest.raises(TypeError, match="orders must"):
            Orders(bad)


class TestCurve:
    def test_returns_known_orders_as_they_are(self):
        assert dm.Curve([2, 4], [0.1, 0.3]).rdp([2, 4]).tolist() == [0.1, 0.3]

    def test_first_value_below_infinity_beyond(self):
        assert dm.Curve([2, 4], [0.1, 0.3]).rdp([1.5, 4.5]).tolist() == [0.1, np.inf]

    def test_raises_values_that_fall(self):
        assert dm.Curve([2, 4], [0.5, 0.3]).rdp([2, 4]).tolist() == [0.5, 0.5]

    def test_infinity_reaches_back_to_the_last_finite_order(self):
        curve = dm.Curve([2, 4, 8], [0.1, 0.3, np.inf]).rdp([3, 4, 5, 8])
        assert curve[0] < 0.3
        assert curve[1:].tolist() == [0.3, np.inf, np.inf]

    @given(
        first=st.floats(1.1, 30.0),
        gap=st.floats(0.5, 30.0),
        share=st.floats(0.0, 1.0),
        cost=st.one_of(
            st.builds(dm.PureDp, st.floats(0.01, 5)), st.builds(dm.Laplace, st.floats(0.2, 50))
        ),
    )
    def test_interpolation_is_sound_and_better_than_the_next_order(self, first, gap, share, cost):
        """Convexity of (a - 1) D_a: van Erven and Harremoës 2014, Corollary 2."""
        known = [first, first + gap]
        curve = dm.Curve(known, cost.rdp(known).tolist())
        between = first + share * gap
        bound = curve.rdp([between])[0]
        assert bound >= cost.rdp([between])[0] * (1 - 1e-12)
        assert bound <= cost.rdp(known)[1] * (1 + 1e-12)

    @pytest.mark.parametrize(
        ("orders", "rdp", "message"),
        [
            ([2, 3], [0.1], "one value per order"),
            ([2, 3], [0.1, -0.2], "rdp must be >= 0"),
            ([2, 3], [0.1, float("nan")], "rdp must not be NaN"),
            ([3, 2], [0.1, 0.2], "orders must increase"),
        ],
    )
    def test_refuses_bad_curves(self, orders, rdp, message):
        with pytest.raises(ValueError, match=message):
            dm.Curve(orders, rdp)


class TestGuard:
    """Whatever a mechanism's own formula returns, NaN and negative costs never get out."""

    class Broken(Cost):
        def __init__(self, values):
            self.values = values

        def _curve(self, orders):
            return np.array(self.values)

    @pytest.mark.parametrize("values", [[np.nan, 1.0], [1.0, -1e-300], [1.0, np.nan], [1.0]])
    def test_refuses(self, values):
        with pytest.raises(ValueError, match=r"must (cost at least 0|give one cost per order)"):
            self.Broken(values).rdp([2, 3])

    def test_raises_what_falls(self):
        assert self.Broken([3.0, 1.0]).rdp([2, 3]).tolist() == [3.0, 3.0]
