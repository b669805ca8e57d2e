"""The table that every command with rows prints, or writes as CSV."""

from __future__ import annotations

import csv

import pytest

from dosimeter.cli.output import Table, printable, require_csv

USE = Table(
    ("who", "purpose", "steps"),
    [("ada", "the mean age of all patients", 1000), ("bob", "", 7)],
    right=("steps",),
    title="use\nof patients",
)


def printed(table, capsys, monkeypatch, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    table.print()
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_aligns_its_columns_under_its_title(capsys, monkeypatch):
    assert printed(USE, capsys, monkeypatch) == [
        "use",
        "of patients",
        "",
        "who  purpose                       steps",
        "ada  the mean age of all patients   1000",
        "bob                                    7",
    ]


@pytest.mark.parametrize("columns", [40, 30, 24, 20])
def test_in_a_narrow_terminal_words_fold_and_nothing_is_lost(columns, capsys, monkeypatch):
    lines = printed(USE, capsys, monkeypatch, columns)[3:]
    assert max(map(len, lines)) <= columns
    assert [line.split()[-1] for line in lines if line[:3] in ("ada", "bob")] == ["1000", "7"]
    letters = "".join(line[5:-5] if "1000" in line else line[5:] for line in lines[1:-1])
    assert letters.replace(" ", "") == "themeanageofallpatients"


def test_cells_and_titles_do_not_draw_on_the_terminal(capsys, monkeypatch):
    table = Table(("who",), [("[red]eve\x1b[2J\n[/red]",)], title="by [bold]\x1b[2J")
    assert printed(table, capsys, monkeypatch) == [
        "by [bold]\\x1b[2J",
        "",
        "who",
        "[red]eve\\x1b[2J\\n[/red]",
    ]
    assert printable("a\u202eb\tc é") == "a\\u202eb\\tc é"


def test_long_cells_are_cut_for_people_only(tmp_path, capsys, monkeypatch):
    table = Table(("purpose",), [("x" * 300,)])
    assert "".join(printed(table, capsys, monkeypatch)[1:]) == "x" * 200
    table.write_csv(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == f"purpose\n{'x' * 300}\n"


def test_a_csv_file_holds_headings_and_cells_as_they_are(tmp_path):
    rows = [("a,b", 1.5, ""), ('"c"\n', 2, "[red]")]
    Table(("name", "epsilon", "note"), rows, right=("epsilon",), title="no").write_csv(
        tmp_path / "out.csv"
    )
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert found == [["name", "epsilon", "note"], ["a,b", "1.5", ""], ['"c"\n', "2", "[red]"]]
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("name", ["out.html", "out", "out.csv.txt", ".csv"])
def test_files_are_csv(name, tmp_path):
    require_csv(None)
    require_csv(tmp_path / "out.CSV")
    with pytest.raises(ValueError, match=r"--out must end in \.csv, got"):
        require_csv(tmp_path / name)
