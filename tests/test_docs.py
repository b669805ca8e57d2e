"""Every Python block in README and docs runs, and prints what the page says it prints."""

import contextlib
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
BLOCKS = [
    pytest.param(code, expected, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (code, expected) in enumerate(BLOCK.findall(page.read_text()), 1)
]


@pytest.mark.parametrize(("code", "expected"), BLOCKS)
def test_code_blocks_run_and_print_what_they_say(code, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "page", "exec"), {"__name__": "page"})
    if expected:
        assert out.getvalue() == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


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
