# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget`: what people read, what programs read, and how commands end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.cli.budget_output import bar
from dosimeter.cli.costs import cost_from, in_words
from dosimeter.cli.errors import ExitCode
from dosimeter.ledger import Ledger

SPEND = ["spend", "patients", "--gaussian", "20"]


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "budgets.db"
    monkeypatch.setenv("DOSIMETER_DB", f"sqlite:///{path}")
    monkeypatch.setenv("DOSIMETER_ACTOR", "ada")
    monkeypatch.setenv("COLUMNS", "200")
    return path


def run(*arguments: str, code: ExitCode = ExitCode.DONE, given: str | None = None) -> Result:
    result = CliRunner().invoke(app, ["budget", *arguments], input=given)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def patients() -> None:
    run("create", "patients", "--epsilon", "1", "--delta", "1e-6", "--purpose", "trial")


@pytest.mark.usefixtures("patients")
class TestWalk:
    def test_from_the_first_spend_to_the_close(self, database: Path) -> None:
        assert "entry 1" in run(*SPEND, "--purpose", "mean age").output
        shown = run("show", "patients").output
        assert re.search(r"█+░+ 5\.6 %", shown)
        assert "affordable  17 more of Gaussian(noise_multiplier=20.0)" in shown
        table = run("history", "patients").output
        assert "gaussian 20" in table
        assert "mean age" in table
        assert "ada" in table
        assert "all 2 entries fit" in run("verify").output
        assert "closed" in run("close", "patients").output
        refused = run(*SPEND, code=ExitCode.REFUSED)
        assert refused.stderr.startswith("error: budget 'patients'")
        assert "closed" in run("list").output
        with Ledger.open(str(database)) as ledger:
            assert ledger.verify("patients").ok

    def test_programs_read_json(self) -> None:
        (receipt,) = json.loads(run(*SPEND, "--count", "2", "--json").output)
        assert (receipt["sequence"], receipt["count"], receipt["replayed"]) == (1, 2, False)
        (listed,) = json.loads(run("list", "--json").output)
        shown = json.loads(run("show", "patients", "--json").output)
        assert listed["epsilon"] == shown["epsilon"] == receipt["epsilon"]
        assert shown["last_cost"] == {"kind": "gaussian", "noise_multiplier": 20.0}
        entries = json.loads(run("history", "patients", "--json").output)
        assert [entry["kind"] for entry in entries] == ["open", "spend"]
        assert [one["ok"] for one in json.loads(run("verify", "--json").output)] == [True]

    def test_a_refusal_is_not_a_crash_spends_nothing_and_is_noted(self) -> None:
        refused = run(*SPEND, "--count", "1000", code=ExitCode.REFUSED)
        assert refused.stdout == ""
        assert refused.stderr.count("\n") == 1
        assert "spend at most 18 of it" in refused.stderr
        standing = json.loads(run("show", "patients", "--json").output)
        assert (standing["epsilon"], standing["entries"]) == (0, 2)
        assert "refuse" in run("history", "patients").output

    def test_a_retry_with_a_key(self) -> None:
        run(*SPEND, "--key", "k")
        assert "nothing spent now" in run(*SPEND, "--key", "k").output
        conflict = run(*SPEND, "--key", "k", "--count", "2", code=ExitCode.WRONG_NAME)
        assert "'k'" in conflict.stderr

    def test_several_budgets_or_none(self) -> None:
        run("create", "day", "--epsilon", "0.3", "--delta", "1e-6", "--block", "1", "--block", "2")
        both = ["spend", "day/1", "day/2", "--gaussian", "20"]
        assert len(json.loads(run(*both, "--json").output)) == 2
        run(*both, code=ExitCode.REFUSED)
        run("spend", "day/1", "nobody", "--gaussian", "50", code=ExitCode.WRONG_NAME)

    def test_tampering_is_told_by_the_exit_code(self, database: Path) -> None:
        run(*SPEND)
        from ledger import raw

        raw.unprotect(f"sqlite:///{database}")
        edit = f"UPDATE dosimeter_journal SET body = '{{}}' WHERE {raw.SEQUENCE} = 1"
        raw.query(f"sqlite:///{database}", edit)
        found = run("verify", code=ExitCode.DOES_NOT_VERIFY)
        assert "entry 1 does not fit" in found.stderr

    def test_a_budget_moves_to_another_ledger(self, tmp_path: Path) -> None:
        run(*SPEND)
        plain = run("export", "patients").stdout
        file = tmp_path / "patients.jsonl"
        there = str(tmp_path / "other.db")
        run("export", "patients", "--move", there, "-o", str(file))
        moved = file.read_text()
        assert moved.splitlines()[:-1] == plain.splitlines()[:-1]
        run("export", "patients", "-o", str(file), code=ExitCode.USAGE)
        assert file.read_text() == moved
        run(*SPEND, code=ExitCode.REFUSED)
        third = ["--db", str(tmp_path / "third.db")]
        run("import", str(file), *third, code=ExitCode.DOES_NOT_VERIFY)
        assert "closed copy" in run("import", "-", *third, given=plain).output
        other = ["--db", there]
        identity = run("identity", *other).output.strip()
        assert run("export", "patients", "--move", identity).stdout == moved
        assert "2 entries imported" in run("import", str(file), *other).output
        run("import", "-", *other, given=plain, code=ExitCode.WRONG_NAME)
        run("import", "-", *other, given=plain[:-9], code=ExitCode.DOES_NOT_VERIFY)
        run(*SPEND, *other)

    def test_names_cannot_write_on_the_terminal(self) -> None:
        run("create", "\x1b[2J[red]x", "--epsilon", "1", "--delta", "1e-6")
        listed = run("list").output
        assert "\x1b[2J" not in listed
        assert "[red]x" in listed


class TestCosts:
    @pytest.mark.parametrize(
        ("option", "value", "cost"),
        [
            ("--gaussian", "20", dm.Gaussian(20)),
            ("--laplace", "10", dm.Laplace(10)),
            ("--sampled-gaussian", "0.01,1.0", dm.SampledGaussian(0.01, 1.0)),
            ("--pure", "0.1", dm.PureDp(0.1)),
            ("--approx", "0.1,1e-9", dm.ApproxDp(0.1, 1e-9)),
            ("--zcdp", "0.01", dm.Zcdp(0.01)),
            ("--zcdp", "0.01,0.002", dm.Zcdp(0.01, 0.002)),
            ("--cost", '{"kind":"gaussian","noise_multiplier":20}', dm.Gaussian(20)),
        ],
    )
    def test_each_is_what_it_says(self, option: str, value: str, cost: dm.Cost) -> None:
        run("create", "b", "--odometer", "--delta", "1e-6", "--approx-delta", "1e-6")
        run("spend", "b", option, value)
        (line,) = json.loads(run("history", "b", "--last", "1", "--json").output)
        from dosimeter.rdp.plain import from_plain

        assert from_plain(line["cost"]) == cost
        if option in ("--gaussian", "--laplace", "--sampled-gaussian", "--pure"):
            assert f"{option[2:]} {value.removesuffix('.0')}" in run("history", "b").output

    def test_a_relation_is_said_in_words(self) -> None:
        swapped = dm.Gaussian(20.0, neighbours=dm.Neighbours.REPLACE_ONE_RECORD)
        relation = {"neighbours": str(swapped.neighbours)}
        assert cost_from({"gaussian": "20"}, **relation) == swapped
        plain = {"kind": "gaussian", "noise_multiplier": 20, **relation}
        assert cost_from({"cost": json.dumps(plain)}) == swapped
        assert in_words(plain) == "gaussian 20, replace one record"
        with pytest.raises(ValueError, match="--neighbours must not come with --cost"):
            cost_from({"cost": json.dumps(plain)}, **relation)
        with pytest.raises(ValueError, match="without the gain from sampling"):
            cost_from({"sampled_gaussian": "0.1,20"}, **relation)

    @pytest.mark.usefixtures("patients")
    @pytest.mark.parametrize(
        "options",
        [
            [],
            ["--gaussian", "20", "--neighbours", "strangers"],
            ["--gaussian", "20", "--neighbours", ""],
            ["--cost", '{"kind":"gaussian","noise_multiplier":20,"neighbours":"strangers"}'],
            ["--gaussian", "1", "--laplace", "1"],
            ["--gaussian", "nan"],
            ["--gaussian", "x"],
            ["--gaussian", "1,2"],
            ["--gaussian", "-1"],
            ["--gaussian", "20", "--count", "0"],
            ["--cost", "{"],
            ["--cost", "[]"],
            ["--cost", '{"kind":"gaussian"}'],
        ],
    )
    def test_wrong_ones_are_usage_errors(self, options: list[str]) -> None:
        assert run("spend", "patients", *options, code=ExitCode.USAGE).stderr.startswith("error:")


class TestEnds:
    def test_unreachable(self) -> None:
        run("list", "--db", "/no/such/folder/b.db", code=ExitCode.UNAVAILABLE)

    def test_only_what_puts_budgets_in_makes_a_database(self, database: Path) -> None:
        for command in (["list"], ["show", "b"], ["spend", "b", "--gaussian", "1"], ["verify"]):
            missing = run(*command, code=ExitCode.UNAVAILABLE)
            assert "dosimeter budget create" in missing.stderr
            assert not database.exists()
        run("import", "no-such-file", code=ExitCode.USAGE)
        assert not database.exists()
        run("create", "b", "--epsilon", "1", "--delta", "1e-6")
        assert database.exists()

    def test_an_empty_ledger_says_so(self, database: Path) -> None:
        with Ledger.open(str(database)):
            pass
        assert "no budgets yet" in run("list").stderr

    def test_unknown_and_taken_names(self) -> None:
        run("create", "b", "--epsilon", "1", "--delta", "1e-6")
        run("show", "nobody", code=ExitCode.WRONG_NAME)
        run("create", "b", "--epsilon", "1", "--delta", "1e-6", code=ExitCode.WRONG_NAME)
        run("create", "c", "--delta", "1e-6", code=ExitCode.USAGE)
        run("create", "c", "--epsilon", "nan", "--delta", "1e-6", code=ExitCode.USAGE)

    @pytest.mark.usefixtures("patients")
    def test_tracebacks_only_with_debug(self) -> None:
        words = ["budget", "show", "nobody"]
        for place in range(len(words) + 1):
            result = CliRunner().invoke(app, [*words[:place], "--debug", *words[place:]])
            assert isinstance(result.exception, dm.DosimeterError)
        run("show", "nobody", code=ExitCode.WRONG_NAME)

    def test_help_and_version_load_nothing_heavy(self) -> None:
        program = (
            "import sys\n"
            "from dosimeter.cli import main\n"
            "try:\n    main()\n"
            "finally:\n"
            "    heavy = {'sqlite3', 'psycopg', 'numpy', 'torch', 'rich'} & set(sys.modules)\n"
            "    assert not heavy, heavy"
        )
        for arguments in (["--help"], ["--version"], ["budget", "--help"]):
            done = subprocess.run(
                [sys.executable, "-c", program, *arguments], capture_output=True, check=True
            )
            assert done.stdout

    def test_without_the_extra_it_says_what_to_install(self) -> None:
        program = "import sys; sys.modules['psycopg'] = None\n"
        program += "from dosimeter.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, "budget", "list", "--db", "postgresql://x@/x"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ExitCode.USAGE
        assert done.stderr == (
            "error: this command needs psycopg, which is not installed; "
            "pip install -c constraints.txt '.[ledger]' in a clone of dosimeter\n"
        )

    def test_every_command_has_help(self) -> None:
        listed = run("--help").output
        for command in "create list show spend history verify close export import".split():
            assert re.search(rf"^  {command} +[A-Z]", listed, re.MULTILINE)
            assert "--db" in run(command, "--help").output


@pytest.mark.parametrize(
    ("share", "filled"),
    [(0.0, 0), (1e-9, 1), (0.5, 5), (0.999999, 9), (1.0, 10), (float("inf"), 10)],
)
def test_a_bar_is_full_only_when_nothing_is_left(share: float, filled: int) -> None:
    assert bar(share, width=10) == "█" * filled + "░" * (10 - filled)


def test_what_is_spent_is_said_rounded_up() -> None:
    run("create", "p", "--epsilon", "3.00000049", "--delta", "1.0000004e-6")
    receipt = run("spend", "p", "--gaussian", "17").stdout
    shown = json.loads(run("show", "p", "--json").output)
    spent = shown["epsilon"]
    assert float(receipt.split("epsilon ")[1]) >= spent
    row = run("list").output.splitlines()[1].split()
    assert float(row[1]) >= spent
    assert (row[2], row[3]) == ("3.00000049", "1.0000004e-06")
    assert float(run("history", "p").output.splitlines()[2].split()[5]) >= spent
    said = run("show", "p").output
    assert float(re.findall(r"epsilon ([\d.]+) of 3\.00000049", said)[0]) >= spent
    assert float(re.findall(r"([\d.]+) %", said)[0]) / 100 >= shown["spent_share"]


def test_the_formal_guarantee_is_short_for_people_and_whole_for_programs() -> None:
    run("create", "o", "--odometer", "--delta", "1e-6")
    run("spend", "o", "--gaussian", "17")
    whole = json.loads(run("show", "o", "--json").output)
    assert f"ex-post ({whole['epsilon']!r}, 1e-06)-DP" in whole["guarantee"]
    (said,) = re.findall(r"guarantee +ex-post \((\S+), 1e-06\)-DP", run("show", "o").output)
    assert len(said) <= 5 < len(repr(whole["epsilon"]))
    assert float(said) >= whole["epsilon"]


class TestMenus:
    def test_a_declared_mechanism_is_bought_from_the_menu(self) -> None:
        menu = ["--menu", "gaussian 50", "--menu", '{"kind": "gaussian", "noise_multiplier": 80}']
        made = run("create", "scans", "--epsilon", "1", "--delta", "1e-6", *menu)
        assert "pricing the menu" in made.stderr
        run("create", "plain", "--epsilon", "1", "--delta", "1e-6")
        for name in ("scans", "plain"):
            run("spend", name, "--gaussian", "50")
        said = {name: json.loads(run("show", name, "--json").output) for name in ("scans", "plain")}
        assert said["scans"]["affordable"] > 1.1 * said["plain"]["affordable"]
        assert "a menu of costs that was fixed" in said["scans"]["guarantee"]
        assert "all 2 entries fit" in run("verify", "scans").output

    @pytest.mark.parametrize(
        ("item", "said"),
        [
            ("gausian 50", "mechanisms: gaussian"),
            ("gaussian", "NOISE_MULTIPLIER"),
            ("gaussian 50,1", "NOISE_MULTIPLIER"),
            ("{", "must be JSON"),
            ("zcdp 0.1", "loss distribution"),
        ],
    )
    def test_what_cannot_be_declared_is_said(self, item: str, said: str) -> None:
        wanted = ["--epsilon", "1", "--delta", "1e-6", "--menu", item]
        refused = run("create", "scans", *wanted, code=ExitCode.USAGE)
        assert said in refused.stderr
        assert "scans" not in run("list").output


class TestNeighbours:
    def test_a_budget_and_its_spends_state_the_same_relation(self) -> None:
        users = ["--neighbours", "add/remove one user"]
        run("create", "users", "--epsilon", "1", "--delta", "1e-6", *users)
        refused = run("spend", "users", "--gaussian", "50", code=ExitCode.USAGE)
        assert "add/remove one user" in refused.stderr
        run("spend", "users", "--gaussian", "50", *users)
        assert "add/remove one user" in run("show", "users").output
        unknown = ["--neighbours", "someone"]
        wrong = run("spend", "users", "--gaussian", "50", *unknown, code=ExitCode.USAGE)
        assert "'replace one record'" in wrong.stderr


@pytest.mark.parametrize(
    "name",
    ["a\nb: all 9 entries fit, epsilon 0", "x\x1b[2Jy", "a: all 1 entries fit", "\u202eb", " "],
)
def test_a_name_cannot_pass_for_something_else(name: str) -> None:
    run("create", name, "--epsilon", "1", "--delta", "1e-6")
    spent = run("spend", name, "--gaussian", "20").output
    shown = run("show", name).output
    listed = run("list").output
    verified = run("verify").output
    for said in (spent, shown, listed, verified):
        assert repr(name)[1:-1][:8] in said.replace("\n", "") or repr(name) in said
        assert "\x1b" not in said
        assert "\u202e" not in said
    assert verified.startswith(repr(name))
    assert verified.count("\n") == 1


def test_the_bar_shows_what_adds_up_and_a_refusal_is_not_the_last_cost() -> None:
    run("create", "p", "--epsilon", "1", "--delta", "1e-6")
    run("spend", "p", "--gaussian", "20")
    run("spend", "p", "--gaussian", "0.1", code=ExitCode.REFUSED)
    said = run("show", "p").output
    assert "5.6 %" in said
    assert "epsilon 0.259 of 1" in said
    assert "17 more of Gaussian(noise_multiplier=20.0)" in said


def test_a_wrong_name_says_that_nothing_was_spent() -> None:
    run("create", "patients", "--epsilon", "1", "--delta", "1e-6")
    told = run("spend", "patient", "--gaussian", "20", code=ExitCode.WRONG_NAME).stderr
    assert "nothing was spent; did you mean 'patients'?" in told


def test_a_shell_completes_the_names_of_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from dosimeter.cli.database import complete_budgets

    for name in ("patients", "payments", "visits"):
        run("create", name, "--epsilon", "1", "--delta", "1e-6")
    typed: Any = SimpleNamespace(params={})
    assert complete_budgets(typed, "pa") == ["patients", "payments"]
    run("create", "clicks", "--epsilon", "1", "--delta", "1e-6", "--block", "1", "--block", "2")
    assert complete_budgets(typed, "cl") == ["clicks", "clicks/1", "clicks/2"]
    typed.params["db"] = "sqlite:///nowhere.db"
    assert complete_budgets(typed, "") == []
    assert not Path("nowhere.db").exists()
