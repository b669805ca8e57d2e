"""best_of charges once what its trials cost, runs as many as its law says, and shows one."""

import gc
import math
import weakref

import numpy as np
import pytest
from scipy import stats

import dosimeter as dm
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import Kind, Ledger
from dosimeter.rdp.best_of import _SECOND, _distance
from dosimeter.search import best_of, selection

STEP, SCORE = dm.SampledGaussian(0.01, 2.0), dm.Gaussian(50.0)


@pytest.mark.parametrize(("mean", "eta"), [(16.0, 0.0), (4.0, 1.0), (8.0, -0.5)])
def test_as_many_trials_are_run_as_the_law_says(mean, eta):
    """Chi-squared over 2,000 searches; one false alarm in a million."""
    n, runs = 2000, []

    def trial(gate):
        runs[-1] += 1
        return 0.0, None

    class Free:
        epsilon = 0.0

        def spend(self, cost, count=1):
            assert isinstance(cost, dm.BestOf)

    for _ in range(n):
        runs.append(0)
        best_of(trial, Free(), cost=STEP, steps=1, mean=mean, eta=eta)
    gamma = math.exp(-_distance(mean, eta))
    # From the generating function: P(K = k) is proportional to C(k + eta - 1, k) (1 - gamma)^k.
    k = np.arange(1, 3000)
    log = (
        (np.vectorize(math.lgamma)(k + eta) - np.vectorize(math.lgamma)(k + 1))
        + k * math.log1p(-gamma)
    )  # fmt: skip
    law = np.exp(log - log.max())
    law /= law.sum()
    assert float((k * law).sum()) == pytest.approx(mean, rel=1e-3)
    kept = law * n >= 8
    seen = np.bincount(runs, minlength=3000)[1:3000][kept]
    want = law[kept] * n
    rest = n - want.sum()
    statistic = ((seen - want) ** 2 / want).sum() + (n - seen.sum() - rest) ** 2 / max(rest, 8)
    assert statistic < stats.chi2.isf(1e-6, kept.sum())


@pytest.mark.parametrize("score", [None, SCORE, dm.Gaussian(0.5)])
def test_the_charge_is_that_of_the_steps_and_the_score_together(score):
    """The same theorem over a curve of the trial's summed costs, made by another road."""
    steps, orders = 1872, tuple(_SECOND)
    trial = steps * STEP.rdp(orders)
    if score is not None:
        trial = trial + np.array(orders) / (2 * score.noise_multiplier**2)
    other = dm.BestOf(dm.Curve(orders, trial), 1, 16.0)
    ours = selection(STEP, steps, mean=16, score=score)
    assert np.all(ours.rdp(orders) >= other.rdp(orders) * (1 - 1e-9))
    assert ours.rdp(orders) == pytest.approx(other.rdp(orders), rel=0.02)


def test_it_is_charged_once_and_before_the_first_trial(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        budget = ledger.create("search", epsilon=3.0, delta=1e-6)

        def trial(gate):
            assert budget.epsilon > 0
            gate.spend(STEP, 1872)
            gate.spend(SCORE)
            return 0.0, None

        best_of(trial, budget, cost=STEP, steps=1872, score=SCORE, mean=3)
        entries = [entry for entry in budget.history() if entry.kind is not Kind.OPEN]
        assert [(entry.kind, entry.count) for entry in entries] == [(Kind.SPEND, 1)]
        assert entries[0].priced() == selection(STEP, 1872, mean=3, score=SCORE)


def test_a_search_that_does_not_fit_runs_no_trial():
    def trial(gate):
        raise AssertionError

    budget = dm.Filter(epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        best_of(trial, budget, cost=STEP, steps=1872, mean=16)
    assert budget.epsilon == 0


@pytest.mark.parametrize(
    "asked", [[(STEP, 11)], [(STEP, 10), (SCORE, 2)], [(dm.Gaussian(9.0), 1)], [(SCORE, 1)] * 2]
)
def test_a_trial_that_asks_for_more_than_was_charged_ends_the_search(asked):
    def trial(gate):
        for cost, count in asked:
            gate.spend(cost, count)
        return 0.0, None

    with pytest.raises(BudgetExceeded, match="was not charged for it"):
        best_of(trial, dm.Odometer(delta=1e-6), cost=STEP, steps=10, score=SCORE, mean=4)


def test_a_score_of_the_same_cost_as_a_step_is_one_more_of_them():
    def trial(gate):
        gate.spend(dm.Gaussian(50.0), 4)
        return 0.0, gate.admits(dm.Gaussian(50.0))

    same = dm.Gaussian(50.0)
    found = best_of(trial, dm.Odometer(1e-6), cost=same, steps=3, score=same, mean=2)
    assert found == (0.0, False)


class Model:
    """Something that can be watched."""


def test_losers_leave_no_trace(tmp_path, monkeypatch, capfd, caplog):
    """Neither on the disk, nor on the terminal, in logs or in memory; the best one stays."""
    monkeypatch.chdir(tmp_path)
    made, scores = [], []

    def trial(gate):
        model = Model()
        made.append(weakref.ref(model))
        scores.append(np.random.default_rng().normal())
        return scores[-1], model

    with caplog.at_level(0):
        while len(made) < 5:  # one trial is the likeliest outcome, and shows nothing
            made.clear()
            scores.clear()
            best, model = best_of(trial, dm.Odometer(1e-6), cost=STEP, steps=1, mean=30)
    gc.collect()
    alive = [ref() for ref in made if ref() is not None]
    assert alive == [model]
    assert best == max(scores)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_a_score_that_is_no_number_never_wins():
    turn = iter([math.nan, 1.0, math.nan, *[0.5] * 10_000])

    def trial(gate):
        value = next(turn)
        return value, value

    found = math.nan
    while found != 1.0:
        turn = iter([math.nan, 1.0, math.nan, *[0.5] * 10_000])
        score, found = best_of(trial, dm.Odometer(1e-6), cost=STEP, steps=1, mean=30)
        assert not math.isnan(score)
    assert score == 1.0
