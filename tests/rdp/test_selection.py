"""The best of a random number of trials, against every outcome of small ones and by drawing."""

import itertools
import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import rdp as dp_accounting_rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dosimeter as dm
from adversaries.pairs import Outputs, best, law
from dosimeter.accounting.classic import RdpComposition
from dosimeter.compare.adversaries import FiniteMechanism
from dosimeter.rdp.best_of import _distance
from dosimeter.rdp.loss import Direction
from rdp.contract import ORDERS, _renyi
from strategies import HOSTILE, WRONG_TYPES

DENSE = np.concatenate([np.linspace(1.1, 12, 60), np.geomspace(13, 600, 60)])


@st.composite
def trials(draw):
    """A mechanism with two to four outputs."""
    weights = draw(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=4))
    chances = np.array(weights) / sum(weights)
    losses = draw(st.lists(st.floats(-1.5, 1.5), min_size=len(weights), max_size=len(weights)))
    # The last output is what is left, and it must be left in both worlds.
    listed = chances[:-1] * 0.2
    return FiniteMechanism(tuple(losses[:-1]), tuple(float(x) for x in listed))


@settings(max_examples=30)
@given(
    trial=trials(),
    mean=st.floats(1.0, 1e4),
    eta=st.sampled_from([-0.7, -0.2, 0.0, 0.4, 1.0, 5.0]),
)
def test_no_score_of_any_small_mechanism_tells_more_than_is_charged(trial, mean, eta):
    charged = dm.BestOf(trial, 1, mean, eta).rdp(ORDERS)
    generating = law(mean, eta)
    rows = [(float(p), float(q)) for p, q in trial.worlds()]
    for ranked in itertools.permutations(rows):
        p, q = map(np.array, zip(*ranked, strict=True))
        seen = best(Outputs(p, q, p - q), generating)
        for way in Direction:
            assert np.all(charged >= _renyi(seen, way) * (1 - 1e-9) - 1e-12)


def test_the_bound_is_not_slack_by_more_than_it_must_be():
    """The pure bound is reached but for a twentieth, by outputs that are each unlikely."""
    trial, mean = dm.PureDp(1.0), 1e4
    less, more = 1 / (1 + math.e), 1 / (1 + 1 / math.e)
    p = np.array([more / 1000] * 1000 + [less])
    q = np.array([less / 1000] * 1000 + [more])
    seen = best(Outputs(p, q, p - q), law(mean, 1.0))
    reached = max(np.log(seen.p / seen.q).max(), np.log(seen.q / seen.p).max())
    assert 0.95 * 3 < reached <= dm.BestOf(trial, 1, mean, 1.0).pure_epsilon


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("mean", [2.0, 4.0, 32.0])
@pytest.mark.parametrize("trial", [dm.Gaussian(5.0), dm.SampledGaussian(0.01, 2.0)])
def test_it_is_the_published_formula(trial, mean, eta):
    """dp-accounting's reading of the same theorem, where both may choose among many orders."""
    event = dpa.dp_event.RepeatAndSelectDpEvent(
        dpa.SelfComposedDpEvent(trial.dp_event(), 20), mean, eta
    )
    theirs = dp_accounting_rdp.RdpAccountant(DENSE).compose(event).rdp
    ours = dm.BestOf(trial, 20, mean, eta).rdp(DENSE)
    assert np.all(ours <= theirs * (1 + 1e-6))
    near = DENSE < 300  # at the end of the grid theirs has no larger order to fall back on
    assert np.all(ours[near] >= theirs[near] * (1 - 2e-3))


def test_selection_costs_less_than_publishing_every_trial():
    step, steps = dm.SampledGaussian(0.01, 2.0), 1872  # epsilon 1.0 by an exact accountant
    for mean, expected in ((1, 1.08), (4, 1.63), (8, 1.76), (16, 1.87), (32, 1.98)):
        selected, every = RdpComposition(delta=1e-6), RdpComposition(delta=1e-6)
        selected.spend(dm.BestOf(step, steps, mean))
        every.spend(step, steps * mean)
        assert selected.epsilon == pytest.approx(expected, abs=0.01)
        assert selected.epsilon < every.epsilon or mean == 1


def test_one_trial_is_one_trial():
    one = dm.BestOf(dm.Gaussian(3.0), 5, 1.0, 0.7)
    assert np.allclose(one.rdp(ORDERS), dm.Gaussian(3.0).rdp(ORDERS) * 5, rtol=1e-12)
    assert {one.trials() for _ in range(100)} == {1}


@pytest.mark.parametrize(
    ("mean", "eta"), [(4.0, 0.0), (4.0, 1.0), (10.0, 0.5), (3.0, -0.5), (1.001, 2.0)]
)
def test_trials_are_drawn_from_the_law_that_is_charged(mean, eta):
    """Chi-squared over the values that 20,000 draws reach; one false alarm in a million."""
    n = 20_000
    cost = dm.BestOf(dm.Gaussian(1.0), 1, mean, eta)
    drawn = np.bincount([cost.trials() for _ in range(n)], minlength=3)
    assert drawn[0] == 0
    gamma = math.exp(-_distance(mean, eta))
    chance = [mean * gamma ** (1 + eta)]  # the derivative of the generating function at 0
    for k in range(1, 400):
        chance.append(chance[-1] * (1 - gamma) * (k + eta) / (k + 1))
    assert sum(chance) == pytest.approx(1.0, abs=0.02)
    kept = [k for k, p in enumerate(chance, 1) if p * n >= 8]
    seen = np.array([drawn[k] if k < len(drawn) else 0 for k in kept], float)
    want = np.array([chance[k - 1] for k in kept]) * n
    rest, left = n - want.sum(), n - seen.sum()
    statistic = float(((seen - want) ** 2 / want).sum()) + (left - rest) ** 2 / max(rest, 8)
    assert statistic < stats.chi2.isf(1e-6, len(kept))


def test_drawn_selections_come_out_as_enumerated():
    """The whole mechanism, drawn: the best of K answers of a randomised response, 10,000 times."""
    n, generating = 10_000, law(6.0, 0.0)
    cost, rng = dm.BestOf(dm.PureDp(1.0), 1, 6.0), np.random.default_rng(5)
    for low in (1 / (1 + math.e), math.e / (1 + math.e)):
        kept = sum(all(rng.random() < low for _ in range(cost.trials())) for _ in range(n))
        expected = float(generating(low))
        # Six deviations: a false alarm in 500 million.
        assert abs(kept / n - expected) < 6 * math.sqrt(expected * (1 - expected) / n)


def test_bad_input_is_refused_by_name():
    trial = dm.Gaussian(2.0)
    for value in [*HOSTILE, 0.999]:
        with pytest.raises(ValueError, match=r"^mean must"):
            dm.BestOf(trial, 1, value)
    for value in (-1.0, -2.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"^eta must"):
            dm.BestOf(trial, 1, 4.0, value)
    for value in WRONG_TYPES:
        with pytest.raises(TypeError, match=r"^mean must"):
            dm.BestOf(trial, 1, value)
        with pytest.raises(TypeError, match=r"^steps must"):
            dm.BestOf(trial, 1.5, 4.0)
        with pytest.raises(TypeError, match=r"^cost must"):
            dm.BestOf(value, 1, 4.0)
    with pytest.raises(ValueError, match="within reach"):
        dm.BestOf(trial, 1, 1e300, -0.999)
    with pytest.raises(ValueError, match="no delta"):
        dm.BestOf(dm.ApproxDp(0.1, 1e-9), 1, 4.0)
    with pytest.raises(ValueError, match="neighbours"):
        dm.BestOf(dm.Gaussian(2.0, neighbours=dm.Neighbours.ADD_REMOVE_USER), 1, 4.0)


def test_no_bound_on_a_trial_is_no_bound_on_the_best():
    assert np.all(np.isinf(dm.BestOf(dm.Curve([2.0], [math.inf]), 1, 4.0).rdp([2.0, 8.0])))


@pytest.mark.parametrize("eta", [5e-324, -5e-324, 1e-310])
@pytest.mark.parametrize("mean", [1.2, 2.0])
def test_a_shape_next_to_nothing_is_none(eta, mean):
    """Products with it have no digits: the law that was drawn from did not sum to one."""
    search = dm.BestOf(dm.Gaussian(3.0), 1, mean, eta)
    assert search == dm.BestOf(dm.Gaussian(3.0), 1, mean, 0.0)
    assert all(1 <= search.trials() < 10_000 for _ in range(2000))
