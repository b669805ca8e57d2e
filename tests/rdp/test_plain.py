# SPDX-License-Identifier: Apache-2.0
"""Costs as plain JSON: exact both ways, strict on the way back."""

from __future__ import annotations

import json
import math

import dp_accounting
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter.rdp import (
    ApproxDp,
    Cost,
    Curve,
    Event,
    Gaussian,
    Laplace,
    PureDp,
    SampledGaussian,
    Zcdp,
)
from dosimeter.rdp.plain import from_plain, to_plain

positive = st.floats(min_value=5e-324, max_value=1e308)
unit = st.floats(min_value=5e-324, max_value=1.0, exclude_max=True)
curves = st.lists(
    st.tuples(st.floats(1.01, 65536), st.floats(0, math.inf)),
    min_size=1,
    max_size=8,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: Curve(*zip(*sorted(pairs), strict=True)))
events = st.recursive(
    st.one_of(
        st.builds(dp_accounting.GaussianDpEvent, positive),
        st.builds(dp_accounting.LaplaceDpEvent, positive),
        st.builds(dp_accounting.ZCDpEvent, positive, positive),
        st.builds(
            dp_accounting.PoissonSampledDpEvent,
            unit,
            st.builds(dp_accounting.GaussianDpEvent, positive),
        ),
    ),
    lambda inner: st.one_of(
        st.builds(dp_accounting.SelfComposedDpEvent, inner, st.integers(1, 9)),
        st.builds(dp_accounting.ComposedDpEvent, st.lists(inner, max_size=3)),
    ),
    max_leaves=5,
)
costs = st.one_of(
    st.builds(Gaussian, positive),
    st.builds(Laplace, positive),
    st.builds(PureDp, positive),
    st.builds(ApproxDp, positive, unit),
    st.builds(SampledGaussian, unit, positive),
    st.builds(Zcdp, positive, positive),
    curves,
    st.builds(Event, events),
)


@given(cost=costs)
def test_round_trip_through_json_is_exact(cost: Cost) -> None:
    text = json.dumps(to_plain(cost), allow_nan=False)
    back = from_plain(json.loads(text))
    assert type(back) is type(cost)
    assert back == cost
    assert repr(back) == repr(cost)
    assert json.dumps(to_plain(back), allow_nan=False) == text


def test_events_with_lists_and_whole_numbers_come_back_as_they_were() -> None:
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.ComposedDpEvent(
            [dp_accounting.GaussianDpEvent(2), dp_accounting.LaplaceDpEvent(3)]
        ),
        7,
    )
    back = from_plain(to_plain(Event(event)))
    assert isinstance(back, Event)
    assert repr(back.event) == repr(event)
    huge = Event(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(1.5), 2**52))
    assert from_plain(json.loads(json.dumps(to_plain(huge)))) == huge


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"kind": "unknown"},
        {"kind": ["gaussian"]},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": 1.0, "more": 1},
        {"kind": "gaussian", "noise_multiplier": math.nan},
        {"kind": "gaussian", "noise_multiplier": -1.0},
        {"kind": "gaussian", "noise_multiplier": "1"},
        {"kind": "gaussian", "noise_multiplier": True},
        {"kind": "gaussian", "noise_multiplier": "inf"},
        {"kind": "curve", "orders": [2.0], "rdp": [math.nan]},
        {"kind": "curve", "orders": "2", "rdp": [0.0]},
        {"kind": "event", "event": None},
        {"kind": "event", "event": {"type": "os"}},
        {"kind": "event", "event": {"type": "DpEventNamedTuple"}},
        {"kind": "event", "event": {"type": "GaussianDpEvent"}},
        {"kind": "event", "event": {"type": "GaussianDpEvent", "noise_multiplier": math.nan}},
        {"kind": "event", "event": {"type": "GaussianDpEvent", "noise_multiplier": None}},
        [],
        None,
    ],
)
def test_whatever_to_plain_did_not_write_is_refused(plain: object) -> None:
    with pytest.raises((TypeError, ValueError), match="must"):
        from_plain(plain)  # type: ignore[arg-type]


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    event: dict[str, object] = {"type": "NoOpDpEvent"}
    for _ in range(100):
        event = {"type": "SelfComposedDpEvent", "event": event, "count": 1}
    with pytest.raises(ValueError, match="deep"):
        from_plain({"kind": "event", "event": event})


def test_a_class_of_ones_own_is_refused_with_a_way_out() -> None:
    class Mine(Gaussian):
        pass

    with pytest.raises(TypeError, match="Curve"):
        to_plain(Mine(1.0))
    with pytest.raises(TypeError, match="must"):
        to_plain("gaussian")  # type: ignore[arg-type]
