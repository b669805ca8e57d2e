"""Settings are drawn from the ranges and lists that were given, and wrong spaces are refused."""

import math

import pytest

from dosimeter.search import Integer, Uniform
from dosimeter.search.space import draw, require_space


def drawn(axis, count=2000):
    return [draw({"x": axis})["x"] for _ in range(count)]


def test_numbers_stay_within_their_range_and_fill_it():
    found = drawn(Uniform(-1, 3))
    assert all(isinstance(one, float) and -1 <= one <= 3 for one in found)
    assert min(found) < -0.8
    assert max(found) > 2.8
    assert {Integer(0, 3).draw() for _ in range(200)} == {0, 1, 2, 3}
    assert {Integer(1, 4, log=True).draw() for _ in range(400)} == {1, 2, 3, 4}


@pytest.mark.parametrize("axis", [Uniform(1e-4, 1, log=True), Integer(1, 10_000, log=True)])
def test_a_logarithmic_range_is_even_in_factors(axis):
    """A quarter of the draws in each factor of ten; one false alarm in a million."""
    found = drawn(axis, 4000)
    decades = [sum(axis.low * 10**k <= one < axis.low * 10 ** (k + 1) for one in found)
               for k in range(4)]  # fmt: skip
    assert all(abs(count - 1000) < 5 * math.sqrt(750) for count in decades)


def test_a_logarithmic_range_never_passes_its_ends():
    tight = Uniform(0.3, math.nextafter(0.3, 1), log=True)
    assert set(drawn(tight)) <= {tight.low, tight.high}


def test_a_list_gives_its_own_elements():
    relu, tanh = object(), object()
    assert {id(one) for one in drawn([relu, tanh], 100)} == {id(relu), id(tanh)}
    assert set(drawn(range(3), 100)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 1), (2, 1), (0, math.inf), (-math.inf, 0), (-1e308, 1e308), (0, math.nan)],
)
def test_a_range_that_holds_nothing_is_refused(low, high):
    with pytest.raises(ValueError, match=r"high must be|must not be NaN"):
        Uniform(low, high)


@pytest.mark.parametrize("kind", [Uniform, Integer])
def test_a_logarithmic_range_begins_above_zero(kind):
    with pytest.raises(ValueError, match="low must be above 0 on a logarithmic scale"):
        kind(0, 1, log=True)


def test_whole_numbers_must_be_whole():
    with pytest.raises(TypeError, match="low must be a whole number"):
        Integer(0.5, 2)
    with pytest.raises(TypeError, match="high must be a whole number"):
        Integer(0, True)
    with pytest.raises(ValueError, match="high must be finite and above low"):
        Integer(2, 2)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({}, "space must map names"),
        ([("rate", [1])], "space must map names"),
        (None, "space must map names"),
        ({1: [1]}, "names of type str"),
        ({"rate": []}, r"space\['rate'\] must be a Uniform, an Integer or a list"),
        ({"rate": "sgd"}, "or a list of choices"),
        ({"rate": {1, 2}}, "or a list of choices"),
        ({"rate": 0.1}, "or a list of choices"),
    ],
)
def test_a_space_that_cannot_be_drawn_from_is_refused(space, words):
    with pytest.raises(TypeError, match=words):
        require_space(space)
