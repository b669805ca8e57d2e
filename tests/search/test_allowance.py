"""A trial never passes its allowance, and gets it, whoever else spends from the budget."""

import multiprocessing
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger import Kind, Ledger
from dosimeter.search import Allowance
from dosimeter.search.allowance import Measure, Prepaid

STEP = dm.SampledGaussian(sample_rate=0.02, noise_multiplier=1.5)


def taken(gate, cost):
    """Spends one by one until it is refused; how often it was not."""
    count = 0
    while True:
        try:
            gate.spend(cost)
        except BudgetExceeded:
            return count
        count += 1


@pytest.mark.parametrize("trials", [1, 3, 16])
def test_trials_one_after_another_get_equal_parts_of_the_whole(trials):
    budget = dm.Filter(epsilon=2, delta=1e-6)
    whole = budget.affordable(STEP)
    got = [taken(Allowance(budget, 1 / trials), STEP) for _ in range(trials)]
    assert whole >= 5 * trials
    assert set(got) <= {whole // trials, whole // trials - 1}  # sums are rounded up, step by step


def test_an_allowance_charges_its_gate_and_hands_nothing_back():
    budget, beside = dm.Filter(epsilon=2, delta=1e-6), dm.Filter(epsilon=2, delta=1e-6)
    trial = Allowance(budget, 0.1)
    count = taken(trial, STEP)
    for _ in range(count):
        beside.spend(STEP)
    assert budget.epsilon == beside.epsilon == trial.epsilon
    del trial
    assert budget.epsilon == beside.epsilon


def test_a_refusal_changes_nothing_and_names_what_is_left():
    budget = dm.Filter(epsilon=2, delta=1e-6)
    trial = Allowance(budget, 0.1)
    most = trial.affordable(STEP)
    assert trial.admits(STEP, most)
    assert not trial.admits(STEP, most + 1)
    with pytest.raises(BudgetExceeded, match="allowance of this trial") as refused:
        trial.spend(STEP, most + 1)
    assert (refused.value.affordable, budget.epsilon) == (most, 0.0)
    trial.spend(STEP, most)
    assert trial.affordable(STEP) == 0


def test_what_others_left_of_the_gate_is_the_limit_too():
    budget = dm.Filter(epsilon=2, delta=1e-6)
    trial = Allowance(budget, 0.5)
    budget.spend(STEP, budget.affordable(STEP))
    assert not trial.admits(STEP)
    with pytest.raises(BudgetExceeded):
        trial.spend(STEP)


def test_one_run_that_is_dearer_than_the_budget_is_refused():
    assert not Allowance(dm.Filter(epsilon=0.1, delta=1e-6), 1).admits(dm.Gaussian(1.0))


costs = st.one_of(
    st.builds(dm.Gaussian, st.floats(5, 200)),
    st.builds(dm.SampledGaussian, st.floats(1e-3, 0.3), st.floats(0.7, 5)),
)


@given(st.lists(st.tuples(costs, st.integers(1, 40)), max_size=8))
@settings(max_examples=30, deadline=None)
def test_any_mixture_stays_within_the_share_and_the_gate(asked):
    budget = dm.Filter(epsilon=2, delta=1e-6)
    measure = Measure(budget)
    trial = Allowance(budget, 0.2, measure=measure)
    for cost, count in asked:
        if trial.admits(cost, count):
            trial.spend(cost, count)
        else:
            with pytest.raises(BudgetExceeded):
                trial.spend(cost, count)
    share = sum(count / measure.runs(cost) for cost, count in trial.spent.items())
    assert share <= 0.2 * (1 + 1e-12)
    assert budget.epsilon <= 2


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_share_is_a_part_of_the_whole(share):
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        Allowance(dm.Filter(epsilon=1, delta=1e-6), share)


def test_without_a_limit_there_are_no_shares():
    with pytest.raises(TypeError, match="a budget with a limit"):
        Allowance(dm.Odometer(delta=1e-6), 0.5)


def test_what_was_prepaid_is_all_there_is():
    gate = Prepaid({STEP: 3, dm.Gaussian(9.0): 1})
    gate.spend(STEP, 2)
    assert (gate.admits(STEP), gate.admits(STEP, 2)) == (True, False)
    assert taken(gate, STEP) == 1
    assert taken(gate, dm.Gaussian(9.0)) == 1
    assert not gate.admits(dm.Gaussian(10.0))


def race(url, share, ready, out):
    """One of several processes that take as much as they are let, as fast as they can."""
    with Ledger.open(url) as ledger:
        gate = ledger["search"] if share is None else Allowance(ledger["search"], share)
        ready.wait()
        out.put(taken(gate, STEP))


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_four_processes_that_race_for_a_ledgers_budget_get_equal_parts(tmp_path):
    """Without allowances they got 0, 70, 1 and 1 steps; with them all get theirs, to the step."""
    url = f"sqlite:///{tmp_path}/budgets.db"
    with Ledger.open(url) as ledger:
        whole = ledger.create("search", epsilon=0.9, delta=1e-6).affordable(STEP)
    context = multiprocessing.get_context("fork")
    ready, out = context.Barrier(4), context.Queue()
    racers = [context.Process(target=race, args=(url, 0.25, ready, out)) for _ in range(4)]
    for racer in racers:
        racer.start()
    got = [out.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    assert set(got) <= {whole // 4, whole // 4 - 1}
    with Ledger.open(url) as ledger:
        journal = ledger["search"].history(10_000)
        assert sum(entry.count for entry in journal if entry.kind is Kind.SPEND) == sum(got)
        assert ledger.verify("search").ok
