"""What a run of `dosimeter train` leaves and prints."""

import json
import pathlib
import sys
import tomllib

import pytest
from safetensors.torch import load_file

import dosimeter as dm
from cli.train.commands import config, run, said
from dosimeter.training import History


def expected_promise(*, seeded):
    gate = dm.Filter(4.0, 1e-5, menu=[dm.SampledGaussian(40 / 120, 2.0)])
    return {**gate.guarantee().plain(), "seeded": seeded}


def test_a_run_leaves_weights_history_guarantee_and_its_config():
    config(data={"public_share": 0.2})
    done = run("config.toml")
    assert "epsilon" in done.stdout
    assert "right" in done.stdout
    folder = pathlib.Path("run")
    assert {file.name for file in folder.iterdir()} >= {
        "model.safetensors", "history.json", "guarantee.txt", "run.json", "config.toml",
        "checkpoint.pt",
    }  # fmt: skip
    assert not list(folder.glob("*.part"))
    assert folder.joinpath("config.toml").read_text() == pathlib.Path("config.toml").read_text()
    history = History.load(folder / "history.json")
    result = said()
    assert result["finished"] is True
    assert result["kind"] == "filter"
    assert result["promise"] == expected_promise(seeded=False)
    assert result["limit"] == 4.0
    assert result["seed"] is None
    assert result["epsilon"] == history.epsilon <= 4.0
    assert load_file(folder / "model.safetensors")["1.weight"].shape == (2, 3)
    step = dm.SampledGaussian(40 / result["records"], 2.0)
    expected = dm.Filter(4.0, 1e-5, menu=[step])
    expected.spend(step, history.steps)
    assert history.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_the_guarantee_is_said_in_words():
    config(data={"public_share": 0.2}, training={"seed": 3})
    warned = run("config.toml").stderr
    assert said()["promise"] == expected_promise(seeded=True)
    assert "warning: training.seed makes the noise predictable" in warned
    text = " ".join(pathlib.Path("run", "guarantee.txt").read_text().split())
    for words in (
        "(4.0, 1e-05)-DP, add/remove one record",
        "at most 54.6 (e^4) times the probability, plus 1e-05",
        f"A record is one row of the {said()['records']}",
        "The number of records",
        "always the same one of the two data sets compared that has the extra row (the same side)",
        "nor copied and resumed twice",
        f"The {120 - said()['records']} records that accuracy was measured on are public",
        "A SEED WAS GIVEN",
    ):
        assert words in text, words


def test_without_public_records_no_accuracy_is_shown():
    config()
    assert "right" not in run("config.toml").output
    assert said()["accuracy"] is None
    assert "accuracy was measured" not in pathlib.Path("run", "guarantee.txt").read_text()


def test_a_delta_that_promises_little_is_warned_of():
    config(budget={"delta": 0.01})
    assert "warning: delta 0.01 promises little to 120 records" in run("config.toml").stderr


def test_json_is_the_only_thing_on_standard_output():
    config()
    assert json.loads(run("config.toml", "--json").stdout) == said()


def test_a_report_is_written_if_the_report_can_be_imported(monkeypatch, tmp_path):
    written = []

    class Report:
        @staticmethod
        def write(folders, out):
            written.append((list(folders), out, said()["finished"]))

    monkeypatch.setitem(sys.modules, "dosimeter.report", Report)
    config()
    run("config.toml")
    folder = pathlib.Path("run")
    assert written == [([folder], folder / "report.html", True)]


def test_init_for_a_table_names_its_columns_and_reads_nothing_else(monkeypatch):
    header = 'mean radius,"worst, area",diagnosis\n'
    pathlib.Path("cancer.csv").write_text(header + "secret,\xff,\n")
    done = run("--init", "mine.toml", "--data", "cancer.csv", "--label", "diagnosis")
    assert "fill in classes and bounds, then start it with: dosimeter train mine" in done.output
    text = pathlib.Path("mine.toml").read_text()
    assert "secret" not in text
    assert "only the first line of the table" in " ".join(text.split("#"))
    made = tomllib.loads(text)["data"]
    assert made["bounds"] == {"mean radius": [], "worst, area": []}
    assert "data.classes must be at least two" in run("mine.toml", code=2).output
    text = text.replace("classes = []", 'classes = ["no", "yes"]')
    pathlib.Path("mine.toml").write_text(text)
    said = run("mine.toml", code=2).output
    assert "got [] for 'mean radius', [] for 'worst, area'" in said
    assert "line 14: data.bounds must" in said
    filled = text.replace("= []", "= [0, 100]").replace("# public_share", "public_share")
    pathlib.Path("mine.toml").write_text(filled)
    rows = [
        f"{number % 100},{number % 7},{'yes' if number % 100 > 50 else 'no'}\n"
        for number in range(400)
    ]
    pathlib.Path("cancer.csv").write_text(header + "".join(rows))
    run("mine.toml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--init", "--data", "points.csv"], "--data must come with --init and --label"),
        (["--data", "points.csv", "--label", "sick"], "--data must come with --init"),
        (["--init", "--label", "sick"], "--label must come with --init and --data"),
        (["--init", "--data", "no.csv", "--label", "sick"], "got no file at 'no.csv'"),
        (["--init", "--data", "points.csv", "--label", "sik"], "did you mean 'sick'?"),
    ],
)
def test_init_for_a_table_that_is_not_so_writes_nothing(words, said):
    assert said in run(*words, code=2).output
    assert not pathlib.Path("config.toml").exists()


def test_init_writes_a_config_that_runs_as_it_is():
    assert "dosimeter train config.toml" in run("--init").output
    run()
    assert said()["accuracy"] > 0.8
    assert said()["epsilon"] <= 4.0
    assert said()["ended"] == "all 134 epochs were done"
