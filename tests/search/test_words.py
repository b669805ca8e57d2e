"""What `dosimeter tune` tells a person: how exact, of which budget, of what, and how to go on."""

import pathlib
import re

import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from dosimeter.rounding import at_most
from search.commands import BEST, HALVING, LEDGER, SHORT, config, proposing, run, said

pytestmark = pytest.mark.usefixtures("here")


def test_what_a_person_is_told_says_how_exact_scores_are_and_what_was_there_before(monkeypatch):
    with Ledger.open("sqlite:///budgets.db") as ledger:
        ledger.create("people", epsilon=8.0, delta=1e-5).spend(dm.Gaussian(3.0))
        before = ledger["people"].epsilon
    proposing(monkeypatch, *({"training.batch_size": size} for size in (40, 4000, 4000, 40, 40)))
    space = SHORT.replace("6", "3") + "training.batch_size = [40, 4000]\n"
    config(space, budget=LEDGER, training={"epochs": 3})
    out = run("config.toml").stdout
    assert re.search(r"of the scored records right, ± [\d.]+ % of noise", out)
    assert (
        f"its budget stands at epsilon {at_most(said()['epsilon'])} of 8, {at_most(before)} before"
        in out
    )
    assert said()["epsilon_before"] == before
    assert len(said()["skipped"]) == 1
    assert (
        "skipped at no cost: 1 settings that cannot be trained, such as training.batch_size 4000"
        in out
    )


def test_the_winner_says_that_its_promise_is_that_of_the_whole_search():
    config(HALVING.replace("9", "3"), training={"epochs": 3})
    run("config.toml")
    page = " ".join(pathlib.Path("run/winner/guarantee.txt").read_text().split())
    assert "every step and every score of every trial" in page
    assert (
        f"{said()['records']} that were trained on and the {said()['scored_records']} that" in page
    )
    stated = page.split("The results are ")[1].split(". All")[0]
    names = re.findall(r"[\w.]+\.(?:safetensors|json|html|log)|trials", stated)
    assert len(names) == 8
    winner = {"model.safetensors", "history.json", "run.json"}
    for name in names:
        assert (pathlib.Path("run/winner" if name in winner else "run") / name).exists()


def test_a_choice_of_the_wrong_kind_is_named_before_anything_is_spent():
    config(HALVING.replace("[0.1, 0.5, 2.0]", '[0.1, "a"]'))
    assert (
        "search.space.training.learning_rate must be a number" in run("config.toml", code=2).stderr
    )
    assert not pathlib.Path("run").exists()


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_to_do_after_an_interruption(monkeypatch, when):
    from dosimeter.search import tune

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "parts" if when == "before" else "_best_of", die)
    config(BEST)
    told = run("config.toml", code=130).stderr
    if when == "before":
        assert "nothing was spent; begin again with: dosimeter tune config.toml" in told
    else:
        assert "nothing of it can be gone on with" in told
