"""The figures of docs/search.md, computed anew."""

import math
import pathlib
import re

import pytest
from dp_accounting.pld import PLDAccountant

import dosimeter as dm
from dosimeter.accounting.calibrate import least
from dosimeter.search import approximate, selection

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "search.md"
STEP, STEPS, DELTA = dm.SampledGaussian(0.01, 2.0), 1872, 1e-6


def row(name):
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name}")]
    return [float(cell) for cell in re.findall(r"(?<= )[\d.]+(?= \|)", line.split("|", 2)[2])]


def rounded_up(value):
    return math.ceil(100 * value - 1e-9) / 100


def exact(steps):
    accountant = PLDAccountant()
    accountant.compose(STEP.dp_event(), steps)
    return rounded_up(accountant.get_epsilon(DELTA))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "runs"),
    [("one run", 1), ("16 pilots", 1.8), ("halving 27", 3), ("16 full runs", 16)],
)
def test_searches_that_are_charged_step_by_step(name, runs):
    said = row(name)
    steps = int(runs * STEPS)
    plain = least(lambda epsilon: dm.Filter(epsilon, DELTA).admits(STEP, steps))
    assert (said[0], said[1], said[3]) == (runs, exact(steps), rounded_up(plain))


MEANS = (2, 3, 4, 8, 16, 32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "eta"), [("by its curve, `eta = 0`", 0.0), ("by its curve, `eta = 1`", 1.0)]
)
def test_selections(name, eta):
    def enough(epsilon, mean):
        cost = selection(STEP, STEPS, mean=mean, eta=eta)
        return dm.Filter(epsilon, DELTA, plan=(cost, 1)).admits(cost)

    found = [least(lambda e, k=k: enough(e, k)) for k in MEANS]
    assert row(name) == [rounded_up(value) for value in found]


@pytest.mark.parametrize(
    ("name", "eta"), [("by profiles, `eta = 0`", 0.0), ("by profiles, `eta = 1`", 1.0)]
)
def test_selections_by_profiles(name, eta):
    """Where the filter keeps a 128th of delta for all else."""
    kept, found = DELTA / 128, []
    for mean in MEANS:
        cost = approximate(selection(STEP, STEPS, mean=mean, eta=eta), DELTA - kept)
        terms = {"delta": kept, "approx_delta": DELTA - kept}
        found.append(least(lambda e, cost=cost, terms=terms: dm.Filter(e, **terms).admits(cost)))
    assert row(name) == [rounded_up(value) for value in found]


@pytest.mark.parametrize(
    ("eta", "at_most", "words"), [(0.0, (1, 5), "at most 5"), (1.0, (1, 11), "at most 11")]
)
def test_how_many_trials_there_are(eta, at_most, words):
    """Half of the searches have no more than the page says, by the law itself."""
    gamma = dm.BestOf(STEP, STEPS, 16, eta).gamma
    law = (
        (lambda k: (1 - gamma) ** k / (k * -math.log(gamma)))
        if eta == 0
        else (lambda k: gamma * (1 - gamma) ** (k - 1))
    )
    one, few = at_most
    text = " ".join(PAGE.read_text().split())
    assert f"{100 * law(one):.0f} %" in text
    assert words in text
    total = [sum(law(k) for k in range(1, most + 1)) for most in (few - 1, few)]
    assert total[0] < 0.5 <= total[1]
