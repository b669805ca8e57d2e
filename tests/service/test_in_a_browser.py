# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: they follow spends by themselves, fit, and can be read."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from datetime import date, timedelta
from types import SimpleNamespace

import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from dosimeter.service import Caller, Grant
from dosimeter.service.runs import Report
from dosimeter.watching import STOPPED, watched
from report.browser import CHROMIUM, Browser
from service.servers import Process, free_port, running

ROOT = Caller("t", "root", (Grant.read("admin:*"),))
REPORT = Report(
    id="5" * 24,
    name="night run",
    epochs=20,
    done=40,
    left=700.0,
    limit=3.0,
    state="running",
    history=[
        dict(
            epoch=epoch,
            epsilon=0.9 * epoch**0.5,
            noise_multiplier=1.1,
            batch_size=512,
            loss=2.3 / epoch**0.3,
            accuracy=0.9 - 0.5 / epoch,
        )
        for epoch in range(1, 9)
    ],
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium on the path"),
]

CONTRAST = """(() => {
  const parts = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = parts(c).map((v) => v / 255).map(
      (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor, p = parts(c);
      if (p.length < 4 || p[3] > 0) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.tagName === 'SCRIPT' || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const ink = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(ink), light(paper(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(e.textContent.trim().slice(0, 40));
  }
  return low;
})()"""


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('office')}/budgets.db"
    with running(url) as service, Ledger.open(url) as beside:
        budget = beside.create("patients", 3.0, 1e-6)
        for who in ("ada", "bob"):
            budget.spend(dm.Gaussian(30.0), actor=who, purpose="mean age")
        beside.create_blocks("visits", ["a", "b", "c"], 1.0, 1e-6)
        beside["visits/a"].spend(dm.Gaussian(4.75))
        stays = beside.create_stream("stays", "day", 1.0, 1e-6, since=date.today() - timedelta(40))
        stays.spend(dm.Gaussian(15.0), last=9)
        stays.spend(dm.Gaussian(9.0), last=3)
        stays.spend(dm.Gaussian(6.5), last=1)
        service.office.runs.report(ROOT, REPORT)
        yield SimpleNamespace(
            address=service.address,
            runs=service.office.runs,
            token=service.token("spender:*", owner="trainer"),
            ledger=beside,
            secret=service.office.tokens.open_session(service.token("admin:*", owner="root")),
        )


@pytest.fixture(scope="module")
def browser(office):
    with Browser() as opened:
        cookie = {"name": "dosimeter", "value": office.secret, "url": office.address}
        opened.ask("Storage.setCookies", cookies=[cookie])
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/budget?name=patients&mechanism=gaussian&numbers=20&count=900000",
        "/stream?name=stays&mechanism=gaussian&numbers=20&last=30",
        "/runs",
        f"/run?id={REPORT.id}",
        "/tokens",
    ],
)
def test_it_fits_and_can_be_read(browser, office, path, width, dark):
    there = SimpleNamespace(as_uri=lambda: office.address + path)
    shown = browser.show(there, width=width, dark=dark, script=CONTRAST)
    assert shown.complaints == []
    assert shown.content_width <= width
    assert shown.facts == []
    assert all(asked.startswith((office.address, "data:")) for asked in shown.requests)


class Tab:
    """A page that stays open."""

    def __init__(self, browser, url):
        self._browser = browser
        target = browser.ask("Target.createTarget", url=url)["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]

    def value(self, script):
        done = self._browser.ask(
            "Runtime.evaluate", self._session, expression=script, returnByValue=True
        )
        return done["result"].get("value")

    def wait_for(self, script):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # between two pages there is none
                if self.value(f"!!({script})"):
                    return
            time.sleep(0.05)
        pytest.fail(f"{script}: {self.value('document.body.innerText')}")

    def fill(self, form, **fields):
        """Fills a form of the page as a person would, and sends it."""
        found = f"document.querySelector('form[action=\"{form}\"]')"
        self.wait_for(found)
        for name, text in fields.items():
            self.value(f"{found}.querySelector('[name={name}]').value = {json.dumps(text)}")
        self.value(f"{found}.querySelector('button').click()")

    def says(self, text):
        self.wait_for(f"document.body && document.body.innerText.includes({json.dumps(text)})")


def test_a_person_creates_watches_asks_and_revokes(browser, office):
    tab = Tab(browser, office.address)
    tab.fill("/create", name="from the page", epsilon="2", delta="1e-6", purpose="to see")
    tab.says("a limit that is never passed")
    tab.says("live")
    office.ledger["from the page"].spend(dm.Gaussian(20.0), actor="someone elsewhere")
    tab.says("someone elsewhere")
    tab.fill("/budget#what-if", numbers="25", count="3")
    tab.says("would take ε from")
    tab.fill("/verify")
    tab.says("all 2 entries fit")
    tab.value(f"location.href = '{office.address}/tokens'")
    tab.fill("/tokens", owner="carol", grants="reader:*", days="2")
    tab.says("The token of carol")
    tab.fill("/tokens/revoke")
    tab.says("revoked")


class Run:
    steps, steps_per_epoch, stopped = 0, 10, None

    def stop(self, reason):
        self.stopped = reason


def test_a_run_is_followed_and_stopped_by_its_button(browser, office, monkeypatch):
    monkeypatch.setenv("DOSIMETER_TOKEN", office.token)
    run, row = Run(), SimpleNamespace(**REPORT.history[0].model_dump())
    with watched(office.address, run, name="seen", epochs=2, ended=lambda: run.stopped) as tell:
        (id,) = [one.id for one in office.runs.listed(ROOT) if one.status["name"] == "seen"]
        tab = Tab(browser, f"{office.address}/run?id={id}")
        tab.says("0 % done")
        tab.says("live")
        run.steps = 10
        tell(row)
        tab.says("50 % done")
        tab.says("2.300")
        tab.fill("/runs/stop")
        tab.says("It will stop at its next step")
        end = time.monotonic() + 30
        while run.stopped is None and time.monotonic() < end:
            time.sleep(0.02)
        assert run.stopped == STOPPED
    tab.says(f"It ended: {STOPPED}")


def test_a_page_finds_its_way_back_after_the_server_was_killed(browser, tmp_path):
    url, port = f"sqlite:///{tmp_path}/budgets.db", free_port()
    server = Process(url, port)
    try:
        with Ledger.open(url) as beside:
            beside.create("patients", 3.0, 1e-6)
            token = server.first_token()
            tab = Tab(browser, server.address)
            tab.fill("/login", token=token)
            tab.says("live")
            server.end(signal.SIGKILL)
            tab.says("not connected")
            server = Process(url, port)
            tab.says("live")
            beside["patients"].spend(dm.Gaussian(20.0), actor="someone elsewhere")
            tab.says("someone elsewhere")
    finally:
        server.end()
