"""Typos, wrong files and impossible numbers: one line that says what to do, and a code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.ledger import Ledger
from saved_runs import history, save_run

COMPARE = "compare --delta 1e-6 --no-menu --noise-multiplier 30 --steps 10"
PLAN = "plan --epsilon 3 --delta 1e-6"
CASES = [
    # typos
    ("comparee", 2, "did you mean 'compare'? see dosimeter --help"),
    ("qwertz", 2, "no such command 'qwertz'"),
    ("budget creat x", 2, "did you mean 'create'"),
    ("--vresion", 2, "no such option: --vresion"),
    ("compare --detla 1e-6", 2, "did you mean --delta"),
    ("plan --epsilno 3 --delta 1e-6", 2, "did you mean --epsilon"),
    ("attack --jsno", 2, "--json"),
    ("attack now", 2, "unexpected extra argument"),
    ("audit --canarie 1000", 2, "did you mean --canaries"),
    ("demo --repeat", 2, "did you mean --repeats"),
    ("report --output x.html run", 2, "--out"),
    ("budget spend patients --gausian 20", 2, "did you mean --gaussian"),
    # what is missing
    ("compare", 2, "missing option '--delta'"),
    ("report", 2, "missing argument 'folders"),
    ("budget show", 2, "missing argument 'name'"),
    (PLAN, 2, "one of --noise-multiplier and --steps, got neither"),
    ("compare --delta 1e-6 --steps 3", 2, "both --noise-multiplier and --steps"),
    ("budget spend patients", 2, "--cost, got none"),
    ("budget spend patients --gaussian 1 --pure 1", 2, "--cost, got --gaussian, --pure"),
    ("budget create x --delta 1e-6", 2, "either --epsilon or --odometer, got neither"),
    ("budget create x --odometer --delta 1e-6 --block a", 2, "--block must come with --epsilon"),
    ("demo --repeats", 2, "'--repeats' requires an argument; see dosimeter demo --help"),
    ("budget spend patients --gaussian 2 --key", 2, "argument; see dosimeter budget spend --help"),
    # impossible numbers
    ("compare --delta one --steps 3", 2, "'--delta' must be a valid number, got 'one'"),
    (f"{COMPARE} --delta 0", 2, "delta must"),
    (f"{COMPARE} --delta nan", 2, "delta must"),
    (f"{COMPARE} --steps 0", 2, "steps must be at least 1, got 0"),
    (f"{COMPARE} --steps 1.5", 2, "'--steps' must be a valid integer, got '1.5'"),
    (f"{COMPARE} --sample-rate 1.5", 2, "sample_rate must"),
    (f"{COMPARE} --noise-multiplier -1", 2, "noise_multiplier must"),
    (f"{COMPARE} --points 0", 2, "points must"),
    (f"{PLAN} --steps 0", 2, "steps must"),
    ("audit --canaries 10", 2, "canaries must be at least 500, got 10"),
    ("audit --sample-rate 2", 2, "sample_rate must lie between"),
    ("audit --epsilon nan", 2, "epsilon must"),
    ("audit --delta 0", 2, "delta must"),
    ("audit --false-alarm 0", 2, "false_alarm must"),
    ("audit --steps 0", 2, "steps must"),
    ("audit --noise-multiplier 0", 2, "noise_multiplier must"),
    ("audit --epsilon 1e-4", 2, "gate must admit at least one step"),
    (f"{PLAN} --noise-multiplier 0", 2, "noise_multiplier must"),
    (f"{PLAN} --epsilon inf --steps 3", 2, "epsilon must"),
    (f"{PLAN} --delta 1 --steps 3", 2, "delta must"),
    (
        f"{PLAN} --noise-multiplier 1 --steps 3",
        2,
        "one of --noise-multiplier and --steps, got both",
    ),
    ("demo --repeats 0", 2, "'--repeats' must be greater than or equal to 1, got '0'"),
    ("budget create x --epsilon -1 --delta 1e-6", 2, "epsilon must"),
    ("budget create x --epsilon 1 --delta 2", 2, "delta must"),
    (
        "budget create x --epsilon 1 --odometer --delta 1e-6",
        2,
        "either --epsilon or --odometer, got both",
    ),
    ("budget spend patients --gaussian 0", 2, "noise_multiplier must"),
    ("budget spend patients --gaussian 20 --count -3", 2, "count must"),
    ("budget spend patients --sampled-gaussian 0.1", 2, "must be SAMPLE_RATE,NOISE_MULTIPLIER"),
    ("budget spend patients --sampled-gaussian 20,0.01", 2, "SAMPLE_RATE,NOISE_MULTIPLIER in this"),
    ("budget spend patients --cost {", 2, 'such as \'{"kind": "gaussian", "noise_multiplier": 20}'),
    ('budget spend patients --cost {"kind":"gaussian"}', 2, 'such as \'{"kind": "gaussian"'),
    ("budget spend patients --gaussian 20 --count 100000", 3, "spend at most"),
    ("budget history patients --last 0", 2, "'--last' must be greater than or equal to 1"),
    # names and files
    ("budget show nobody", 4, "got 'nobody'; dosimeter budget list shows those there are"),
    ("budget show patient", 4, "got 'patient'; nothing was spent; did you mean 'patients'?"),
    ("budget spend patiens --gaussian 20", 4, "did you mean 'patients'?"),
    (
        "budget spend clicks --gaussian 20",
        3,
        "it was closed; it stays closed, and dosimeter budget",
    ),
    ("budget list --db sqlite://budgets.db", 2, "three slashes"),
    ("budget list --db sqlite:/budgets.db", 2, "write sqlite:///budgets.db"),
    ("budget create x --epsilon 1 --delta 1e-6 --db sqlite://x", 2, "write sqlite:///x"),
    ("budget create x --epsilon 1 --delta 1e-6 --db sqlite://", 2, "url must name a file"),
    ("budget create patients --epsilon 1 --delta 1e-6", 4, "'patients'"),
    ("budget list --db nowhere.db", 6, "dosimeter budget create"),
    ("budget list --db page.html", 6, "not an SQLite database"),
    ("budget list --db mysql://host/db", 2, "sqlite:// or postgresql://"),
    ("budget import nowhere.jsonl", 2, "nowhere.jsonl: no such file"),
    ("budget import page.html", 5, "as an export does"),
    ("budget import picture.png", 2, "picture.png must be what dosimeter budget export wrote"),
    (
        "budget export patients -o page.html",
        2,
        "page.html', which is there; name another, or remove it first",
    ),
    ("compare --delta 1e-6 --schedule nowhere.csv", 2, "nowhere.csv: no such file"),
    ("compare --delta 1e-6 --schedule worng.csv", 2, "directory; did you mean 'wrong.csv'?"),
    ("compare --delta 1e-6 --schedule page.html", 2, "schedule must be a .csv or .json file"),
    ("compare --delta 1e-6 --schedule wrong.csv", 2, "row 1 must have exactly"),
    ("compare --delta 1e-6 --schedule wrong.json", 2, "wrong.json"),
    ("compare --delta 1e-6 --schedule deep.json", 2, "got one nested too deeply"),
    (f"{COMPARE} --plot picture.gif", 2, "plot must end in .png"),
    (f"{COMPARE} --csv no/such/folder.csv", 2, "must be in a folder that exists"),
    ("report nowhere", 2, "run must be a folder, got 'nowhere'"),
    ("report page.html", 2, "run must be a folder, got 'page.html'"),
    ("report empty", 2, "run must hold history.json"),
    ("report .", 2, "the runs in it are broken, older, run"),
    ("report broken", 2, "must be JSON"),
    ("report older", 2, "version 7"),
    ("report run --out no/such/folder.html", 2, "out must be in a folder that exists"),
    ("demo --out page.html", 2, "out must be a folder"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Some files that are not what they should be, and one budget."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOSIMETER_DB", str(tmp_path / "budgets.db"))
    (tmp_path / "page.html").write_text("<!doctype html>" + "<p>no\n" * 300)
    (tmp_path / "wrong.csv").write_text("steps,noise\n3,1\n")
    (tmp_path / "wrong.json").write_text('[{"steps": ')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "empty").mkdir()
    save_run(tmp_path / "run")
    save_run(tmp_path / "older", {**history(), "version": 7})
    save_run(tmp_path / "broken")
    (tmp_path / "broken" / "history.json").write_text("{")
    with Ledger.open("budgets.db") as ledger:
        ledger.create("patients", epsilon=1.0, delta=1e-6)
        ledger.create_odometer("clicks", delta=1e-6)
        ledger["clicks"].close()
    return tmp_path


@pytest.mark.parametrize(("line", "code", "way_out"), CASES, ids=[case[0] for case in CASES])
def test_one_line_and_a_code(line, code, way_out, folder):
    before = sorted(folder.rglob("*"))
    done = CliRunner().invoke(app, line.split(), prog_name="dosimeter")
    assert done.exit_code == code, (done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("\n")
    assert way_out in done.stderr
    assert "Traceback" not in done.stderr
    left = {path for path in folder.rglob("*") if path.suffix not in (".db-wal", ".db-shm")}
    assert left <= set(before)


@pytest.mark.parametrize(
    ("module", "line", "install"),
    [
        ("torch", "demo", "'.[torch]'"),
        ("cryptography", "demo", "'.[torch]'"),
        ("sklearn", "demo", "'.[torch]'"),
        ("matplotlib", f"{COMPARE} --plot x.svg", "'.[plot]'"),
        ("psycopg", "budget list --db postgresql://x@/x", "'.[ledger]'"),
        ("rich", "attack", "'.[cli]'"),
    ],
)
def test_what_is_not_installed_is_named(module, line, install, tmp_path):
    program = f"import sys; sys.modules[{module!r}] = None\n"
    program += "from dosimeter.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *line.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: this command needs {module}, which is not installed; "
        f"pip install -c constraints.txt {install} in a clone of dosimeter\n"
    )
    assert not list(tmp_path.iterdir())


def test_something_unexpected_names_the_way_to_see_more(monkeypatch):
    def fail():
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("dosimeter.compare.adversaries.examples.players", fail)
    done = CliRunner().invoke(app, ["attack"])
    assert done.exit_code == 1
    assert done.stderr == "error: RuntimeError: two lines (--debug shows where)\n"
    assert isinstance(CliRunner().invoke(app, ["attack", "--debug"]).exception, RuntimeError)


def test_plan_for_programs():
    done = CliRunner().invoke(app, [*PLAN.split(), "--noise-multiplier", "30", "--json"])
    plan = json.loads(done.stdout)
    assert plan["cost"] == {"kind": "gaussian", "noise_multiplier": 30.0}
    steps = {row["rule"]: row["steps"] for row in plan["rules"]}
    assert steps["filter"] < steps["filter with a menu"] <= steps["PLD, fixed beforehand"]


def test_a_plan_in_which_nothing_fits_says_what_would():
    words = "plan --epsilon 0.1 --delta 1e-6 --noise-multiplier".split()
    done = CliRunner().invoke(app, [*words, "1"])
    assert done.exit_code == 3
    noise = float(done.stderr.rsplit(" ", 1)[1])
    assert dm.Filter(0.1, 1e-6).admits(dm.Gaussian(noise))
    assert not dm.Filter(0.1, 1e-6).admits(dm.Gaussian(noise * 0.99))
    assert CliRunner().invoke(app, [*words, str(noise)]).exit_code == 0


def test_plan_says_which_gate_needs_which_noise():
    """The noise of a menu is refused by a filter without one, and by a ledger."""
    words = [*PLAN.split(), "--steps", "10"]
    rules = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["rules"]
    noise = {row["rule"]: row["noise_multiplier"] for row in rules}
    assert not dm.Filter(3.0, 1e-6).admits(dm.Gaussian(noise["filter with a menu"]), 10)
    table = CliRunner().invoke(app, words).stdout
    for name, rule in (
        ("filter with a menu", "filter with a menu"),
        ("filter or ledger, no menu", "filter"),
    ):
        said = float(table.partition(f"\n{name}  ")[2].split()[0])
        assert said == noise[rule]
        gate = dm.Filter(3.0, 1e-6, menu=[dm.Gaussian(said)] if "with a" in name else None)
        assert gate.admits(dm.Gaussian(said), 10)


def test_attack_prints_who_stands():
    """For people and for programs."""
    printed = CliRunner().invoke(app, ["attack"]).stdout
    verdicts = [line.split()[-1] for line in printed.splitlines()[3:]]
    assert verdicts == ["BROKEN", "BROKEN", "holds", "holds", "holds", "holds"]
    assert "1.9972 delta" in printed
    rows = json.loads(CliRunner().invoke(app, ["attack", "--json"]).stdout)
    assert [row["holds"] for row in rows] == [False, False, True, True, True, True]
    assert rows[0]["rule"] == "curve rule, tight conversion"
