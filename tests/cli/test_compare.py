"""`dosimeter compare`: its table, its files and its JSON."""

import json

import pytest
from typer.testing import CliRunner

from dosimeter.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, ["compare", "--delta", "1e-6", *arguments])


MECHANISM = ["--sample-rate", "0.01", "--noise-multiplier", "1", "--steps", "300"]


def test_prints_a_table_and_writes_files(tmp_path):
    plot, table = tmp_path / "out.svg", tmp_path / "out.csv"
    done = run(*MECHANISM, "--no-menu", "--points", "3", "--plot", str(plot), "--csv", str(table))
    assert done.exit_code == 0, done.output
    for word in ("odometer", "UNSOUND", "sound at any stop", "if fixed beforehand"):
        assert word in done.output
    assert plot.stat().st_size > 10_000
    assert table.read_text().startswith("rule,validity,steps,epsilon")


def test_takes_a_schedule_from_a_file(tmp_path):
    path = tmp_path / "schedule.csv"
    path.write_text("steps,sample_rate,noise_multiplier\n100,0.01,1\n50,0.02,2\n")
    done = run("--schedule", str(path), "--no-menu", "--points", "2")
    assert done.exit_code == 0, done.output
    assert "epsilon of 150 steps" in done.output


def test_programs_read_json():
    done = run(*MECHANISM, "--no-menu", "--points", "3", "--json")
    result = json.loads(done.stdout)
    assert result["steps"] == [100, 200, 300]
    exact = result["rules"][0]
    assert exact["validity"] == "fixed"
    assert exact["epsilon"] == exact["epsilons"][-1] > 0
    assert {rule["epsilon"] for rule in result["rules"] if rule["rule"] == "basic composition"} == {
        "inf"
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "schedule must be given"),
        (["--steps", "3"], "schedule must be given"),
        (["--schedule", "missing.csv"], "no such file"),
        (["--schedule", "x.csv", *MECHANISM], "not be given together"),
        ([*MECHANISM, "--plot", "x.gif"], "plot must end in"),
        (["--sample-rate", "0", "--noise-multiplier", "1", "--steps", "3"], "sample_rate must"),
        (["--sample-rate", "0.1", "--noise-multiplier", "1", "--steps", "0"], "steps must"),
    ],
)
def test_says_what_is_wrong(arguments, reason):
    done = run(*arguments)
    assert done.exit_code == 2
    assert reason in done.output


def test_no_epsilon_is_said_smaller_than_it_is():
    mechanism = ["--noise-multiplier", "21", "--steps", "17", "--no-menu"]
    rules = json.loads(run(*mechanism, "--json").stdout)["rules"]
    table = run(*mechanism).output
    for rule in rules:
        said = table.partition(f"\n{rule['rule']}  ")[2].split()[0]
        assert said == "no" or float(said) >= rule["epsilon"]
