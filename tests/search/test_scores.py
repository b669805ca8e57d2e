"""What `dosimeter tune` says of its winner is true of the model that it publishes."""

import pathlib

import pytest
import torch

import dosimeter as dm
from dosimeter.ledger import Ledger
from search.commands import LEDGER, SHORT, config, killed, run, said

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(("score", "shown"), [(1.8516, "100.0 %"), (-0.3, "0.0 %")])
def test_no_share_past_none_or_all_is_shown(monkeypatch, score, shown):
    from dosimeter.search.workshop import Workshop

    monkeypatch.setattr(Workshop, "score", lambda *_: score)
    config(SHORT.replace("6", "3") + "training.momentum = [0.0, 0.5]\n")
    told = run("config.toml").output
    assert f"{shown} of the scored records right" in told
    assert said()["winner"]["score"] == score
    page = pathlib.Path("run/report.html").read_text()
    assert f'<p class="big">{shown}<' in page
    assert page.count(f"<td>{shown}</td>") == 4
    assert f"{100 * score:.1f}" not in page


def test_the_winner_is_scored_though_others_use_up_the_budget_in_its_last_rung(monkeypatch):
    from dosimeter.search import halving

    train = halving.trained
    with Ledger.open("sqlite:///budgets.db") as ledger:
        budget = ledger.create("people", epsilon=8.0, delta=1e-5)

        def raced(trial, target, path):
            if target == 27:
                train(trial, 12, path)
                for noise in (9.0, 40.0, 400.0):
                    rest = dm.Gaussian(noise)
                    budget.spend(rest, budget.affordable(rest))
            return train(trial, target, path)

        monkeypatch.setattr(halving, "trained", raced)
        config(budget=LEDGER)
        told = run("config.toml").output
        assert not budget.admits(dm.Gaussian(400.0))
    winner = said()["winner"]
    assert said()["ended"] == "the budget refused more"
    assert winner["scored_at"] == winner["steps"] == 12
    (about,) = [one for one in said()["trials"] if one["trial"] == winner["trial"]]
    assert len(about["rungs"]) == 3
    assert "not scored" not in told


def test_a_score_of_an_earlier_model_is_said_to_be_one(monkeypatch):
    """The last score is lost while it is read; nothing is left to pay for it again."""
    from dosimeter.search.workshop import Workshop

    score = Workshop.score
    with Ledger.open("sqlite:///budgets.db") as ledger:
        budget = ledger.create("people", epsilon=8.0, delta=1e-5)

        def interrupted(self, asked, network, gate):
            found = score(self, asked, network, gate)
            done = [entry for entry in budget.history(1000) if "score" in entry.purpose]
            if len(done) == 13:
                raise KeyboardInterrupt
            return found

        config(budget=LEDGER)
        with monkeypatch.context() as broken:
            broken.setattr(Workshop, "score", interrupted)
            run("config.toml", code=130)
        for noise in (9.0, 40.0, 400.0):
            budget.spend(dm.Gaussian(noise), budget.affordable(dm.Gaussian(noise)))
    told = run("config.toml", "--resume").output
    winner, words = said()["winner"], "cored after 9 steps; the published model has taken 27"
    assert (winner["scored_at"], winner["steps"]) == (9, 27)
    assert words in told
    assert words in pathlib.Path("run/report.html").read_text()


def test_what_is_scored_and_published_is_the_average_of_the_last_twelfth(monkeypatch):
    """An average that is followed beside the library's is that of the winner, and was scored."""
    from safetensors.torch import load_file

    from dosimeter.search.workshop import Workshop

    begin, score, averages, last = Workshop.begun, Workshop.score, [], {}

    def followed(self, asked, gate, steps=1):
        trial = begin(self, asked, gate, steps)
        weights = [p for p in trial.network.trained.parameters() if p.requires_grad]
        average, taken = [p.detach().clone() for p in weights], [0]

        def step():
            taken[0] += 1
            past = min(max(0.0, 1 - 12 / steps), (taken[0] - 1) / taken[0])
            for mean, value in zip(average, weights, strict=True):
                mean.lerp_(value.detach(), 1 - past)

        trial.trainer.engine.after_step(step)
        averages.append(average)
        return trial

    def scored(self, asked, network, gate):
        last["scored"] = [p.detach().clone() for p in network.trained.parameters()]
        return score(self, asked, network, gate)

    monkeypatch.setattr(Workshop, "begun", followed)
    monkeypatch.setattr(Workshop, "score", scored)
    one = SHORT.replace("trials = 6\nreduction = 3", "trials = 1")
    config(one + "training.momentum = [0.0]\n", training={"learning_rate": 2.0})
    run("config.toml")
    published = sorted(load_file("run/winner/model.safetensors").values(), key=lambda w: -w.ndim)
    (expected,) = [a for a in averages if torch.equal(a[0], last["scored"][0])]
    for mean, seen, kept in zip(expected, last["scored"], published, strict=True):
        assert torch.equal(mean, seen)
        assert torch.equal(mean, kept)


@pytest.mark.slow
def test_the_average_goes_on_with_the_checkpoint():
    config(model={"kind": "traps_of_mine:make"})
    killed(TRAP_STEP="8")
    (path,) = [
        one
        for one in pathlib.Path("run/trials").glob("*.pt")
        if torch.load(one, weights_only=True)["engine"]["steps"] == 15
    ]
    assert torch.load(path, weights_only=True)["average"]["steps"] == 15
    run("config.toml", "--resume")
    assert torch.load(path, weights_only=True)["average"]["steps"] == 27
