"""Every command explains itself: help that fits a screen, with examples that work."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

import dosimeter
from dosimeter.cli.app import app
from saved_runs import save_run, save_trained

PROGRAM = [sys.executable, "-c", "from dosimeter.cli import main; main()"]
SLOW = {"demo", "plan", "train", "audit", "attack"}
TABLE = "compare --delta 1e-6 --noise-multiplier 30 --steps 3 --no-menu".split()
COLUMNS, LINES = 80, 40


def commands() -> Iterator[tuple[str, ...]]:
    """The root, its commands and theirs."""
    found = [((), typer.main.get_command(app))]
    while found:
        path, command = found.pop(0)
        yield path
        for name, child in getattr(command, "commands", {}).items():
            found.append(((*path, name), child))


@functools.cache
def help_of(path: tuple[str, ...]) -> str:
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="dosimeter", env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("path", list(commands()), ids="-".join)
def test_one_letter_is_enough_to_ask_for_help(path):
    short = CliRunner().invoke(app, [*path, "-h"], prog_name="dosimeter", env={"COLUMNS": "80"})
    assert (short.exit_code, short.output) == (0, help_of(path))
    assert "-h, --help" in short.output


def examples(text: str) -> list[str]:
    """The commands under "Example:", those over two lines as one."""
    block = re.search(r"^  Example:\n((?:    .*\n)+)", text, re.MULTILINE)
    assert block, text
    return [line.strip() for line in re.sub(r"\\\n\s+", "", block[1]).splitlines()]


ALL = list(commands())
WITH_EXAMPLES = [path for path in ALL if path]


@pytest.mark.parametrize("path", ALL, ids="-".join)
def test_help_fits_a_screen(path):
    lines = help_of(path).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert not any(line.rstrip().endswith("...") for line in lines if line.startswith("  "))


@pytest.mark.parametrize("path", ALL, ids="-".join)
def test_help_names_values_in_plain_words(path):
    text = help_of(path)
    assert not re.search(r"<\w|list\[|\bstr\b|\bfloat\b", text)
    values = re.findall(r"^  (?:-\w, )?--[\w-]+ (\S+)", text, re.MULTILINE)
    assert all(value == value.upper() for value in values), values


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=pytest.mark.slow if " ".join(path) in SLOW else (), id="-".join(path)
        )
        for path in WITH_EXAMPLES
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_examples_in_help_work(path):
    found = examples(help_of(path))
    assert found
    for example in found:
        words = shlex.split(example)
        assert words[: len(path) + 1] == ["dosimeter", *path]
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, (example, done.output)


@pytest.fixture
def folder(path, tmp_path, monkeypatch):
    """A folder with what examples speak of: budgets, an export of one, and two runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    for name in ("guessed-rate", "no-guess"):
        save_run(tmp_path / "runs" / name)
    if path == ("predict",):
        save_trained(tmp_path / "run", tmp_path / "patients.csv")
    if path == ("train",):
        table = "age,pulse,diagnosis\n" + "40,70,well\n60,90,ill\n" * 20
        (tmp_path / "patients.csv").write_text(table)
    lines = []
    if path[0] == "budget" and path[-1] not in ("budget", "create"):
        lines += [
            "create patients --epsilon 3 --delta 1e-6",
            "create clicks --odometer --delta 1e-6",
            "create visits --epsilon 1 --delta 1e-6 --block 2026-01 --block 2026-02",
        ]
    if path == ("budget", "import"):
        lines.append("export patients --move other.db -o patients.jsonl")
    for line in lines:
        assert CliRunner().invoke(app, ["budget", *line.split()]).exit_code == 0
    if path[0] == "stream" and path[-1] not in ("stream", "create"):
        from dosimeter.ledger import Ledger

        with Ledger.open("budgets.db") as ledger:
            ledger.create_stream("visits", "day", 1.0, 1e-6)
            ledger.create_stream("uploads", "shard", 1.0, 1e-6)
    if path == ("serve",):
        monkeypatch.setattr("dosimeter.service.serve", lambda *_, **__: None)
    if path[0] == "allowance":
        from dosimeter.service import Office

        with Office("budgets.db") as office:
            office._ledger.create("patients", 3.0, 1e-6)
            if path == ("allowance", "end"):
                office.allowances.give("patients", "cardio", ["ada"], 0.5, by="test")
    if path[0] == "token":
        from dosimeter.service import Grant, Office, tokens

        with Office("budgets.db") as office, monkeypatch.context() as known:
            known.setattr(tokens.secrets, "token_hex", lambda _: "3f9a1c0b7d52")
            office.tokens.issue("ada", [Grant.read("reader:*")], issued_by="test")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_version():
    assert run("--version").stdout == f"dosimeter {dosimeter.__version__}\n"


def test_no_words_show_help():
    done = run()
    assert done.returncode == 2
    assert "Commands:" in done.stderr


def test_colours_are_for_terminals():
    done = run(*TABLE, TERM="xterm-256color")
    assert done.returncode == 0
    assert "UNSOUND" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(("quiet", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_on_a_terminal_unless_unwanted(quiet, coloured):
    """Bold may stay where NO_COLOR is set; colours may not."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment |= {"TERM": "xterm-256color", **quiet}
    with subprocess.Popen([*PROGRAM, *TABLE], stdout=theirs, env=environment) as process:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:
            pass  # the terminal ends when nobody writes to it any more
    os.close(ours)
    assert process.returncode == 0
    assert (b"\x1b[31m" in text) == coloured


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell):
    words = {
        "COMP_WORDS": "dosimeter bud",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "dosimeter bud",
    }
    done = run(
        _DOSIMETER_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **words
    )
    assert "budget" in done.stdout


def test_completion_can_be_installed():
    text = help_of(())
    assert "--install-completion" in text
    assert "--show-completion" in text


def test_a_terminal_without_our_letters_gets_their_codes():
    done = run(*TABLE, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "R\\xe9nyi, tight" in done.stdout
