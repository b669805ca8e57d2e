"""Gates at random against adversaries at work: nothing reaches more than its delta.

Whatever is reached is a lower bound on the truth, by code that shares nothing with the tables. A
failure prints the script that shows it; run it with PYTHONPATH=tests. A hundred of them are among
the quick tests; `python -m adversaries.search 10000` goes through more, and may be interrupted.
"""

import pytest

from adversaries import search
from dosimeter.accounting.priced import verify


def none_passes_delta(size, seeds, *, turns=24):
    """Judges the gates of some seeds; most of them must have been made."""
    made = 0
    for seed in seeds:
        verdict, found = search.judged(seed, size=size, turns=turns)
        if found is not None:
            made += 1
            assert found.ratio <= search.SLACK, f"{verdict}\n{found.script}"
    assert made >= len(seeds) // 2


def from_seeds(*first, slow=()):
    """Ten seeds from each of these on; from those that are slow, with the slow tests."""
    marked = [pytest.param(n, marks=pytest.mark.slow) for n in slow]
    return pytest.mark.parametrize("first", [*first, *marked])


@from_seeds(0, 10, 20, slow=(30, 40))
def test_no_player_reaches_more_than_v_at_random_prices(first):
    none_passes_delta("priced", range(first, first + 10))


@from_seeds(0, 10, 20, 30, 40, 50)
def test_no_adversary_passes_the_delta_of_a_random_gate(first):
    none_passes_delta("small", range(first, first + 10))


@from_seeds(0, slow=(10,))
def test_nor_of_one_that_was_not_confirmed_a_second_time(first, monkeypatch, tmp_path):
    """The builder must be right by itself, or the second computation is the only one."""
    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path))
    monkeypatch.setattr(verify, "most_quanta", lambda menu: menu.quanta)
    monkeypatch.setattr(verify, "reached", lambda ladder: 0.0)
    none_passes_delta("small", range(first, first + 10))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 50))
def test_nor_at_thousands_of_prices(first):
    none_passes_delta("priced", range(first, first + 50))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1600, 20))
def test_nor_of_hundreds_of_gates(first):
    none_passes_delta("small", range(first, first + 20), turns=60)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 4))
def test_nor_of_gates_with_long_menus(first):
    none_passes_delta("any", range(first, first + 4), turns=60)
