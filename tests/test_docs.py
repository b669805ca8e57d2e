"""Every block of Python and every command in README and docs runs, and prints what it says."""

import contextlib
import inspect
import io
import pathlib
import pkgutil
import re
import subprocess
import tomllib

import pytest

from blocks import blocks
from service.servers import free_port
from shells import shell

ROOT = pathlib.Path(__file__).parent.parent
INTEGRATIONS = sorted((ROOT / "docs" / "integrations").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *INTEGRATIONS]
SHELLS = ("bash", "sh", "console")

EXEMPT = {
    "git clone": "the address is the reader's",
    "make ": "builds an environment of its own, with packages from the network",
    "pip install": "the packages are there, or the tests would not run",
}
"""Commands that are not run, and why."""

ELSEWHERE = {
    "postgresql://ledger@db.example.org/privacy": "sqlite:///team.db",
    "8421": str(free_port()),
}
"""A server that is not there is played by a file, and a port that is taken by one that is not."""

SLOW = (
    "dosimeter demo",
    "dosimeter plan",
    "dosimeter train",
    "dosimeter audit",
    "dosimeter attack",
)
"""Commands that take long; pages with one of them are run with the slow tests."""


ONCE = {
    "dosimeter budget export": "never writes over a file, and a budget is moved once",
    "dosimeter budget import": "a budget is imported once",
    "dosimeter train": "never writes over a run",
}
"""Pages, and commands of others, that a reader cannot run twice in one folder, and why."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all pages: a reader goes from one to the next."""
    return tmp_path_factory.mktemp("reader")


def pages_with_commands():
    for page in PAGES:
        text = "".join(code for code, _ in blocks(page, *SHELLS))
        slow = any(command in text for command in SLOW)
        if text:
            yield pytest.param(page, marks=pytest.mark.slow if slow else (), id=page.name)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(code, said, id=f"{page.name}-{number}")
        for page in PAGES
        if page not in INTEGRATIONS  # tests/integrations runs each where its library is
        for number, (code, said) in enumerate(blocks(page, "python"), 1)
    ],
)
def test_code_blocks_run_and_print_what_they_say(code, expected, folder, monkeypatch):
    """After all others in one folder; and twice, where something is left in it."""
    monkeypatch.chdir(folder)
    for _ in range(2 if "Ledger" in code else 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "page", "exec"), {"__name__": "page"})
        if expected:
            assert out.getvalue() == expected


@pytest.mark.parametrize("page", list(pages_with_commands()))
def test_commands_run_and_print_what_they_say(page, folder, tmp_path):
    """All blocks of a page in one shell, as a reader types them, after all other pages.

    But for pages that train: a run is never written over, and two of them name it alike.
    """
    found = blocks(page, *SHELLS)
    if any("dosimeter train" in code for code, _ in found):
        folder = tmp_path / "work"
    done = typed([runnable(code) for code, _ in found], folder, tmp_path)
    printed = done.stdout.split("=== end of block\n")
    for (_, said), out in zip(found, printed, strict=False):
        if said:
            assert [line.rstrip() for line in out.splitlines()] == said.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("page", list(pages_with_commands()))
def test_commands_run_twice_in_one_folder(page, tmp_path):
    """But for what is done once by its nature."""
    whole = [runnable(code) for code, _ in blocks(page, *SHELLS)]
    typed(whole, tmp_path / "again", tmp_path)
    again = [
        "\n".join(line for line in code.splitlines() if not line.startswith(tuple(ONCE)))
        for code in whole
    ]
    typed(again, tmp_path / "again", tmp_path)


def typed(commands, folder, tmp_path):
    """Blocks of commands in one shell, which stops at the first that fails."""
    folder.mkdir(exist_ok=True)
    script = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"  # whatever becomes of the rest
    script += "".join(f"{code}\necho '=== end of block'\n" for code in commands)
    with shell(tmp_path) as environment:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done


def runnable(code):
    """The commands that are run, with what they cannot reach replaced."""
    lines = [line for line in code.splitlines() if not line.startswith(tuple(EXEMPT))]
    text = "\n".join(line.removeprefix("$ ") for line in lines)
    for there, here in ELSEWHERE.items():
        text = text.replace(there, here)
    return text


def test_every_page_of_an_integration_is_run():
    folders = ROOT / "tests" / "integrations"
    tests = "".join(path.read_text(encoding="utf-8") for path in folders.rglob("test_*.py"))
    for page in INTEGRATIONS:
        assert f'run_page("{page.stem}")' in tests, page.name


def test_every_example_is_named_where_a_reader_looks():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").rglob("*"):
        if path.suffix in (".py", ".ipynb"):
            name = str(path.relative_to(ROOT))
            assert name in readme or str(path.parent.relative_to(ROOT)) + ")" in readme, name


def test_what_to_install_is_the_first_line_of_every_integration():
    for page in INTEGRATIONS:
        title, _, line, *_ = page.read_text(encoding="utf-8").splitlines()
        assert title.startswith("# "), page.name
        assert line.startswith("`pip install "), page.name


def test_no_page_has_blocks_that_nothing_checks():
    """A fence in another language would be code that no test runs."""
    for page in PAGES:
        languages = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(languages) <= {"python", "text", "toml", "", *SHELLS}, page.name


def test_every_command_has_an_entry_in_the_pages():
    import typer

    from dosimeter.cli.app import app

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in typer.main.get_command(app).commands:
        assert f"dosimeter {name}" in text, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), f"{target}#{anchor}"


def anchors(page):
    """The names of a page's headings, as they are made from their words."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_pages_say_of_defaults_and_menus_is_so():
    """The two pages that speak of what the code does without being asked."""
    from dosimeter.ledger import Ledger
    from dosimeter.runs.config import BudgetTable, SignalTable

    page = " ".join((ROOT / "docs" / "train-without-python.md").read_text().split())
    default = SignalTable()
    assert not default.public
    said = f"private `{default.kind}` of the training records with `noise_multiplier = "
    assert f"{said}{default.noise_multiplier:g}`" in page
    assert "`menu = false` turns it off" in page
    assert "takes a menu as a `Filter` does" in (ROOT / "docs" / "prices.md").read_text().replace(
        "\n", " "
    )
    for other in (Ledger.create, Ledger.create_odometer, Ledger.create_blocks, BudgetTable):
        assert "menu" in inspect.signature(other).parameters


def test_what_to_install_is_said_as_it_works():
    """Nothing is on a registry, so only the clone itself can be installed, with an extra it has.

    And in the versions that were tested.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for path in [*PAGES, *sorted((ROOT / "src").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install ['\"]?dosimeter", text), path
        for how, named in re.findall(r"pip install ([^\n]*?)'\.\[([\w,]+)\]", text):
            assert set(named.split(",")) <= set(extras), path
            assert how == "-c constraints.txt ", (path, "or pip takes a torch of gigabytes")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_rounds_an_epsilon_to_nearest(page):
    """One number in two forms is two numbers to a reader: an epsilon for people is rounded up."""
    assert not re.search(r"epsilon[^{}\n]*:\.\d", page.read_text(encoding="utf-8"))


def test_the_guarantee_table_names_tests_that_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    page = (ROOT / "docs" / "guarantees.md").read_text()
    for name in re.findall(r"`(test_\w+)`", page):
        assert f"def {name}(" in tests, name
    for path in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (ROOT / path).exists(), path


def test_pages_say_nothing_of_the_machines_they_were_written_on():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]:
        assert not re.search(r"/(home|root|tmp)/", page.read_text())


def test_the_site_has_pages_and_names_that_exist():
    """`make docs` fails at a page or a link that is missing; this is quicker."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"[\w/-]+\.md", site)) <= there
    assert "http" not in site, "pages are built and read without the network"
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE):
            assert pkgutil.resolve_name(name).__doc__, name
