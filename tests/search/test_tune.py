"""`dosimeter tune`: everything is charged, everything adds up, and it goes on after a kill."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import dosimeter as dm
from configs import write_config, write_points
from dosimeter.cli.app import app
from dosimeter.ledger import Kind, Ledger
from dosimeter.report.search import page
from report.test_report import Structure

torch.set_num_threads(1)

HALVING = "[search]\ntrials = 9\n[search.space]\ntraining.learning_rate = [0.1, 0.5, 2.0]\n"
LEDGER = {"kind": "ledger", "ledger": "sqlite:///budgets.db", "name": "people"}
OWN = {"epsilon": 8.0, "menu": False}

# A model that ends its process, like kill -9, in a chosen step of any one trial.
TRAP = """
import os, signal
from torch import nn

class Trap(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer, self.seen = nn.Linear(columns, classes), 0

    def forward(self, x):
        if self.training and len(x) > 5:  # the self-test runs five records and fewer
            self.seen += 1
            if self.seen == int(os.environ.get("TRAP_STEP", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)

def make(shape, classes):
    return Trap(shape[0], classes)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    write_points(tmp_path / "points.csv")
    (tmp_path / "traps_of_mine.py").write_text(TRAP)
    return tmp_path


def config(space=HALVING, budget=OWN, **changes):
    path = pathlib.Path("config.toml")
    if budget is LEDGER:
        budget = {**LEDGER, "epsilon": None, "delta": None}
    training = {"epochs": 9, "batch_size": 40, "noise_multiplier": 4.0}
    training |= changes.pop("training", {})
    write_config(path, budget=budget, training=training, **changes)
    path.write_text(path.read_text() + space)


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["tune", *arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def said():
    return json.loads(pathlib.Path("run/search.json").read_text())


def journal(url="sqlite:///run/budget.db", name="search"):
    """The spends of a budget, after its journal was replayed and fits."""
    with Ledger.open(url) as ledger:
        assert ledger.verify(name).ok
        entries = ledger[name].history(10_000)
        return ledger[name].epsilon, [entry for entry in entries if entry.kind is Kind.SPEND]


def steps_of(trial):
    return sum(n for cost, n in trial["charged"].items() if cost.startswith("SampledGaussian"))


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
def searched(place, monkeypatch):
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


def killed(**environment):
    """Runs the command until it is killed in the middle of a step."""
    source = str(pathlib.Path(dm.__file__).parents[1])
    path = os.pathsep.join([source, str(pathlib.Path.cwd()), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "from dosimeter.cli import main; main()", "tune"],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


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


BEST = HALVING.replace("trials = 9", "method = 'best_of'\ntrials = 6")


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
        assert "--resume" in run("config.toml", code=130).stderr
    assert "pays for another one" in run("config.toml", "--resume").stderr
    assert len(journal()[1]) == 2


# A model whose outputs are finite, while the squares of its weights are not, nor they themselves
# after a long step; and one that raises in its first step, though it passes the self-test.
BROKEN = """
import torch
from torch import nn

class Large(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer = nn.Linear(columns, classes)
        self.large = nn.Parameter(torch.full((64,), 3.4e38))

    def forward(self, x):
        return self.layer(x) + (1e-38 * self.large).mean()

class Full(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer = nn.Linear(columns, classes)

    def forward(self, x):
        if self.training and len(x) > 5:
            raise RuntimeError("out of memory, say")
        return self.layer(x)

def large(shape, classes):
    return Large(shape[0], classes)

def full(shape, classes):
    return Full(shape[0], classes)
"""
SHORT = "[search]\ntrials = 6\nreduction = 3\n[search.space]\n"


def proposing(monkeypatch, *settings):
    """Lets the trials of a halving have these settings, one after another."""
    from dosimeter.search.halving import Halving

    asked, propose = iter(settings), Halving._asked

    def enqueued(self):
        self.study.enqueue_trial(next(asked))
        return propose(self)

    monkeypatch.setattr(Halving, "_asked", enqueued)


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
def test_a_trial_that_explodes_is_lost_and_the_others_go_on(
    here, monkeypatch, key, good, bad, changes
):
    (here / "broken_of_mine.py").write_text(BROKEN)
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

    def losing(trainer, steps, path):
        if steps == 27 and not gone:
            gone.append(path.stem)
            raise Lost("it was so")
        return train(trainer, steps, path)

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


def test_trials_that_are_all_lost_end_the_search_with_their_reason(here):
    (here / "broken_of_mine.py").write_text(BROKEN)
    for method in (SHORT, SHORT.replace("reduction = 3", "method = 'best_of'")):
        config(method + "training.momentum = [0.0, 0.5]\n", model={"kind": "broken_of_mine:large"})
        told = run("config.toml", code=2).stderr
        assert "all lost, the last because the parameters were no longer finite" in told
        assert journal()[1]
        if method is SHORT:  # a selection would pay for another one
            assert "all lost" in run("config.toml", "--resume", code=2).stderr
        pathlib.Path("run").rename(f"run-{len(method)}")


def test_a_trial_whose_model_raises_is_lost_and_the_others_go_on(here, monkeypatch):
    (here / "broken_of_mine.py").write_text(BROKEN)
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


def test_the_winner_is_scored_though_others_use_up_the_budget_in_its_last_rung(monkeypatch):
    from dosimeter.search import halving

    train = halving.trained
    with Ledger.open("sqlite:///budgets.db") as ledger:
        budget = ledger.create("people", epsilon=8.0, delta=1e-5)

        def raced(trainer, target, path):
            if target == 27:
                train(trainer, 12, path)
                for noise in (9.0, 40.0, 400.0):
                    rest = dm.Gaussian(noise)
                    budget.spend(rest, budget.affordable(rest))
            return train(trainer, target, path)

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
