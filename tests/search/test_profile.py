"""A search as one (epsilon, delta): never below what any score tells, and near the figures."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

import dosimeter as dm
from adversaries.pairs import Outputs, best, law
from dosimeter.accounting.priced.menu import Losses, hockey_stick, lattice_level
from dosimeter.accounting.priced.profiles import pair_of, total_of
from dosimeter.compare.adversaries import FiniteMechanism
from dosimeter.rdp.loss import Direction
from dosimeter.search import approximate, best_of
from dosimeter.search.profile import _profile
from dosimeter.search.selection import selection

STEP, STEPS = dm.SampledGaussian(0.01, 2.0), 1872
"""A trial of epsilon 1.00 at delta 1e-6 by an exact accountant."""


def told(seen, epsilon):
    """The larger of the two hockey sticks of what is published."""
    p, q = seen.p, seen.q
    return max(
        np.maximum(one - math.exp(epsilon) * other, 0).sum() for one, other in [(p, q), (q, p)]
    )


@st.composite
def mechanisms(draw):
    """Two to four outputs, some of them rare and telling."""
    losses = draw(st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=3))
    likelier = draw(st.lists(st.floats(1e-4, 0.1), min_size=len(losses), max_size=len(losses)))
    # In the world where an output is the likelier one: else all three could sum to more than 1.
    chances = [p * min(1.0, math.exp(loss)) for p, loss in zip(likelier, losses, strict=True)]
    return FiniteMechanism(tuple(losses), tuple(chances))


@settings(max_examples=25)
@given(
    trial=mechanisms(),
    steps=st.integers(1, 2),
    mean=st.floats(1.0, 1e3),
    eta=st.sampled_from([-0.7, -0.2, 0.0, 1.0, 4.0]),
    delta=st.sampled_from([1e-5, 1e-3, 0.05, 0.3]),
)
def test_no_score_of_any_small_mechanism_tells_more_than_delta(trial, steps, mean, eta, delta):
    """Every order of the outputs; outputs in halves, so that scores that tie are there, too."""
    epsilon = approximate(dm.BestOf(trial, steps, mean, eta), delta).epsilon
    generating = law(mean, eta)
    worlds = [(float(p), float(q)) for p, q in trial.worlds()]
    rows = [
        (math.prod(p for p, _ in drawn), math.prod(q for _, q in drawn))
        for drawn in itertools.combinations_with_replacement(worlds, steps)
    ]
    if steps == 2:  # a mixed pair comes in two orders
        rows = [
            (p * (2 - (a == b)), q * (2 - (a == b)))
            for (p, q), (a, b) in zip(
                rows, itertools.combinations_with_replacement(range(len(worlds)), 2), strict=True
            )
        ]
    orders = itertools.islice(itertools.permutations(rows), 24)
    by_loss = sorted(rows, key=lambda row: row[0] / row[1])
    for ranked in [by_loss, by_loss[::-1], *orders]:
        p, q = map(np.array, zip(*ranked, strict=True))
        assert told(best(Outputs(p, q, p - q), generating), epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    "search",
    [
        dm.BestOf(dm.Gaussian(0.2), 40, 16.0),
        dm.BestOf(dm.PureDp(10.0), 100, 16.0),
        dm.BestOf(dm.PureDp(1.694), 2000, 1000.0, 1.0),
        dm.BestOf(dm.Laplace(0.1), 100, 16.0),
        selection(dm.SampledGaussian(0.5, 1.0), 5000, mean=6.0, score=dm.Gaussian(3.8)),
        selection(dm.SampledGaussian(0.99, 0.2), 300, mean=2.0, score=dm.Gaussian(2.0)),
    ],
    ids=str,
)
def test_a_trial_beyond_what_doubles_tell_apart_is_refused(search):
    """Sums of e^loss were no number once, and no number was taken for an epsilon of 1e-10."""
    with pytest.raises(ValueError, match=r"^search must have trials whose epsilon is at most 500"):
        approximate(search, 1e-5)


def test_no_number_is_no_price(monkeypatch):
    from dosimeter.search import profile

    monkeypatch.setattr(profile, "_favour", lambda back, gamma: math.nan)
    with pytest.raises(ValueError, match=r"^search must have trials whose epsilon"):
        approximate(dm.BestOf(dm.Gaussian(5.0), 1, 16.0), 1e-6)


@pytest.mark.parametrize("mean", [1.0, 6.0, 1000.0])
def test_a_selection_of_dear_trials_costs_no_less_than_one(mean):
    """Run by run, up to where they are refused; one trial costs what its closed form says."""
    delta, last = 1e-6, 0.0
    for steps in range(1, 50):
        try:
            found = approximate(dm.BestOf(dm.Gaussian(0.2), steps, mean), delta).epsilon
        except ValueError:
            found = math.inf

        def stick(epsilon, mu=5 * steps**0.5):
            far, near = -mu / 2 - epsilon / mu, mu / 2 - epsilon / mu
            return norm.cdf(near) - math.exp(epsilon + norm.logcdf(far))

        alone = brentq(lambda epsilon: stick(epsilon) - delta, 0, 800)
        assert found >= max(alone, last) * (1 - 1e-9)
        assert found < math.inf or alone > 450
        last = found
    assert last == math.inf


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("mean", [2.0, pytest.param(16.0, marks=pytest.mark.slow), 200.0])
@pytest.mark.parametrize("noise", [0.7, 5.0])
def test_nor_does_a_gaussian_trial_scored_by_its_own_loss(noise, mean, eta):
    """Outputs in 1,500 intervals, which show less than outputs do; the best or the worst loss."""
    delta = 1e-6
    epsilon = approximate(dm.BestOf(dm.Gaussian(noise), 1, mean, eta), delta).epsilon
    cuts = np.linspace(-12, 12 + 1 / noise, 1_501)
    p, q = (np.diff(norm.cdf(cuts - shift)) for shift in (1 / noise, 0.0))
    alone = brentq(lambda e: np.maximum(p - math.exp(e) * q, 0).sum() - delta, 0, 100)
    for turn in (1, -1):
        seen = best(Outputs(p[::turn], q[::turn], p - q), law(mean, eta))
        assert told(seen, epsilon) <= delta
        # What is charged beyond the trial alone is not much more than what selection does.
        reached = brentq(lambda e, seen=seen: told(seen, e) - delta, 0, 100)
        assert 0.55 * epsilon <= reached <= epsilon
        assert reached >= 0.9 * alone


@pytest.mark.parametrize(
    ("eta", "figures"),
    [
        (0.0, {1: 1.00, 4: 1.28, 8: 1.40, 16: 1.51, 32: 1.61}),
        (1.0, {1: 1.00, 4: 1.33, 8: 1.48, 16: 1.64, 32: 1.79}),
    ],
)
def test_the_figures_of_a_training(eta, figures):
    for mean, most in figures.items():
        cost = approximate(dm.BestOf(STEP, STEPS, mean, eta), 1e-6)
        assert cost.delta == 1e-6
        assert most - 0.015 <= cost.epsilon <= most + 0.005


@pytest.mark.parametrize(("mean", "eta"), [(4.0, 0.0), (32.0, 0.0), (8.0, 1.0)])
def test_another_road_finds_the_same(mean, eta):
    """The checker's transform for the trial, and the most favoured place by a fine search."""
    delta, search = 1e-6, dm.BestOf(STEP, STEPS, mean, eta)
    trials = [total_of(pair_of(STEP, way), STEPS, 1 / 1200, 3.0, 1e-13) for way in Direction]
    generating = law(mean, eta)
    slope = (1 - float(generating(1 - 1e-7))) / 1e-7  # the derivative at 1 is the mean
    assert slope == pytest.approx(mean, rel=1e-3)
    epsilons, places = np.linspace(0, 2.5, 3000), np.geomspace(1e-6, 1, 1500)
    found = []
    for trial, back in (trials, trials[::-1]):
        profile = back.profile(epsilons)
        least = np.array([np.max(np.exp(-epsilons) * (a - profile)) for a in places])
        least = np.maximum(least, 0.0)
        # phi' is K's mean times (gamma / u)^{1 + eta}; read it off the generating function.
        density = [(generating(1 - x + 1e-9) - generating(1 - x - 1e-9)) / 2e-9 for x in (0.3, 0.6)]
        power = -(1 + eta)
        ratio = (density[0] / density[1]) ** (1 / power)
        gamma = (0.3 - 0.6 * ratio) / (0.3 - 0.6 * ratio - 1 + ratio)
        r = ((gamma + (1 - gamma) * places) / (gamma + (1 - gamma) * least)).max()
        alone = brentq(lambda e, t=trial: t.profile(np.array([e]))[0] - delta / mean, 0, 2.5)
        found.append(alone + (1 + eta) * math.log(r))
    assert approximate(search, delta).epsilon == pytest.approx(max(found), rel=3e-3)


def test_losses_beyond_the_lattice_count_as_infinite():
    loss = Losses(1.0, 1e-3, lattice_level(1.0)).of(dm.Gaussian(0.8), 1, Direction.REMOVE)
    epsilons = np.array([0.0, 0.7, 2.0, 2.9, 3.5, 50.0])
    assert loss.inf > 1e-3
    exact = [hockey_stick(loss, epsilon) for epsilon in epsilons]
    assert np.all(_profile(loss, epsilons) >= exact)
    assert _profile(loss, epsilons) == pytest.approx(exact, rel=1e-8)


def test_one_trial_is_one_trial_and_two_parts_are_their_sum():
    from dosimeter.compare.exact import ExactTotal

    one = approximate(dm.BestOf(dm.Gaussian(3.0), 5, 1.0, 0.7), 1e-5).epsilon
    alone = dm.Gaussian(3.0 / math.sqrt(5))
    exact = ExactTotal([(alone, 1)], 1e-5)
    exact.add(alone, 1)
    assert exact.epsilon * (1 - 1e-3) <= one <= 1.005 * exact.epsilon
    both = dm.Together([dm.Gaussian(5.0), dm.Gaussian(5.0)])
    assert approximate(dm.BestOf(both, 1, 8.0), 1e-5).epsilon == pytest.approx(
        approximate(dm.BestOf(dm.Gaussian(5.0), 2, 8.0), 1e-5).epsilon, rel=1e-3
    )


def test_a_pure_trial_is_charged_no_more_than_its_pure_bound():
    for mean in (1.0, 4.0, 1e5):
        search = dm.BestOf(dm.PureDp(0.5), 1, mean)
        assert approximate(search, 1e-9).epsilon <= search.pure_epsilon == pytest.approx(1.0)


def test_a_gate_pays_for_it_from_what_may_fail():
    def trial(gate):
        gate.spend(STEP, STEPS)
        return 0.5, None

    budget = dm.Filter(epsilon=1.52, delta=1e-8, approx_delta=9.9e-7)
    score, _ = best_of(
        trial,
        budget,
        cost=STEP,
        steps=STEPS,
        mean=16,
        delta=9.9e-7,
    )
    assert score == 0.5
    assert budget.epsilon <= 1.51
    assert not budget.admits(approximate(dm.BestOf(STEP, STEPS, 1.0), 9.9e-7))


def test_what_it_cannot_know_is_refused():
    trial = dm.Gaussian(3.0)
    with pytest.raises(TypeError, match=r"^search must be a dosimeter\.BestOf"):
        approximate(trial, 1e-6)
    for delta in (0.0, 1.0, math.nan, -1e-6):
        with pytest.raises(ValueError, match=r"^delta must"):
            approximate(dm.BestOf(trial, 1, 4.0), delta)
    with pytest.raises(ValueError, match="loss distribution is known"):
        approximate(dm.BestOf(dm.Curve([2.0, 3.0], [0.1, 0.2]), 1, 4.0), 1e-6)
    with pytest.raises(ValueError, match="must"):
        approximate(dm.BestOf(dm.Gaussian(0.01), 1, 4.0), 1e-6)
