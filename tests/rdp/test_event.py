"""Any DpEvent is a cost: ours where we have the mechanism, dp-accounting's otherwise."""

import math
from fractions import Fraction

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import rdp as dpa_rdp

import dosimeter as dm
from dosimeter.accounting.weights import DEFAULT_ORDERS

GAUSSIAN = dpa.GaussianDpEvent(2.0)
SAMPLED = dpa.PoissonSampledDpEvent(0.01, GAUSSIAN)


@pytest.mark.parametrize(
    ("event", "same"),
    [
        (GAUSSIAN, dm.Gaussian(2.0)),
        (SAMPLED, dm.SampledGaussian(0.01, 2.0)),
        (dpa.LaplaceDpEvent(3.0), dm.Laplace(3.0)),
        (dpa.ZCDpEvent(0.1, 0.2), dm.Zcdp(0.1, 0.2)),
    ],
)
def test_known_leaves_cost_what_ours_cost(event, same):
    assert np.allclose(dm.Event(event).rdp(DEFAULT_ORDERS), same.rdp(DEFAULT_ORDERS), rtol=1e-14)
    assert dm.Event(event).pure_epsilon == pytest.approx(same.pure_epsilon)


def test_compositions_add_up():
    event = dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(SAMPLED, 100), GAUSSIAN])
    expected = 100 * dm.SampledGaussian(0.01, 2.0).rdp([2, 8]) + dm.Gaussian(2.0).rdp([2, 8])
    assert np.allclose(dm.Event(event).rdp([2, 8]), expected, rtol=1e-14)


@pytest.mark.parametrize(
    "event",
    [
        SAMPLED,
        dpa.ComposedDpEvent([GAUSSIAN, dpa.LaplaceDpEvent(5.0)]),
        dpa.dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 10.0, 1.0),
        dpa.PoissonSampledDpEvent(0.1, dpa.ComposedDpEvent([GAUSSIAN, GAUSSIAN])),
    ],
)
def test_is_never_below_dp_accounting_at_whole_orders(event):
    orders = [2.0, 3.0, 8.0, 32.0]
    theirs = dpa_rdp.RdpAccountant(orders).compose(event).rdp
    assert np.all(dm.Event(event).rdp(orders) >= theirs * (1 - 1e-12) - 1e-13)
    assert np.allclose(dm.Event(event).rdp(orders), theirs, rtol=1e-6, atol=1e-9)


def test_nothing_costs_nothing_and_no_privacy_costs_infinity():
    assert dm.Event(dpa.NoOpDpEvent()).rdp([2, 3]).tolist() == [0, 0]
    assert dm.Event(dpa.SelfComposedDpEvent(GAUSSIAN, 0)).rdp([2]).tolist() == [0]
    assert dm.Event(dpa.NonPrivateDpEvent()).rdp([2, 3]).tolist() == [math.inf, math.inf]
    assert dm.Event(dpa.GaussianDpEvent(0.0)).rdp([2]).tolist() == [math.inf]


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(math.nan),
        dpa.GaussianDpEvent(-1.0),
        dpa.PoissonSampledDpEvent(math.nan, GAUSSIAN),
        dpa.SelfComposedDpEvent(GAUSSIAN, -3),
        dpa.ComposedDpEvent([GAUSSIAN, dpa.LaplaceDpEvent(math.nan)]),
        dpa.PoissonSampledDpEvent(1.5, GAUSSIAN),
        dpa.PoissonSampledDpEvent(1.5, dpa.ComposedDpEvent([GAUSSIAN, GAUSSIAN])),
        dpa.SelfComposedDpEvent(dpa.SelfComposedDpEvent(GAUSSIAN, 2**40), 2**40),
        dpa.GaussianDpEvent(math.inf),
        dpa.dp_event.RepeatAndSelectDpEvent(GAUSSIAN, math.inf, 1.0),
        dpa.dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 0.5, 1.0),
    ],
)
def test_bad_numbers_inside_an_event_are_refused(event):
    with pytest.raises(ValueError, match="must"):
        dm.Event(event)


@pytest.mark.parametrize(
    "event",
    [
        dpa.UnsupportedDpEvent(),
        dpa.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN),
        dpa.SingleEpochTreeAggregationDpEvent(1.0, 8),
        dpa.RandomizedResponseDpEvent(0.5, 2),
    ],
)
def test_events_without_a_curve_are_refused_with_the_way_out(event):
    with pytest.raises(ValueError, match="Bound it yourself with Curve"):
        dm.Event(event)


@pytest.mark.parametrize("noise", [1, 1.0, np.float32(1.0)])
def test_a_sampled_composition_counts_every_part(noise):
    """dp-accounting 0.6 takes a whole-number noise for that of the whole composition."""
    event = dpa.PoissonSampledDpEvent(
        0.01, dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(noise), 100)
    )
    expected = dm.SampledGaussian(0.01, 0.1).rdp(DEFAULT_ORDERS)
    assert np.all(dm.Event(event).rdp(DEFAULT_ORDERS) >= expected)
    assert np.allclose(dm.Event(event).rdp(DEFAULT_ORDERS), expected, rtol=1e-9)
    mixed = dpa.PoissonSampledDpEvent(
        0.5, dpa.ComposedDpEvent([dpa.GaussianDpEvent(10), dpa.GaussianDpEvent(0.3)])
    )
    effective = (1 / 100 + 1 / 0.09) ** -0.5
    assert np.allclose(
        dm.Event(mixed).rdp([2, 8]), dm.SampledGaussian(0.5, effective).rdp([2, 8]), rtol=1e-9
    )


def test_sampling_nothing_costs_nothing_and_sampling_without_noise_everything():
    nothing = dpa.PoissonSampledDpEvent(0.1, dpa.ComposedDpEvent([]))
    assert dm.Event(nothing).rdp([2]).tolist() == [0]
    assert dm.Event(dpa.PoissonSampledDpEvent(0.0, GAUSSIAN)).rdp([2]).tolist() == [0]
    bare = dpa.PoissonSampledDpEvent(0.1, dpa.ComposedDpEvent([dpa.GaussianDpEvent(0.0)]))
    assert dm.Event(bare).rdp([2]).tolist() == [math.inf]
    assert dm.Event(dpa.LaplaceDpEvent(0)).rdp([2]).tolist() == [math.inf]


def test_repeat_and_select_takes_its_runs_from_our_curves():
    """With a Poisson number of tiny runs dp-accounting's own pricing fails or drops a term."""
    tiny = dpa.dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(1e9), 10.0, math.inf)
    assert np.all(np.isfinite(dm.Event(tiny).rdp([2, 8])))
    whole = dpa.dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(2), 10.0, 1.0)
    real = dpa.dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(2.0), 10.0, 1.0)
    assert dm.Event(whole) == dm.Event(real)


def test_pure_parts_add_up_and_are_never_low():
    parts = [dpa.LaplaceDpEvent(3.0 + 0.001 * i) for i in range(2000)]
    exact = sum(1 / Fraction(3.0 + 0.001 * i) for i in range(2000))
    assert dm.Event(dpa.ComposedDpEvent(parts)).pure_epsilon >= exact


def test_only_events_are_taken():
    with pytest.raises(TypeError, match="event must be a dp_accounting"):
        dm.Event(1.0)


def test_is_a_value_that_later_changes_to_a_list_do_not_touch():
    parts = [GAUSSIAN]
    cost = dm.Event(dpa.ComposedDpEvent(parts))
    same = dm.Event(dpa.ComposedDpEvent([GAUSSIAN]))
    parts.clear()
    assert cost == same
    assert hash(cost) == hash(same)
    assert cost.rdp([2])[0] > 0
    cost.event.events.append(dpa.GaussianDpEvent(0.01))
    assert cost == same
    assert np.array_equal(cost.rdp([3]), same.rdp([3]))


def test_counts_inside_a_sample_must_be_whole():
    for count in (0.0001, -1, 1.5):
        inner = dpa.SelfComposedDpEvent(GAUSSIAN, count)
        for event in (inner, dpa.PoissonSampledDpEvent(0.1, inner)):
            with pytest.raises((TypeError, ValueError), match="count must"):
                dm.Event(event)
