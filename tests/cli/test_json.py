"""What `--json` prints is one value, with the names that docs/json.md says."""

import json
import pathlib
import re

import pytest
from typer.testing import CliRunner

from dosimeter.cli.app import app

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
SPEND = "budget spend patients visits/1 --gaussian 20"


@pytest.fixture(scope="module", autouse=True)
def _budgets(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOSIMETER_DB", f"sqlite:///{tmp_path_factory.mktemp('json')}/budgets.db")
        run("budget create patients --epsilon 1 --delta 1e-6")
        run("budget create visits --epsilon 1 --delta 1e-6 --block 1 --block 2")
        run(SPEND)
        yield


def run(words):
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def said(start):
    """The names in the row of the table, or the sentence, that begins so."""
    (text,) = re.findall(rf"{re.escape(start)}(.*?)(?: \|\n|[.;](?: |\n))", PAGE, re.DOTALL)
    return re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", text))


COMMANDS = {
    "plan": "plan --epsilon 3 --delta 1e-6 --noise-multiplier 30",
    "compare": "compare --delta 1e-6 --noise-multiplier 30 --steps 9 --points 2 --no-menu",
    "attack": "attack",
    "budget usage": "budget usage patients",
    "budget verify": "budget verify",
    "budget plan": "budget plan patients --noise-multiplier 20",
}


@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=pytest.mark.slow) if name == "attack" else name for name in COMMANDS],
)
def test_commands_print_what_the_page_says(command):
    words = said(f"| `dosimeter {command} --json` |")
    printed = json.loads(run(f"{COMMANDS[command]} --json"))
    whole = printed[0] if isinstance(printed, list) else printed
    inner = [one for value in whole.values() for one in _objects(value)]
    names = {*whole, *(name for one in inner for name in one)}
    if command == "budget plan":
        words.remove("noise_multiplier")
    if command == "plan":
        names -= {"kind"}  # of the cost, which is written as in journals
    if command == "budget verify":
        names -= {"memory"}  # of --remember, and null
    assert names == set(words)


def _objects(value):
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [value[0]]
    return []


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("A **statement** has", "budget list"),
        ("A **statement** has", "budget show visits"),
        ("A **receipt** has", SPEND),
        ("An **entry** has", "budget history patients"),
    ],
)
def test_statements_receipts_and_entries_are_as_the_page_says(what, command):
    printed = json.loads(run(f"{command} --json"))
    assert isinstance(printed, list)
    assert set(printed[0]) == set(said(what)) - {"filter", "odometer"}


def test_one_budget_is_shown_with_more():
    shown = json.loads(run("budget show patients --json"))
    more = {"spent_share", "guarantee", "last_cost", "affordable"}
    assert set(shown) == {*said("A **statement** has"), *more}
    assert all(f"`{name}`" in PAGE for name in more)
