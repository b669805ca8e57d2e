"""Blocks named together, and who used how much of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.ledger import Ledger
from dosimeter.ledger.usage import usage

MONTHS = [f"2026-{month:02}" for month in range(1, 13)]


@pytest.fixture(autouse=True)
def _year(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    with Ledger.open("budgets.db") as ledger:
        ledger.create_blocks("visits", MONTHS, epsilon=1.0, delta=1e-6)
        ledger.create("visitors", epsilon=1.0, delta=1e-6)


def run(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["budget", *words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def spend(*words: str, code: int = 0) -> Result:
    return run("spend", "visits", "--gaussian", "20", *words, code=code)


def test_a_range_of_blocks_is_spent_from_and_no_other() -> None:
    spend("--block", "2026-03..2026-05", "--actor", "ada")
    with Ledger.open("budgets.db") as ledger:
        spent = [name for name in ledger if ledger[name].epsilon > 0]
    assert spent == ["visits/2026-03", "visits/2026-04", "visits/2026-05"]
    assert len(json.loads(run("show", "visits", "--json").output)) == 12
    assert "visits/2026-12" in run("show", "visits").output
    assert "visitors" not in run("show", "visits").output


def test_a_group_without_blocks_named_spends_nothing() -> None:
    told = spend(code=4).stderr
    assert "nothing was spent; it is a group of 12 blocks, named by --block A..B" in told
    assert "nothing was spent" in spend("--block", "2027-01", code=4).stderr
    assert json.loads(run("usage", "visits", "--json").output) == []


def test_use_by_person_purpose_and_budget() -> None:
    spend("--block", "2026-01..2026-06", "--actor", "ada", "--purpose", "report")
    spend("--block", "2026-01", "--actor", "bob", "--purpose", "report", "--count", "3")
    spend("--block", "2026-01", "--actor", "eve", "--count", "1000", code=3)
    people = {one["who"]: one for one in json.loads(run("usage", "visits", "--json").output)}
    assert {who: (one["spends"], one["runs"], one["refused"]) for who, one in people.items()} == {
        "ada": (6, 6, 0),
        "bob": (1, 3, 0),
        "eve": (0, 0, 1),
    }
    assert people["ada"]["budgets"] == [f"visits/2026-{n:02}" for n in range(1, 7)]
    # Shares are those of an account that saw nobody else's spends, and they add up.
    alone = dm.Filter(1.0, 1e-6)
    alone.spend(dm.Gaussian(20), 3)
    assert people["bob"]["share"] == pytest.approx(alone.spent_share, rel=1e-6)
    (purpose,) = json.loads(run("usage", "visits", "--by", "purpose", "--json").output)[:1]
    assert (purpose["who"], purpose["runs"]) == ("report", 9)
    with Ledger.open("budgets.db") as ledger:
        whole = ledger["visits/2026-01"].spent_share
    assert people["ada"]["share"] + people["bob"]["share"] == pytest.approx(whole, rel=1e-6)
    budgets = json.loads(run("usage", "visits", "--by", "budget", "--json").output)
    assert budgets[0]["who"] == "visits/2026-01"
    only = run("usage", "visits", "--block", "2026-02..2026-03", "--json").output
    assert [one["who"] for one in json.loads(only)] == ["ada"]


def test_a_reservation_belongs_to_whoever_made_it() -> None:
    with Ledger.open("budgets.db") as ledger:
        budget = ledger["visitors"]
        with budget.reserve(dm.Gaussian(20), 5, actor="ada"):
            pass  # nothing drawn: released
        with budget.reserve(dm.Gaussian(20), 5, actor="ada") as kept:
            kept.draw(2)
        (use,) = usage([budget])
        assert (use.who, use.spends, use.runs) == ("ada", 1, 5)
        assert use.epsilon == pytest.approx(budget.epsilon)
        with pytest.raises(ValueError, match="by must be one of person, purpose, budget"):
            usage([budget], "day")


def test_tables_and_pages() -> None:
    spend("--block", "2026-02", "--actor", "[red]\x1b[2Jeve")
    lines = run("usage", "visits").output.splitlines()
    assert "[red] [2Jeve" in lines[3]
    assert all(len(line) <= 80 for line in lines)
    spend("--block", "2026-01", "--actor", "<b>ada</b>")
    run("usage", "visits", "--out", "use.csv")
    row, _ = sorted(
        csv.DictReader(Path("use.csv").read_text().splitlines()), key=lambda row: row["person"]
    )
    assert (row["person"], row["runs"], row["used up"]) == ("<b>ada</b>", "1", "5.6 %")
    run("usage", "visits", "--out", "use.html")
    page = Path("use.html").read_text()
    assert "&lt;b&gt;ada&lt;/b&gt;" in page
    assert "<b>ada" not in page
    run("usage", "visits", "--out", "use.txt", code=2)
    run("usage", "nobody", code=4)
