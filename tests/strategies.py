"""Hypothesis strategies shared by the suites."""

from __future__ import annotations

import math

from hypothesis import strategies as st

import dosimeter as dm

HOSTILE = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, -5e-324]
"""Numbers that no strictly positive, finite parameter may be."""

WRONG_TYPES = ["1", None, 1j, True, [1.0], b"1"]

noises = st.floats(0.3, 200.0)
rates = st.floats(1e-6, 1.0)
small = st.floats(1e-6, 5.0)

costs = st.one_of(
    st.builds(dm.Gaussian, noises),
    st.builds(dm.SampledGaussian, rates, noises),
    st.builds(dm.Laplace, st.floats(0.2, 1e3)),
    st.builds(dm.PureDp, small),
    st.builds(dm.Zcdp, st.floats(0, 2.0), st.floats(0, 0.5)),
    st.builds(
        lambda first, rise: dm.Curve([2, 4, 16, 64], [first, first + rise, first + 2 * rise, 9.0]),
        st.floats(0, 1.0),
        st.floats(0, 1.0),
    ),
)

spends = st.lists(st.tuples(costs, st.integers(1, 1000)), min_size=1, max_size=12)
