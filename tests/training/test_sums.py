"""How far rounding takes the sums of two neighbours apart when very many records are alike."""

import pytest
import torch

from dosimeter.training.grid import ARITHMETIC
from dosimeter.training.onepass import Book, entries
from dosimeter.training.onepass.entries import Lookup, Outer, Rows, Steps
from dosimeter.training.onepass.factors import Clipping

RECORDS = 65537


def one_pass(entry, clipping=Clipping.FLAT):
    def total(rows):
        parameter, book = torch.zeros(1, rows.shape[1]), Book(len(rows))
        book.add(parameter, entry(rows))
        return book.clipped_sums([parameter], 1.0, clipping=clipping)[0].flatten()

    return total


def steps(rows, number=2):
    parts = (rows / number).unsqueeze(1).expand(-1, number, -1)
    return Steps(parts, torch.ones(len(rows), number, 1))


ROADS = {
    "rows": one_pass(Rows),
    "outer": one_pass(lambda rows: Outer(rows, torch.ones(len(rows), 1))),
    "steps": one_pass(steps),
    "lookup": one_pass(
        lambda rows: Lookup(torch.zeros(len(rows), 1, dtype=torch.long), rows.unsqueeze(1), 1)
    ),
    "normalised": one_pass(Rows, Clipping.NORMALISED),
    "outer, normalised": one_pass(
        lambda rows: Outer(rows, torch.ones(len(rows), 1)), Clipping.NORMALISED
    ),
}


def farthest(total, records):
    """The most that an odd record adds to the bound, and to what it should be."""
    most, off = 0.0, 0.0
    for seed in range(6):  # three kinds of rows, and an odd record on either side
        torch.manual_seed(seed)
        direction = torch.rand(16) + 0.1
        rows = (direction / direction.norm()).expand(records, -1).clone()
        if seed % 3 == 1:
            rows *= 1 + 1e-3 * torch.rand(records, 1)
        if seed % 3 == 2:
            rows *= 0.3 + torch.rand(records, 1)
        rows[0] *= 5 if seed % 2 else -5
        # The first record is the odd one: without it all others move up by one.
        apart = total(rows) - total(rows[1:])
        most = max(most, float(apart.norm()) - 1)
        # Whoever chooses the odd record may choose it along the error.
        off = max(off, float((apart - total(rows[:1])).norm()))
    return most, off


SIZES = [
    *((road, RECORDS) for road in ROADS if road != "steps"),
    ("steps", RECORDS // 8),
    pytest.param("steps", RECORDS, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("road", "records"), SIZES)
@pytest.mark.parametrize(("held", "alone"), [(0, 0), (entries.HELD, 0), (entries.HELD, 17)])
def test_sums_of_neighbours(road, records, held, alone, monkeypatch):
    monkeypatch.setattr(entries, "HELD", held)  # large products are had one by one
    monkeypatch.setattr(entries, "ALONE", (alone, alone))  # and wide ones are added so
    most, off = farthest(ROADS[road], records)
    assert most <= ARITHMETIC / 4
    assert off <= 0.75 * ARITHMETIC


def test_sums_of_many_steps():
    """Steps that are alike round alike: a piece must not be longer for being of few records."""
    most, off = farthest(one_pass(lambda rows: steps(rows, 16)), 4097)
    assert most <= ARITHMETIC / 4
    assert off <= 0.4 * ARITHMETIC
