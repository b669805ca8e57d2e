"""Sums and products of a tally against exact fractions."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dosimeter.accounting.tally import Tally

numbers = st.floats(0, 1e300)
counts = st.integers(1, 2**53)


def tally(value):
    return Tally(np.array([value]), value, value, value)


@given(a=numbers, b=numbers)
def test_sums_are_rounded_up_and_exact_where_they_can_be(a, b):
    total = tally(a).plus(tally(b))
    exact = Fraction(a) + Fraction(b)
    for value in (total.rdp[0], total.pure_epsilon, total.delta, total.cut):
        assert Fraction(float(value)) >= exact
    if Fraction(a + b) == exact:
        assert total.pure_epsilon == a + b
    else:
        assert total.pure_epsilon <= math.nextafter(a + b, math.inf)


@given(a=st.floats(0, 1e280), count=counts)
def test_products_are_rounded_up_and_exact_where_they_can_be(a, count):
    product = tally(a).times(count)
    exact = Fraction(a) * count
    for value in (product.rdp[0], product.pure_epsilon, product.delta, product.cut):
        assert Fraction(float(value)) >= exact
    if Fraction(a * count) == exact:
        assert product.pure_epsilon == a * count


@given(a=numbers, count=counts)
def test_infinity_stays(a, count):
    assert tally(math.inf).plus(tally(a)) == (math.inf,) * 4
    assert tally(math.inf).times(count) == (math.inf,) * 4
