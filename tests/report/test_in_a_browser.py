"""The page in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

import os
import pathlib

import pytest

from dosimeter.report import write
from report.browser import CHROMIUM, Browser
from saved_runs import ODOMETER, history, save_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium on the path"),
]

FACTS = """(() => {
  const texts = [...document.querySelectorAll('svg text')];
  const outside = texts.filter(t => {
    const svg = t.ownerSVGElement.getBoundingClientRect(), box = t.getBoundingClientRect();
    return box.left < svg.left - 1 || box.right > svg.right + 1;
  }).map(t => t.textContent);
  const sizes = texts.map(t => t.getBoundingClientRect().height);
  return {
    outside, smallest: Math.min(...sizes),
    paper: getComputedStyle(document.body).backgroundColor,
    figures: document.querySelectorAll('figure').length,
    tips: document.querySelectorAll('svg title').length,
  };
})()"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture
def page(tmp_path):
    long = "a long name_without_any_place_to_break_it_that_is_wider_than_the_screen_of_a_phone"
    folders = [
        save_run(tmp_path / "a", history(30), {"name": "fixed noise", "limit": 4.0}),
        save_run(tmp_path / "b", history(40), {"name": long, "limit": 3.5}),
        save_run(tmp_path / "c", history(20, ODOMETER), {"name": "early stopping"}),
    ]
    write(folders, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    # With every table open: that is where a page would grow too wide.
    (tmp_path / "report.html").write_text(text.replace("<details>", "<details open>"), "utf-8")
    return tmp_path / "report.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_it_shows_well(browser, page, width, dark):
    shown = browser.show(page, width=width, dark=dark, script=FACTS)
    assert shown.requests == [page.as_uri()]
    assert shown.complaints == []
    assert shown.content_width == width
    assert shown.facts["outside"] == []
    assert shown.facts["smallest"] >= 10
    assert shown.facts["figures"] == 6
    assert shown.facts["tips"] > 200
    assert shown.facts["paper"] == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
    assert shown.picture.startswith(b"\x89PNG")
    # To look at them: DOSIMETER_SHOTS=shots pytest -m slow tests/report
    if folder := os.environ.get("DOSIMETER_SHOTS"):
        pathlib.Path(folder).mkdir(exist_ok=True)
        name = f"report-{width}-{'dark' if dark else 'light'}.png"
        (pathlib.Path(folder) / name).write_bytes(shown.picture)
