"""A trial of `dosimeter tune` that comes to nothing is lost alone; the others go on."""

import json
import pathlib

import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from search.commands import LEDGER, SHORT, config, journal, proposing, run, said, steps_of

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("key", "good", "bad", "changes"),
    [
        ("model.kind", "linear", "broken_of_mine:large", {}),
        (
            "training.learning_rate",
            0.5,
            1e38,
            {"training": {"learning_rate": 0.5}, "model": {"kind": "broken_of_mine:large"}},
        ),
    ],
    ids=["followed", "given-rate"],
)
def test_a_trial_that_explodes_is_lost_and_the_others_go_on(monkeypatch, key, good, bad, changes):
    proposing(monkeypatch, *({key: value} for value in (good, bad, good, good, bad, good)))
    config(SHORT + f"{key} = {json.dumps([good, bad])}\n", **changes)
    told = run("config.toml").output
    result = said()
    assert result["ended"] == "all rungs were done"
    lost = {one["trial"]: one["lost"] for one in result["trials"] if one["lost"]}
    assert sorted(lost) == [1, 4]
    assert all("finite after step" in why for why in lost.values())
    assert result["winner"]["settings"] == {key: good}
    assert sorted(len(one["rungs"]) for one in result["trials"]) == [0, 0, 1, 1, 2, 3]
    assert "lost: trial 1, because the parameters" in told
    text = pathlib.Path("run/report.html").read_text()
    assert "<h2>Lost</h2>" in text
    assert lost[4] in text


def test_where_the_last_trial_is_lost_the_next_best_stands_in(monkeypatch):
    from dosimeter.search import halving
    from dosimeter.search.workshop import Lost

    train, gone = halving.trained, []

    def losing(trial, steps, path):
        if steps == 27 and not gone:
            gone.append(path.stem)
            raise Lost("it was so")
        return train(trial, steps, path)

    monkeypatch.setattr(halving, "trained", losing)
    config()
    run("config.toml")
    trials = said()["trials"]
    assert [f"{one['trial']:04}" for one in trials if one["lost"]] == gone
    winner = said()["winner"]
    assert f"{winner['trial']:04}" not in gone
    second = {one["trial"]: one["rungs"][1]["score"] for one in trials if len(one["rungs"]) > 1}
    second.pop(int(gone[0]))
    assert winner["trial"] == max(second, key=lambda number: (second[number], -number))
    assert sorted(len(one["rungs"]) for one in trials) == [1] * 6 + [2, 2, 3]


def test_a_lost_trial_does_not_win_by_an_earlier_score(monkeypatch):
    """It was the best until it was lost, and nothing is left to pay for one that stands in."""
    from dosimeter.search import halving
    from dosimeter.search.workshop import Lost

    train = halving.trained
    with Ledger.open("sqlite:///budgets.db") as ledger:
        budget = ledger.create("people", epsilon=8.0, delta=1e-5)

        def losing(trial, steps, path):
            if steps < 27:
                return train(trial, steps, path)
            for noise in (9.0, 40.0, 400.0):
                rest = dm.Gaussian(noise)
                budget.spend(rest, budget.affordable(rest))
            raise Lost("it was so")

        monkeypatch.setattr(halving, "trained", losing)
        config(budget=LEDGER)
        run("config.toml")
    second = {one["trial"]: one for one in said()["trials"] if len(one["rungs"]) == 2}
    ranked = sorted(second, key=lambda number: (-second[number]["rungs"][1]["score"], number))
    assert [bool(second[number]["lost"]) for number in ranked] == [True, False, False]
    assert said()["winner"]["trial"] == ranked[1]
    assert said()["ended"] == "the budget refused more"


def test_trials_that_are_all_lost_end_the_search_with_their_reason():
    for method in (SHORT, SHORT.replace("reduction = 3", "method = 'best_of'")):
        config(method + "training.momentum = [0.0, 0.5]\n", model={"kind": "broken_of_mine:large"})
        told = run("config.toml", code=2).stderr
        assert "all lost, the last because the parameters were no longer finite" in told
        assert journal()[1]
        if method is SHORT:  # a selection would pay for another one
            assert "all lost" in run("config.toml", "--resume", code=2).stderr
        pathlib.Path("run").rename(f"run-{len(method)}")


def test_a_trial_whose_model_raises_is_lost_and_the_others_go_on(monkeypatch):
    kinds = ["linear", "broken_of_mine:full"]
    proposing(monkeypatch, *({"model.kind": kinds[trial % 2]} for trial in range(6)))
    config(SHORT + f"model.kind = {json.dumps(kinds)}\n")
    run("config.toml")
    result = said()
    assert result["ended"] == "all rungs were done"
    lost = {one["trial"]: one for one in result["trials"] if one["lost"]}
    assert sorted(lost) == [1, 3, 5]
    for one in lost.values():
        assert one["lost"] == "it raised RuntimeError: out of memory, say"
        assert steps_of(one) == 1  # it was charged before its data were touched
    assert result["winner"]["settings"] == {"model.kind": "linear"}
    assert sum(sum(one["charged"].values()) for one in result["trials"]) == len(journal()[1])


@pytest.mark.parametrize("place", ["steps", "scores"])
def test_what_the_ledger_raises_is_no_trials_fault(monkeypatch, place):
    """The search ends there, blames nobody and goes on when it is resumed."""
    from dosimeter.ledger import Budget, ConnectionLost

    spend, kind = Budget.spend, dm.Gaussian if place == "scores" else dm.SampledGaussian

    def away(self, cost, count=1, **options):
        if isinstance(cost, kind):
            raise ConnectionLost("the server went away", True)
        return spend(self, cost, count, **options)

    config(SHORT.replace("6", "3") + "training.momentum = [0.0, 0.5]\n")
    with monkeypatch.context() as broken:
        broken.setattr(Budget, "spend", away)
        assert "the server went away" in run("config.toml", code=6).stderr
    run("config.toml", "--resume")
    assert said()["ended"] == "all rungs were done"
    assert not any(one["lost"] for one in said()["trials"])
