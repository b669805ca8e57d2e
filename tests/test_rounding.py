"""No figure that people read is kinder than the number behind it."""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.accounting.guarantee import Guarantee
from dosimeter.rounding import at_least, at_most, exact, in_six_digits, not_negative, shortened

FINITE = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


def value(said):
    return Fraction(said.replace(",", ""))


@given(FINITE)
@example(1.7976931348623157e308)
@example(5e-324)
@example(0.1 + 0.2)
def test_up_is_never_below_and_down_never_above(number):
    up, down = value(at_most(number)), value(at_least(number))
    # A float that is the nearest one to a short decimal is said as that decimal.
    assert up >= number or float(up) == number
    assert down <= number or float(down) == number
    most = Fraction(11, 10) * Fraction(number) + (Fraction(1, 1000) if number >= 0.01 else 0)
    assert up <= most or float(up) == number


@given(FINITE)
def test_exact_names_the_number_and_no_other(number):
    assert float(exact(number)) == number


def test_what_is_no_number_is_no_bound():
    assert at_most(math.nan) == at_most(math.inf) == "∞"
    assert at_most(0.0) == at_least(0.0) == "0"
    assert at_most(1.0) == exact(1.0) == "1"


@given(st.floats(1e-6, 1e12))
@example(1.0)
@example(1.2345678901234567)
@example(12345.678901234567)
def test_a_reading_in_a_guarantee_is_shortened_upward_in_both_places(epsilon):
    reading = Guarantee(kind="odometer", epsilon=epsilon, delta=1.25e-06, menu=True)
    said = shortened(str(reading))
    first, second = re.search(r"\((\S+), 1\.25e-06\)-DP.*e\^(\S+) Q", said).groups()
    assert first == second
    assert float(first) >= epsilon
    assert len(first) <= max(8, len(f"{epsilon:.1f}"))
    up = at_most(epsilon).replace(",", "")
    assert said == str(reading).replace(repr(epsilon), up)


def test_the_limit_of_a_guarantee_stays_as_it_was_set():
    said = str(dm.Filter(3.00000049, 1e-6).guarantee())
    assert shortened(said) == said
    assert shortened("ex-post (much, 1)-DP") == "ex-post (much, 1)-DP"


@pytest.mark.parametrize("spent", [0.2579061, 1.00000001, 2.9999999])
def test_a_refusal_says_no_less_than_was_spent_and_the_very_limit(spent):
    refusal = dm.BudgetExceeded(
        cost=dm.Gaussian(20), count=1, spent=spent, limit=3.00000049, affordable=0, reason="no"
    )
    said = str(refusal).partition("(spent ")[2]
    assert float(said.split(",")[0]) >= spent
    assert "limit 3.00000049)" in said


def test_the_progress_line_says_no_less_than_was_spent():
    progress = pytest.importorskip("dosimeter.training.progress")
    history = pytest.importorskip("dosimeter.decisions.history")
    record = history.Epoch(
        epoch=1, steps=1, epsilon=1.2341, noise_multiplier=2.0, batch_size=8,
        loss=None, accuracy=None, signal=None, seconds=0.0,
    )  # fmt: skip
    assert "ε 1.235/3.00000049 " in progress.words(record, 3.00000049)


@given(st.floats(1e-300, 1e300), st.booleans())
def test_six_digits_are_on_the_safe_side(value, up):
    said = float(in_six_digits(value, up=up))
    assert abs(said - value) <= 1.1e-5 * value
    if abs(said - value) > 1e-12 * value:
        assert said > value if up else said < value
    assert len(in_six_digits(1e-5 + value % 1, up=up)) <= 12


def test_a_cost_is_said_in_few_digits_and_written_exactly():
    noisy = dm.Zcdp(rho=0.1 * 0.05 * (1 - 2**-50))
    assert str(noisy) == str(dm.Zcdp(rho=0.005)) == "Zcdp(rho=0.005, xi=0.0)"
    assert repr(noisy) != repr(dm.Zcdp(rho=0.005))
    third = dm.SampledGaussian(sample_rate=1 / 3, noise_multiplier=2 / 3)
    assert str(third) == "SampledGaussian(sample_rate=0.333334, noise_multiplier=0.666666)"
    assert str(dm.Together([dm.PureDp(1 / 3)])) == "Together(costs=(PureDp(epsilon=0.333334),))"
    assert str(dm.Gaussian(20)) == repr(dm.Gaussian(20))


def test_no_number_stays_none_where_a_value_is_kept_from_being_negative():
    """Python's max(0.0, nan) is 0.0: once a search was said to cost next to nothing for it."""
    assert math.isnan(not_negative(math.nan))
    assert not_negative(-1.0) == 0.0
    assert not_negative(2.5) == 2.5
    assert not_negative(math.inf) == math.inf


@pytest.mark.parametrize("nothing", [math.nan, -math.inf, -1.0])
def test_of_no_number_nothing_is_left(nothing):
    assert at_least(nothing) == "0"
