"""A search states no results beside a ledger that has forgotten what it spent."""

import json
import pathlib
import sys

import pytest

from dosimeter.ledger import Ledger
from search.commands import BEST, HALVING, LEDGER, OWN, config, journal, run, said

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def dying(monkeypatch):
    """A search that is killed when all is trained and scored, and nothing is written yet."""
    from dosimeter.search import tune

    def die(*_):
        raise KeyboardInterrupt

    def once(budget=OWN):
        config(HALVING.replace("9", "3"), budget=budget, training={"epochs": 3})
        with monkeypatch.context() as patch:
            patch.setattr(tune, "_write_winner", die)
            run("config.toml", code=130)

    return once


def set_back(name):
    for file in pathlib.Path().glob(f"{name}*"):
        file.unlink()


class TestForgetting:
    """Nothing is left to train: the results must not be stated beside a ledger without spends."""

    def test_a_shared_ledger(self, dying):
        for _ in range(2):
            with Ledger.open("sqlite:///budgets.db") as ledger:
                ledger.create("people", epsilon=8.0, delta=1e-5)
            if not pathlib.Path("run").exists():
                dying(LEDGER)
                assert journal("sqlite:///budgets.db", "people")[0] > 1
                set_back("budgets.db")
        assert "put back the ledger" in run("config.toml", "--resume", code=2).stderr
        assert not pathlib.Path("run/winner").exists()

    def test_its_own_ledger(self, dying):
        dying()
        set_back("run/budget.db")
        assert (
            "must be the ledger that the search began with"
            in run("config.toml", "--resume", code=2).stderr
        )
        with Ledger.open("sqlite:///run/budget.db") as ledger:
            ledger.create("search", epsilon=8.0, delta=1e-5)
        assert "put back the ledger" in run("config.toml", "--resume", code=2).stderr
        pathlib.Path("run/plan.json").unlink()
        assert "plan.json must be there" in run("config.toml", "--resume", code=2).stderr

    def test_before_a_new_trial_is_charged(self, monkeypatch):
        from dosimeter.search.halving import Halving

        asked, propose = [], Halving._asked

        def once(self):
            asked.append(1)
            if len(asked) > 1:
                raise KeyboardInterrupt
            return propose(self)

        config(HALVING.replace("9", "3"), training={"epochs": 3})
        with monkeypatch.context() as patch:
            patch.setattr(Halving, "_asked", once)
            run("config.toml", code=130)
        set_back("run/budget.db")
        with Ledger.open("sqlite:///run/budget.db") as ledger:
            ledger.create("search", epsilon=8.0, delta=1e-5)
        assert "put back the ledger" in run("config.toml", "--resume", code=2).stderr
        assert journal()[1] == []

    def test_while_it_worked(self, monkeypatch):
        from dosimeter.runs.purse import Noted
        from dosimeter.search.halving import Halving

        work = Halving.work

        def then_forgotten(self, *arguments):
            work(self, *arguments)
            monkeypatch.setattr(Noted, "holds", lambda self, position: False)

        monkeypatch.setattr(Halving, "work", then_forgotten)
        config(HALVING.replace("9", "3"), training={"epochs": 3})
        assert "put back the ledger" in run("config.toml", code=2).stderr
        assert not pathlib.Path("run/winner").exists()

    def test_and_with_its_ledger_it_is_finished(self, dying):
        dying()
        spent = journal()
        run("config.toml", "--resume")
        assert journal() == spent
        assert said()["epsilon"] == spent[0]

    def test_a_score_that_was_paid_for_is_read_with_the_noise_that_was_paid(self, monkeypatch):
        from dosimeter.search.halving import Halving

        def die(*_):
            raise KeyboardInterrupt

        config(HALVING.replace("9", "3"), training={"epochs": 3})
        with monkeypatch.context() as patch:
            patch.setattr(Halving, "_use_up", die)
            run("config.toml", code=130)
        spent = journal()
        plan = json.loads(pathlib.Path("run/plan.json").read_text())
        pathlib.Path("run/plan.json").write_text(json.dumps({**plan, "score_noise": 0.01}))
        done = run("config.toml", "--resume", code=2)
        assert "got scores of noise 0.01, where one of noise" in done.stderr
        assert journal() == spent


def test_a_unit_that_another_process_has_just_done_is_not_done_again(monkeypatch):
    """Its lock is free, and its score was written after the scores were read."""
    from dosimeter.search.halving import Halving

    stale, scores = [], Halving.scores

    def late(self):
        found = scores(self)
        if len(found) == 1 and not stale and sys._getframe(1).f_code.co_name == "_next":
            stale.append(found)
            return {}
        return found

    monkeypatch.setattr(Halving, "scores", late)
    config(HALVING.replace("9", "3"), training={"epochs": 3})
    run("config.toml")
    assert stale
    assert sum(e.cost is not None and "score" in e.purpose for e in journal()[1]) == 4


def test_a_selection_of_trials_that_no_profile_bounds_is_refused():
    """Noise so small that e^loss overflows was once said to cost 1e-10."""
    config(
        BEST,
        budget={"epsilon": 4.0, "menu": False},
        training={"epochs": 150, "batch_size": 97, "noise_multiplier": 0.2},
    )
    done = run("config.toml", code=2)
    assert "budget.epsilon must pay for a selection" in done.stderr
    assert "it fits from noise_multiplier" in done.stderr
