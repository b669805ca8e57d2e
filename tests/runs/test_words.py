"""The guarantee in words says no less than what holds, and never rounds in our favour."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.report import words as report
from dosimeter.report.runs import read_run
from dosimeter.rounding import at_most
from dosimeter.runs.purse import Purse
from saved_runs import save_run


@given(st.floats(1e-6, 250))
def test_numbers_are_rounded_up(epsilon):
    purse = Purse(dm.Filter(epsilon, 1e-6), "filter", epsilon, 1e-6)
    factor = float(purse.in_words.split("at most ")[1].split(" ")[0].replace(",", ""))
    assert math.exp(epsilon) <= factor <= 1.02 * math.exp(epsilon)
    assert f"(e^{at_most(epsilon)})" in purse.in_words


@pytest.mark.parametrize("epsilon", [301.0, 1e4])
def test_a_huge_epsilon_is_still_said(epsilon):
    purse = Purse(dm.Filter(epsilon, 1e-6), "filter", epsilon, 1e-6)
    assert f"e^{epsilon:,g} times" in purse.in_words


def test_an_odometer_is_read_at_its_end():
    odometer = dm.Odometer(1e-6)
    odometer.spend(dm.Gaussian(5.0))
    purse = Purse(odometer, "odometer", None, 1e-6)
    assert f"(e^{at_most(odometer.epsilon)})" in purse.in_words
    assert "It holds over all outcomes with no larger reading (ex-post)." in purse.in_words


def test_neighbours_are_named_as_in_the_formal_guarantee_and_the_report(tmp_path):
    """Adding a record and removing one, in both directions: what the proofs are about."""
    gate = dm.Filter(4.0, 1e-5)
    assert "add/remove one record" in str(gate.guarantee())
    words = Purse(gate, "filter", 4.0, 1e-5).in_words
    reported = report.promised(read_run(save_run(tmp_path / "run")))
    for said in (words, reported):
        assert "had any one record been added or removed, and the other way round." in said


def test_nothing_is_promised_after_an_infinite_spend():
    odometer = dm.Odometer(1e-6)
    odometer.spend(dm.Curve([2.0], [math.inf]))
    assert Purse(odometer, "odometer", None, 1e-6).in_words.startswith("Nothing is guaranteed")
