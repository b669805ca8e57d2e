"""What a run can ask for is known before it begins, and a filter is priced for just that."""

import json

import pytest

import dosimeter as dm
from accounting.priced.test_tightness import DELTA, PUBLISHED, RUNS, SIGNAL, admitted, step
from dosimeter.decisions import (
    AdaptBatch,
    AdaptNoise,
    LowerNoise,
    Policy,
    StepSettings,
    StopEarly,
    costs_of,
    filter_for,
)
from dosimeter.decisions.menus import patiently, readings_due
from dosimeter.ledger import Ledger

FIRST = StepSettings(2.0, 40, 200)
READING = dm.Gaussian(20.0)


def noisy(*noises, batch=40):
    return tuple(dm.SampledGaussian(batch / 200, noise) for noise in noises)


class Open(Policy):
    """A policy of someone's own that says nothing of what it asks for."""

    def update(self, engine, reading):
        engine.noise_multiplier += reading.value


@pytest.mark.parametrize(
    ("policies", "costs"),
    [
        ([], noisy(2.0)),
        ([StopEarly(patience=1)], (*noisy(2.0), READING)),
        ([AdaptNoise(0.5, levels=2)], (*noisy(2.0, 2.5, 3.0), READING)),
        ([AdaptNoise(0.5, levels=1), StopEarly(target=1)], (*noisy(2.0, 2.5), READING)),
        ([LowerNoise(3.0, 0.5, 2.0)], (*noisy(3.0, 2.5, 2.0), READING)),
        ([AdaptBatch(10, minimum=20)],
         (*(cost for b in (40, 30, 20) for cost in noisy(2.0, batch=b)), READING)),
    ],
)  # fmt: skip
def test_all_costs_are_listed_the_first_step_first(policies, costs):
    assert costs_of(FIRST, policies, READING) == costs
    assert costs_of(FIRST, policies, None) == tuple(cost for cost in costs if cost != READING)


def test_policies_whose_costs_cannot_be_known_are_refused_by_name():
    with pytest.raises(ValueError, match=r"say beforehand .* got Open"):
        costs_of(FIRST, [Open(every=1)], READING)
    with pytest.raises(ValueError, match="all but one the steps alone, got 2"):
        costs_of(FIRST, [AdaptNoise(), AdaptBatch(10, minimum=10)], READING)


def test_a_filter_without_a_menu_is_as_good_as_before_and_says_why():
    said = []
    gate = filter_for(4.0, 1e-5, lambda: costs_of(FIRST, [Open(every=1)]), note=said.append)
    assert gate.menu is None
    assert gate.affordable(FIRST.cost) == dm.Filter(4.0, 1e-5).affordable(FIRST.cost)
    (line,) = said
    assert line.startswith("note: the budget has no menu and so lasts less long: policy must say")
    curve = dm.Curve((2.0, 4.0, 8.0), (0.1, 0.2, 0.4))
    assert filter_for(4.0, 1e-5, lambda: [curve], note=said.append).menu is None
    assert len(said) == 2


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (float("nan"), 1e-5), (1.0, 1.0)])
def test_a_budget_that_is_none_is_refused_and_not_taken_for_a_menu_that_cannot_be(epsilon, delta):
    with pytest.raises(ValueError, match="must"):
        filter_for(epsilon, delta, lambda: [FIRST.cost], note=pytest.fail)


def test_what_takes_long_is_said_and_what_does_not_is_not(monkeypatch):
    monkeypatch.setattr("dosimeter.decisions.menus._PATIENCE", 0.05)
    said = []
    with patiently(said.append):
        pass
    assert said == []
    with patiently(said.append):
        import time

        time.sleep(0.5)
    assert len(said) == 1


@pytest.mark.slow
@pytest.mark.skipif(not RUNS.exists(), reason="the published runs are not beside this checkout")
@pytest.mark.parametrize(("name", "pld"), PUBLISHED.items(), ids=PUBLISHED.keys())
def test_a_published_run_fits_near_its_pld_epsilon_on_the_menu_of_its_policy(name, pld, tmp_path):
    """Lécuyer's Section 5.2 from noise 2 to 1, a reading an epoch, as `dosimeter train` asks."""
    noises = json.loads(RUNS.read_text())[name]["sigma"]
    schedule = [spend for noise in noises for spend in ((step(round(noise, 1)), 98), (SIGNAL, 1))]
    menu = costs_of(StepSettings(2.0, 512, 50_000), [LowerNoise(2.0, 0.1, 1.0)], SIGNAL)
    assert admitted(filter_for(1.05 * pld, DELTA, lambda: menu, note=pytest.fail), schedule)
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        budget = ledger.create("images", 1.05 * pld, DELTA, menu=menu)
        for cost, count in schedule:
            budget.spend(cost, count)
        assert ledger.verify("images").ok


@pytest.mark.parametrize("gaps", [(), (1,), (3,), (2, 4), (2, 3), (4, 6, 9)])
def test_readings_that_are_due_are_counted_once_an_epoch(gaps):
    policies = [Open(every=gap) for gap in gaps]
    for epochs in (0, 1, 7, 40):
        due = [any(policy.due(epoch) for policy in policies) for epoch in range(1, epochs + 1)]
        assert readings_due(policies, epochs) == sum(due)
    assert readings_due(policies, 10**15) <= 10**15
