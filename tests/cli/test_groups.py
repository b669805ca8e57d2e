"""Blocks named together, and who used how much of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.ledger import BudgetNotFound, Kind, Ledger, LedgerRefusal
from dosimeter.ledger.activity import activities
from dosimeter.ledger.usage import usage

MONTHS = [f"2026-{month:02}" for month in range(1, 13)]


@pytest.fixture(autouse=True)
def _year(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
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
    assert "it is a group of 12 blocks, and --block 2026-01..2026-12 names all of them" in told
    assert "nothing was spent" in spend("--block", "2027-01", code=4).stderr
    assert json.loads(run("usage", "visits", "--json").output) == []


def test_use_by_person_purpose_and_budget() -> None:
    spend("--block", "2026-01..2026-06", "--actor", "ada", "--purpose", "report")
    spend("--block", "2026-01", "--actor", "bob", "--purpose", "report", "--count", "3")
    spend("--block", "2026-01", "--actor", "eve", "--count", "1000", code=3)
    people = {one["who"]: one for one in json.loads(run("usage", "visits", "--json").output)}
    assert {who: (one["spends"], one["steps"], one["refused"]) for who, one in people.items()} == {
        "ada": (1, 1, 0),  # one spend, in six blocks
        "bob": (1, 3, 0),
        "eve": (0, 0, 1),
    }
    assert people["ada"]["budgets"] == [f"visits/2026-{n:02}" for n in range(1, 7)]
    # Shares are those of an account that saw nobody else's spends, and they add up.
    alone = dm.Filter(1.0, 1e-6)
    alone.spend(dm.Gaussian(20), 3)
    assert people["bob"]["share"] == pytest.approx(alone.spent_share, rel=1e-6)
    (purpose,) = json.loads(run("usage", "visits", "--by", "purpose", "--json").output)[:1]
    assert (purpose["who"], purpose["spends"], purpose["steps"]) == ("report", 2, 4)
    both = json.loads(run("usage", "visits", "--by", "person, purpose", "--json").output)
    assert [one["names"] for one in both] == [
        ["bob", "report"],
        ["ada", "report"],
        ["eve", "unknown"],
    ]
    assert both[1]["who"] == "ada / report"
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
        assert (use.who, use.spends, use.steps) == ("ada", 1, 5)
        assert use.epsilon == pytest.approx(budget.epsilon)
        for wrong in ("day", "", "person,person"):
            with pytest.raises(
                ValueError, match="by must be one or more of person, purpose, budget"
            ):
                usage([budget], wrong)


def test_tables_of_usage() -> None:
    spend("--block", "2026-02", "--actor", "[red]\x1b[2Jeve")
    lines = run("usage", "visits").output.splitlines()
    assert "[red]\\x1b[2Jeve" in lines[4]
    assert lines[1] == "12 budgets: 2026-01..2026-12; limit of each: epsilon 1 at delta 1e-06"
    assert "5.6 %" in lines[4]
    assert all(len(line) <= 80 for line in lines)  # also where a terminal has more room
    assert not any(line.startswith("total") for line in lines)
    spend("--block", "2026-01", "--actor", "<b>ada</b>")
    run("usage", "visits", "--out", "use.csv")
    row, _ = sorted(
        csv.DictReader(Path("use.csv").read_text().splitlines()), key=lambda row: row["person"]
    )
    assert (row["person"], row["steps"], row["budgets"]) == ("<b>ada</b>", "1", "2026-01")
    assert float(row["share"]) == pytest.approx(0.0555, abs=1e-3)
    total = run("usage", "visits").output.splitlines()[-1]
    assert total.startswith("total")
    assert "2026-01..2026-02" in total  # of both together
    refused = run("usage", "visits", "--out", "use.html", code=2)
    assert "--out must end in .csv, got 'use.html'" in refused.stderr
    assert not Path("use.html").exists()
    run("usage", "nobody", code=4)


def test_a_gate_over_blocks_spends_in_all_or_in_none() -> None:
    query = dm.Gaussian(20)
    with Ledger.open("budgets.db") as ledger:
        year, spring = ledger.blocks("visits"), ledger.blocks("visits", "2026-03..2026-05")
        assert (len(year), spring.names) == (12, tuple(f"visits/2026-0{n}" for n in (3, 4, 5)))
        assert sorted(spring.spend(query, 3, key="spring", purpose="report")) == [*spring.names]
        assert spring.spend(query, 3, key="spring")["visits/2026-03"].replayed
        # What a record has paid is what was spent in its own block.
        alone = ledger["visits/2026-03"].epsilon
        assert year.epsilon == spring.epsilon == alone
        assert ledger["visits/2026-06"].epsilon == 0
        assert (year.limit, year.closed) == (1.0, False)
        assert year.remaining == ledger["visits/2026-04"].remaining
        left = ledger["visits/2026-05"].affordable(query)
        assert year.affordable(query) == left
        ledger["visits/2026-04"].spend(query, left)
        assert year.affordable(query) == 0
        assert not year.admits(query)
        assert year.spent_share == ledger["visits/2026-04"].spent_share
        before = {name: ledger[name].epsilon for name in year.names}
        with pytest.raises(LedgerRefusal, match="visits/2026-04"):
            year.spend(query)
        assert {name: ledger[name].epsilon for name in year.names} == before
        assert str(year.guarantee()) == str(ledger["visits/2026-01"].guarantee())
        assert "12 blocks, visits/2026-01 to visits/2026-12" in repr(year)
        assert "12 blocks" in year._repr_html_()
        ledger["visits/2026-12"].close()
        assert year.closed


def test_what_holds_for_blocks_is_the_weakest_of_their_promises() -> None:
    with Ledger.open("budgets.db") as ledger:
        ledger.create_blocks("visits", ["2027-01"], epsilon=2.0, delta=1e-7)
        mixed = ledger.blocks("visits", "2026-12..2027-01").guarantee()
        assert (mixed.epsilon, mixed.delta, mixed.kind) == (2.0, 1e-6, "filter")
        ledger.create_odometer("visits/2027-02", 1e-6).spend(dm.PureDp(3.0))
        mixed = ledger.blocks("visits").guarantee()
        assert (mixed.epsilon, mixed.kind) == (3.0, "odometer")
        user = dm.Neighbours.ADD_REMOVE_USER
        ledger.create("visits/2027-03", 1.0, 1e-6, neighbours=user)
        with pytest.raises(ValueError, match="same neighbours"):
            ledger.blocks("visits").guarantee()
        for wrong in ("visitors", "visit"):
            with pytest.raises(BudgetNotFound):
                ledger.blocks(wrong)
        with pytest.raises(BudgetNotFound, match="visits/2026-13"):
            ledger.blocks("visits", "2026-13")


def test_a_run_is_one_line_of_the_journal() -> None:
    with Ledger.open("budgets.db") as ledger:
        budget = ledger["visitors"]
        for _ in range(3):  # two runs that take turns
            budget.spend(dm.Gaussian(100), purpose="run 1", actor="ada")
            budget.spend(dm.Gaussian(200), purpose="run 2", actor="ada")
        budget.spend(dm.Laplace(100), purpose="run 1", actor="ada")
        for cost in (dm.Gaussian(300), dm.Gaussian(300), dm.Laplace(300), dm.Gaussian(300)):
            budget.spend(cost, actor="bob")
        with budget.reserve(dm.Gaussian(100), 5, actor="ada", purpose="run 1") as kept:
            kept.draw(2)
        with pytest.raises(LedgerRefusal):
            budget.spend(dm.PureDp(5), actor="ada", purpose="run 1")
        entries = budget.history()
        found = activities(entries)
    seen = [(one.first.kind, one.steps, len(one.entries), len(one.costs)) for one in found]
    assert seen == [
        (Kind.OPEN, 0, 1, 0),
        (Kind.SPEND, 9, 6, 2),  # run 1: four spends, a reservation and its end
        (Kind.SPEND, 3, 3, 1),
        (Kind.SPEND, 2, 2, 1),  # without a purpose only those in a row
        (Kind.SPEND, 1, 1, 1),
        (Kind.SPEND, 1, 1, 1),
        (Kind.REFUSE, 1, 1, 1),
    ]
    assert sorted(e for one in found for e in one.entries) == sorted(entries)
    assert len(run("history", "visitors").output.splitlines()) == 8
    cut = run("history", "visitors", "--last", "2")
    assert len(cut.stdout.splitlines()) == 3
    assert "5 earlier lines; --last 7 shows all" in cut.stderr
    assert len(run("history", "visitors", "--each").output.splitlines()) == 16
    assert len(json.loads(run("history", "visitors", "--json").output)) == 15
    run("history", "visitors", "--out", "journal.csv")
    assert len(Path("journal.csv").read_text().splitlines()) == 16
    run("history", "visitors", "--out", "journal.html", code=2)
    for _ in range(9):
        run("spend", "visitors", "--gaussian", "300")
        run("spend", "visitors", "--laplace", "300")
    run("history", "visitors", "--out", "journal.csv")
    assert len(Path("journal.csv").read_text().splitlines()) == 16 + 18  # all of them
    assert len(run("history", "visitors").stdout.splitlines()) == 1 + 20


def test_what_knows_no_purposes_is_given_one() -> None:
    with Ledger.open("budgets.db") as ledger:
        gate = ledger["visitors"].noted("run 7", actor="ada")
        assert isinstance(gate, dm.Gate)
        for _ in range(3):
            gate.spend(dm.Gaussian(100))
        assert gate.admits(dm.Gaussian(100))
        assert (gate.epsilon, gate.limit) == (ledger["visitors"].epsilon, 1.0)
        assert str(gate.guarantee()) == str(ledger["visitors"].guarantee())
        ledger.blocks("visits").noted("run 7", actor="ada").spend(dm.Gaussian(100))
        (use,) = usage([ledger["visitors"], *ledger.blocks("visits")], "purpose")
        assert (use.who, use.spends, use.steps, len(use.budgets)) == ("run 7", 4, 4, 13)
        assert "run 7" in repr(gate)
        assert not hasattr(gate, "nothing of the kind")
        with pytest.raises(TypeError, match="purpose must be text"):
            ledger["visitors"].noted(7)  # type: ignore[arg-type]


def test_a_group_is_read_and_taken_elsewhere_as_one() -> None:
    spend("--block", "2026-01..2026-03", "--actor", "ada", "--purpose", "report")
    spend("--block", "2026-02", "--actor", "bob")
    lines = run("history", "visits", "--block", "2026-01..2026-03").output.splitlines()
    assert len(lines) == 1 + 1 + 1 + 1  # opened, and spent in, by one request each
    assert lines[1].startswith("2026-01..2026-03")
    assert lines[2].startswith("2026-01..2026-03")
    assert lines[-1].startswith("2026-02 ")
    assert "bob" in lines[-1]
    told = json.loads(run("history", "visits", "--json", "--last", "2").output)
    assert [entry["budget"] for entry in told] == ["visits/2026-03", "visits/2026-02"]
    assert len(run("show", "visits", "--block", "2026-02..2026-03").output.splitlines()) == 3
    told = run("verify", "visits").output.splitlines()
    assert told[0].startswith(
        "visits: 12 blocks, 2026-01..2026-12: all 16 entries fit, epsilon at "
    )
    assert told[1:] == ["12 journals verified: all fit"]
    assert len(run("verify", "visits", "--block", "2026-02").output.splitlines()) == 1
    run("verify", "--block", "2026-02", code=2)
    run("export", "visits", "-o", "copy.jsonl")
    told = run("import", "copy.jsonl", "--db", "copy.db").output
    assert told.count("imported as a closed copy") == 12
    run("export", "visits", "--move", "new.db", "-o", "moved.jsonl")
    assert run("import", "moved.jsonl", "--db", "new.db").output.count("entries imported\n") == 12
    spend("--block", "2026-01", code=3)
    with Ledger.open("new.db") as ledger:
        assert ledger["visits/2026-02"].spend(dm.Gaussian(20)).sequence == 3
    # A file that was cut short adds what is whole before the cut, and says what is not.
    whole = Path("copy.jsonl").read_text().splitlines(keepends=True)
    Path("cut.jsonl").write_text("".join(whole[:-1]))
    done = run("import", "cut.jsonl", "--db", "cut.db", code=5)
    assert done.stdout.count("imported as a closed copy") == 11
    assert "cut short" in done.stderr
    Path("none.jsonl").write_text("\n")
    assert "cut short" in run("import", "none.jsonl", "--db", "cut.db", code=5).stderr


def test_blocks_are_closed_by_name_only() -> None:
    assert "--block 2026-01..2026-12 names all" in run("close", "visits", code=4).stderr
    run("close", "visits", "--block", "2026-01..2026-02")
    with Ledger.open("budgets.db") as ledger:
        closed = [one.name for one in ledger.statements() if one.closed]
    assert closed == ["visits/2026-01", "visits/2026-02"]


def test_a_plan_is_for_what_is_left() -> None:
    spend("--block", "2026-01", "--count", "10")
    two = ("plan", "visits", "--block", "2026-01..2026-02")
    asked = ("--noise-multiplier", "20")
    first, second = json.loads(run(*two, *asked, "--json").output)
    with Ledger.open("budgets.db") as ledger:
        assert first == {
            "budget": "visits/2026-01",
            "steps": ledger["visits/2026-01"].affordable(dm.Gaussian(20)),
        }
        assert first["steps"] == second["steps"] - 10
        (found,) = json.loads(run(*two[:3], "2026-01", "--steps", "8", "--json").output)
        noise = found["noise_multiplier"]
        assert ledger["visits/2026-01"].admits(dm.Gaussian(noise), 8)
        assert not ledger["visits/2026-01"].admits(dm.Gaussian(0.998 * noise), 8)
        ledger.create_odometer("clicks", 1e-6)
    assert "55.5 %" in run(*two, *asked).output
    assert "any" in run("plan", "clicks", *asked).output
    told = run(*two, "--noise-multiplier", "1", code=3).stderr
    assert "not enough is left; one step fits at noise" in told
    noise = told.split()[-1]
    run(*two, "--noise-multiplier", noise)
    assert "SampledGaussian" in run(*two, *asked, "--sample-rate", "0.01").output
    (counted,) = json.loads(run(*two[:3], "2026-02", "--zcdp", "0.005", "--json").output)
    assert counted["steps"] == dm.Filter(1.0, 1e-6).affordable(dm.Zcdp(rho=0.005))
    assert "not enough is left for one" in run(*two, "--pure", "5", code=3).stderr
    run(*two, *asked, "--zcdp", "0.005", code=2)
    run(*two, code=2)
    run(*two, *asked, "--steps", "3", code=2)
    run("close", "visitors")
    assert "at no noise" in run("plan", "visitors", *asked, code=3).stderr
