"""A plan fits its budget, all of it, or says what it would take."""

import re

import pytest

import dosimeter as dm
from configs import write_config
from dosimeter.ledger import Ledger
from dosimeter.search import approximate
from dosimeter.search.plan import Plan, Planner, rungs
from dosimeter.search.selection import selection
from dosimeter.search.table import read_search

SPACE = "[search]\n{}\n[search.space]\ntraining.learning_rate = [0.1, 1.0]\n"


@pytest.fixture
def search(tmp_path):
    def write(lines="trials = 9", **changes):
        path = tmp_path / "config.toml"
        training = {"epochs": 9, "noise_multiplier": None, **changes.pop("training", {})}
        write_config(path, training=training, **changes)
        path.write_text(path.read_text() + SPACE.format(lines))
        return read_search(path)

    return write


def test_rungs_shrink_to_one_and_grow_to_all_steps():
    assert rungs(27, 3, 270) == ([27, 9, 3, 1], [10, 30, 90, 270])
    assert rungs(16, 16, 320) == ([16, 1], [20, 320])
    assert rungs(1, 3, 5) == ([1], [5])
    assert rungs(10, 3, 90) == ([10, 3, 1], [10, 30, 90])
    with pytest.raises(ValueError, match="at least 27 steps for 27 trials in 4 rungs"):
        rungs(27, 3, 26)


def test_halving_with_warm_starts_costs_three_full_runs():
    plan = Plan("", 1.0, None, *rungs(27, 3, 2700))
    assert plan.total_steps == 3 * 2700


@pytest.mark.parametrize("menu", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_noise_that_is_found_pays_for_all_of_it_and_hardly_more(search, menu):
    """The whole plan is spent, step by step; a tenth more steps do not fit."""
    asked = search(budget={"menu": menu, "epsilon": 4.0})
    planner = Planner(asked, 100, None, pytest.fail, scored=100)
    plan, gate = planner.plan()
    assert plan.score is not None
    for _ in range(sum(plan.counts)):
        gate.spend(plan.score)
    for _ in range(plan.total_steps):
        gate.spend(planner.step(plan.noise))
    assert not gate.admits(planner.step(plan.noise), plan.total_steps // 10)


def test_scores_keep_to_their_share(search):
    plan, _ = Planner(
        search("trials = 9\nscore_share = 0.2", budget={"menu": False}),
        100,
        None,
        pytest.fail,
        scored=100,
    ).plan()
    whole = dm.Filter(epsilon=4.0, delta=1e-5)
    assert sum(plan.counts) / whole.affordable(plan.score) == pytest.approx(0.2, rel=0.15)
    assert sum(plan.counts) / whole.affordable(plan.score) <= 0.2


def test_a_selection_fits_once(search):
    """It is priced by its profile, which asks for less noise than its Rényi curve does."""
    asked = search("method = 'best_of'\ntrials = 8")
    planner = Planner(asked, 100, None, pytest.fail, scored=100)
    plan, gate = planner.plan()
    assert plan.delta is not None
    assert gate.total_delta == 1e-5  # as it was asked for, and no more
    chosen = selection(planner.step(plan.noise), plan.steps[0], mean=8, score=plan.score)
    assert not dm.Filter(4.0, 1e-5, plan=(chosen, 1)).admits(chosen)
    gate.spend(approximate(chosen, plan.delta))
    assert 3.9 < gate.epsilon <= 4.0
    assert not gate.admits(approximate(chosen, plan.delta))


def test_a_selection_of_given_noise_that_fits_by_its_curve_may_be_paid_again(search):
    asked = search("method = 'best_of'\ntrials = 8", training={"noise_multiplier": 8.0})
    plan, gate = Planner(asked, 100, None, pytest.fail, scored=100).plan()
    assert (plan.delta, gate.approx_delta) == (None, 0.0)


def test_a_budget_that_is_too_small_says_what_it_would_take(search):
    asked = search(budget={"epsilon": 0.5, "menu": False}, training={"noise_multiplier": 1.0})
    with pytest.raises(ValueError, match="must pay for all trials together") as told:
        Planner(asked, 100, None, pytest.fail, scored=1000).plan()
    noise, epsilon = map(
        float, re.findall(r"(?:multiplier|epsilon) ([\d.]+)", str(told.value))[-2:]
    )
    wider = search(budget={"epsilon": epsilon, "menu": False}, training={"noise_multiplier": 1.0})
    Planner(wider, 100, None, pytest.fail, scored=1000).plan()
    noisier = search(budget={"epsilon": 0.5, "menu": False}, training={"noise_multiplier": noise})
    Planner(noisier, 100, None, pytest.fail, scored=1000).plan()


def test_a_ledgers_budget_pays_from_what_is_left(search, tmp_path):
    url = f"sqlite:///{tmp_path}/budgets.db"
    named = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "people"}
    asked = search(budget=named, training={"noise_multiplier": 4.0})
    with Ledger.open(url) as ledger:
        budget = ledger.create("people", epsilon=8.0, delta=1e-5)
        planner = Planner(asked, 100, budget, pytest.fail, scored=100)
        planner.plan()
        budget.spend(planner.step(4.0), budget.affordable(planner.step(4.0)) - 5)
        with pytest.raises(ValueError, match=r"budget\.name must pay for all trials together"):
            planner.plan()


def test_a_batch_larger_than_the_data_is_told(search):
    with pytest.raises(ValueError, match=r"training\.batch_size must be at most the 30 records"):
        Planner(search(), 30, None, pytest.fail, scored=100)


def test_plans_are_kept_as_they_were(tmp_path):
    plan = Plan("ab", 1.25, 7.5, [3, 1], [2, 6])
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match="must be as the search wrote it"):
        Plan.read(tmp_path / "plan.json")


USELESS = [
    ("trials = 3", 0.05, 20, "scores on 20 records"),
    ("trials = 3", 0.0005, 100, "scores on 100 records"),
    ("public = true\ntrials = 3", 0.001, 100, "in 27 steps of 40 records"),
    ("method = 'best_of'\ntrials = 3\nscore_share = 0.9", 0.002, 10**6, "a selection, 27 steps"),
    ("method = 'best_of'\ntrials = 3", 0.05, 20, "1 scores on 20 records"),
]


@pytest.mark.parametrize(("lines", "epsilon", "scored", "words"), USELESS)
def test_a_budget_whose_search_would_be_noise_says_what_it_would_take(
    search, lines, epsilon, scored, words
):
    def plan(limit):
        data = {"public_share": 0.2} if "public" in lines else {}
        asked = search(lines, budget={"epsilon": limit, "menu": False}, data=data)
        return Planner(asked, 100, None, pytest.fail, scored=scored).plan()[0]

    with pytest.raises(ValueError, match=r"budget\.epsilon must .*" + words) as told:
        plan(epsilon)
    (enough,) = re.findall(r"(?:takes|from) epsilon ([\d.e-]+\d)", str(told.value))
    made = plan(float(enough))
    assert made.noise < 40 * 27**0.5
    assert made.score_noise is None or made.score_noise / scored <= 0.501
    assert float(enough) > 1.5 * epsilon
