"""`dosimeter tune`: everything is charged, everything adds up, and it goes on after a kill."""

import json
import pathlib

import pytest

import dosimeter as dm
from configs import write_points
from dosimeter.ledger import Ledger
from dosimeter.report.search import page
from report.test_report import Structure
from search.commands import (
    BEST,
    HALVING,
    LEDGER,
    OWN,
    config,
    journal,
    killed,
    run,
    said,
    steps_of,
)

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which a search was run, once for all tests that only look."""
    found = tmp_path_factory.mktemp("searched")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        write_points(found / "points.csv")
        config(training={"epochs": 10})  # a rung that does not end with an epoch
        run("config.toml")
    return found


@pytest.fixture
def searched(here, place, monkeypatch):
    monkeypatch.chdir(place)
    return place


@pytest.mark.usefixtures("searched")
def test_costs_add_up_to_what_the_gate_holds():
    result, (epsilon, spends) = said(), journal()
    replayed = dm.Filter(epsilon=8.0, delta=1e-5)
    for entry in spends:
        replayed.spend(entry.priced(), entry.count)
    assert replayed.epsilon == epsilon == result["epsilon"] <= 8.0
    charged = sum(sum(trial["charged"].values()) for trial in result["trials"])
    assert charged == sum(entry.count for entry in spends)
    # 9 trials of 3 steps, 3 that go on to 10 and one to 30; a score after each rung of each.
    assert [rung["trials"] for rung in result["rungs"]] == [9, 3, 1]
    assert sorted(map(steps_of, result["trials"])) == [3] * 6 + [10] * 2 + [30]
    scores = [entry for entry in spends if "score" in entry.purpose]
    assert len(scores) == 13
    assert all(entry.priced() == dm.Gaussian(result["score_noise"]) for entry in scores)


def test_the_winner_is_a_run_whose_epsilon_is_that_of_the_search(searched):
    result = said()
    winner = max(result["trials"], key=lambda one: len(one["rungs"]))
    assert result["winner"]["trial"] == winner["trial"]
    about = json.loads((searched / "run/winner/run.json").read_text())
    assert about["epsilon"] == result["epsilon"]
    assert about["steps"] == 30
    model = dm.load_run("run/winner")
    assert model.predict([[90.0, 5.0, 50.0]]) in (["no"], ["yes"])
    text = (searched / "run/report.html").read_text()
    structure = Structure()
    structure.feed(text)
    assert structure.open == []
    assert text.count("<tr>") == 1 + 3 + 1 + 9


@pytest.mark.usefixtures("searched")
def test_better_scores_go_on():
    trials = said()["trials"]
    for rung, count in ((0, 3), (1, 1)):
        there = [t for t in trials if len(t["rungs"]) > rung]
        ranked = sorted(there, key=lambda t: (-t["rungs"][rung]["score"], t["trial"]))
        went = {t["trial"] for t in trials if len(t["rungs"]) > rung + 1}
        assert went == {t["trial"] for t in ranked[:count]}


@pytest.mark.slow
def test_settings_that_cost_differently_get_equal_shares():
    space = HALVING + "training.batch_size = [20, 40]\n"
    config(space)
    run("config.toml")
    whole = dm.Filter(epsilon=8.0, delta=1e-5)
    shares = {}
    for trial in said()["trials"]:
        if len(trial["rungs"]) == 1:
            batch = trial["settings"]["training.batch_size"]
            step = dm.SampledGaussian(batch / said()["records"], 4.0)
            shares[batch] = (steps_of(trial), steps_of(trial) / whole.affordable(step))
    if len(shares) == 2:  # two batch sizes were drawn, as nearly always
        assert shares[20][0] > shares[40][0]
        assert shares[20][1] == pytest.approx(shares[40][1], rel=0.4)


@pytest.mark.slow
def test_impossible_settings_are_skipped_at_no_cost():
    config(HALVING.replace("9", "3") + "training.batch_size = [40, 4000]\n")
    while True:
        run("config.toml")
        result = said()
        if result["skipped"]:
            break
        pathlib.Path("run").rename(f"run-{result['id']}")
    assert all(one["settings"]["training.batch_size"] == 4000 for one in result["skipped"])
    assert "training.batch_size must be at most" in result["skipped"][0]["reason"]
    assert {t["settings"]["training.batch_size"] for t in result["trials"]} == {40}
    assert len(result["trials"]) == 3
    assert "Skipped at no cost" in page(result)


def test_a_space_of_impossible_settings_ends_before_anything_is_spent():
    config(HALVING + "training.batch_size = [4000, 5000]\n")
    assert "settings that can be trained" in run("config.toml", code=2).stderr
    assert journal()[1] == []


def test_a_budget_that_is_too_small_is_told_before_anything_is_made():
    config(training={"noise_multiplier": 0.5})
    told = run("config.toml", code=2).stderr
    assert "budget.epsilon must pay for all trials together" in told
    assert told.count("\n") <= 2
    assert not pathlib.Path("run").exists()


def test_scores_that_would_be_noise_are_told_before_anything_is_made():
    config(budget={"epsilon": 0.05, "menu": False}, training={"noise_multiplier": None})
    told = run("config.toml", code=2).stderr
    assert "budget.epsilon must leave more signal than noise in 13 scores" in told
    assert "It takes epsilon " in told
    assert not pathlib.Path("run").exists()


@pytest.mark.slow
def test_a_ledgers_budget_that_others_use_up_ends_the_search_with_what_it_has(monkeypatch):
    from dosimeter.search.workshop import Workshop

    with Ledger.open("sqlite:///budgets.db") as ledger:
        budget = ledger.create("people", epsilon=8.0, delta=1e-5)
        count, score = [], Workshop.score

        def others(self, *arguments):
            count.append(1)
            found = score(self, *arguments)
            if len(count) == 10:
                budget.spend(dm.Gaussian(9.0), budget.affordable(dm.Gaussian(9.0)))
                budget.spend(dm.Gaussian(40.0), budget.affordable(dm.Gaussian(40.0)))
            return found

        monkeypatch.setattr(Workshop, "score", others)
        config(budget=LEDGER)
        run("config.toml")
        result = said()
        assert result["ended"] == "the budget refused more"
        assert len(result["winner"]["settings"]) == 1
        assert budget.epsilon <= 8.0


@pytest.mark.slow
@pytest.mark.parametrize("budget", [OWN, LEDGER])
def test_killed_and_resumed_it_pays_again_only_for_what_was_lost(budget):
    if budget is LEDGER:
        with Ledger.open("sqlite:///budgets.db") as ledger:
            ledger.create("people", epsilon=8.0, delta=1e-5)
    where = ("sqlite:///budgets.db", "people") if budget is LEDGER else ()
    config(budget=budget, model={"kind": "traps_of_mine:make"})
    # No trial takes 8 steps in one go but the last one, in its third epoch after 2 whole ones.
    killed(TRAP_STEP="8")
    before = journal(*where)[1]
    assert sum("score" in entry.purpose for entry in before) == 13  # the last one is ahead
    assert not pathlib.Path("run/search.json").exists()
    assert "output.folder must be new" in run("config.toml", code=2).stderr
    run("config.toml", "--resume")
    epsilon, after = journal(*where)
    assert after[: len(before)] == before  # nothing is forgotten
    result = said()
    assert result["epsilon"] == epsilon
    winner = next(t for t in result["trials"] if t["trial"] == result["winner"]["trial"])
    # 27 steps are kept; what was killed had begun 2 steps of its epoch, and paid for them.
    assert steps_of(winner) == 27 + 2
    assert len(after) - len(before) == 27 - (9 + 6)  # the steps that were left
    assert sum(sum(t["charged"].values()) for t in result["trials"]) == len(after)
    assert "nothing is left to resume" in run("config.toml", "--resume").stderr
    assert journal(*where)[1] == after


@pytest.mark.slow
def test_a_ledger_that_was_set_back_is_not_gone_on_with():
    config(model={"kind": "traps_of_mine:make"})
    killed(TRAP_STEP="8")
    pathlib.Path("run/budget.db").unlink()
    for rest in pathlib.Path("run").glob("budget.db-*"):
        rest.unlink()
    with Ledger.open("sqlite:///run/budget.db") as ledger:
        ledger.create("search", epsilon=8.0, delta=1e-5)
    assert "put back the ledger" in run("config.toml", "--resume", code=2).stderr
    assert journal()[1] == []


@pytest.mark.slow
def test_two_processes_do_the_same_search_together():
    config()
    run("config.toml", "--processes", "2")
    result, (epsilon, spends) = said(), journal()
    assert sorted(map(steps_of, result["trials"])) == [3] * 6 + [9] * 2 + [27]
    assert sum(sum(t["charged"].values()) for t in result["trials"]) == len(spends)
    assert result["epsilon"] == epsilon


def test_a_selection_charges_once_and_shows_its_winner_alone(capfd, monkeypatch):
    from dosimeter.rdp import BestOf

    monkeypatch.setattr(BestOf, "trials", lambda self: 5)
    config(BEST)
    run("config.toml")
    result, (epsilon, spends) = said(), journal()
    assert len(spends) == 1
    cost = spends[0].priced()
    assert isinstance(cost, dm.BestOf)
    assert (cost.mean, cost.steps) == (6.0, 27)
    assert result["epsilon"] == epsilon <= 8.0
    assert "trials" not in result
    assert set(result["winner"]) == {"settings", "score", "folder"}
    files = sorted(str(path.relative_to("run")) for path in pathlib.Path("run").rglob("*"))
    made = ["config.toml", "guarantee.txt", "history.json", "model.safetensors", "run.json"]
    rest = [".lock", "budget.db", "config.toml", "plan.json", "report.html", "search.json"]
    assert files == sorted([*rest, "winner", *(f"winner/{name}" for name in made)])
    times = {path.stat().st_mtime for path in pathlib.Path("run").rglob("*")}
    assert len(times) == 1
    history = json.loads(pathlib.Path("run/winner/history.json").read_text())
    assert {epoch["epsilon"] for epoch in history["epochs"]} == {epsilon}
    assert len(history["epochs"]) == 9
    assert capfd.readouterr().out == ""


def test_a_selection_without_a_noise_is_charged_by_its_profile(monkeypatch):
    from dosimeter.rdp import ApproxDp, BestOf

    monkeypatch.setattr(BestOf, "trials", lambda self: 1)
    config(BEST, training={"noise_multiplier": None})
    run("config.toml")
    result, (epsilon, spends) = said(), journal()
    assert [type(entry.priced()) for entry in spends] == [ApproxDp]
    assert spends[0].priced().epsilon <= epsilon == result["epsilon"] <= 8.0
    assert result["delta"] == 1e-5
    plan = json.loads(pathlib.Path("run/plan.json").read_text())
    assert plan["delta"] == spends[0].priced().delta < 1e-5
    assert "1e-05" in pathlib.Path("run/winner/guarantee.txt").read_text()


@pytest.mark.slow
def test_what_is_shown_of_a_selection_does_not_depend_on_how_many_ran(monkeypatch):
    """All but the winner itself is the same after one trial and after seven."""
    from dosimeter.rdp import BestOf

    shown = []
    for count in (1, 7):
        monkeypatch.setattr(BestOf, "trials", lambda self, count=count: count)
        config(BEST)
        output = run("config.toml").output
        result = said()
        for key in ("id", "winner", "epsilon"):
            result.pop(key)
        shown.append((sorted(result.items(), key=str), output.count("\n")))
        pathlib.Path("run").rename(f"run{count}")
    assert shown[0] == shown[1]


@pytest.mark.slow
def test_a_selection_that_is_resumed_pays_again_and_says_so(monkeypatch):
    from dosimeter.search.workshop import Workshop

    def failing(self, *arguments):
        raise KeyboardInterrupt

    config(BEST, budget={"epsilon": 40.0, "menu": False})
    with monkeypatch.context() as broken:
        broken.setattr(Workshop, "score", failing)
        assert "nothing of it can be gone on with" in run("config.toml", code=130).stderr
    assert "pays for another one" in run("config.toml", "--resume").stderr
    assert len(journal()[1]) == 2
