# SPDX-License-Identifier: Apache-2.0
"""The pages: signing in, forms that only this service can send, and what they show."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from dosimeter.ledger.activity import activities
from dosimeter.rounding import at_most, share_words
from dosimeter.service import shown, views
from service.servers import running

HTML = {"Accept": "text/html"}
NASTY = "<script>alert('x')</script>\"'&"


def word(page, path="/"):
    """What forms of the session carry."""
    return re.search(r'name="word" value="(\w+)"', page.get(path, headers=HTML).text)[1]


def post(page, path, **fields):
    return page.post(path, data={"word": word(page), **fields}, headers=HTML)


def test_whoever_has_not_signed_in_is_asked_to(client):
    for path in (
        "/",
        "/budget?name=patients",
        "/tokens",
        "/download?name=patients",
        "/events?name=patients",
    ):
        answer = client.get(path, headers=HTML, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    wrong = client.post("/login", data={"token": "dsm_000000000000_x"}, headers=HTML)
    assert wrong.status_code == 401
    assert "unknown, expired or revoked" in wrong.text


def test_the_cookie_is_no_token_and_no_script_can_read_it(client, bearer):
    token = bearer("reader:*")["Authorization"].removeprefix("Bearer ")
    done = client.post("/login", data={"token": token}, headers=HTML, follow_redirects=False)
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert token.lower() not in cookie
    secret = client.cookies["dosimeter"]
    assert (
        client.get("/v1/budgets", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    )
    assert client.get("/v1/budgets").status_code == 401, "the API does not take cookies"


def test_a_session_ends_when_signed_out_revoked_or_old(page, office, clock):
    def signed_in(browser):
        return browser.get("/", headers=HTML, follow_redirects=False).status_code == 200

    browser = page("reader:*")
    secret = browser.cookies["dosimeter"]
    post(browser, "/logout")
    browser.cookies.set("dosimeter", secret)
    assert not signed_in(browser)
    browser = page("reader:*", owner="bob")
    clock[0] += 13 * 3600
    assert not signed_in(browser)
    browser = page("reader:*", owner="eve")
    assert signed_in(browser)
    office.tokens.revoke(next(t.id for t in office.tokens.listed() if t.owner == "eve"), by="test")
    assert not signed_in(browser)


FORMS = ["/create", "/verify", "/tokens", "/tokens/revoke", "/logout"]
FORMS += ["/allowances", "/allowances/end", "/approval-line", "/requests/decide"]


@pytest.mark.parametrize("path", FORMS)
def test_forms_from_elsewhere_do_nothing(page, path):
    browser = page("admin:*")
    fields = {
        "name": "made",
        "epsilon": "1",
        "delta": "1e-6",
        "owner": "eve",
        "grants": "admin:*",
        "days": "1",
        "id": "x",
    }
    right = {"word": word(browser), **fields}
    before = browser.get("/tokens", headers=HTML).text
    for data, headers in [
        (fields, {}),
        ({**fields, "word": "0" * 64}, {}),
        (right, {"Origin": "https://evil.example"}),
        (right, {"Origin": "null"}),
        (right, {"Sec-Fetch-Site": "cross-site"}),
        (right, {"Sec-Fetch-Site": "same-site"}),
    ]:
        done = browser.post(path, data=data, headers={**HTML, **headers})
        assert done.status_code == 403, (data, headers)
    assert browser.get("/tokens", headers=HTML).text == before
    assert "made" not in browser.get("/", headers=HTML).text


def test_a_login_from_elsewhere_is_refused(client, bearer):
    token = bearer("reader:*")["Authorization"].removeprefix("Bearer ")
    headers = {**HTML, "Origin": "https://evil.example"}
    assert client.post("/login", data={"token": token}, headers=headers).status_code == 403
    assert "dosimeter" not in client.cookies


def test_a_budget_is_made_priced_verified_and_downloaded(page):
    browser = page("owner:*", owner="eve")
    made = post(browser, "/create", name="scans & more/1", epsilon="2", delta="1e-6", purpose="x")
    assert made.status_code == 200
    assert "scans &amp; more/1" in made.text
    asked = {"name": "scans & more/1", "mechanism": "gaussian", "numbers": "20", "count": "5"}
    told = browser.get("/budget", params=asked, headers=HTML).text
    assert "would take ε from 0 to" in told
    asked["count"] = "100000"
    assert "would be refused" in browser.get("/budget", params=asked, headers=HTML).text
    for wrong in (
        {"numbers": "NaN"},
        {"numbers": "-1"},
        {"numbers": "1,2,3"},
        {"count": "0"},
        {"count": "x"},
        {"mechanism": "none"},
    ):
        told = browser.get("/budget", params={**asked, **wrong}, headers=HTML)
        assert told.status_code == 200
        assert 'role="alert"' in told.text
    verified = post(browser, "/verify", name="scans & more/1")
    assert "all 1 entries fit" in verified.text
    lines = browser.get("/download", params={"name": "scans & more/1"}).text.splitlines()
    assert len(lines) == 2
    for fields in ({"epsilon": "x"}, {"epsilon": "-1"}, {"name": ""}):
        given = {"name": "other", "epsilon": "1", "delta": "1e-6", **fields}
        assert post(browser, "/create", **given).status_code in (404, 422)


def test_tokens_are_issued_shown_once_and_revoked(page):
    browser = page("admin:*", owner="root")
    made = post(
        browser, "/tokens", owner="bob", grants="reader:visits/* spender:patients", days="3"
    )
    token = re.search(r"dsm_[0-9a-f]+_[\w-]+", made.text)[0]
    listed = browser.get("/tokens", headers=HTML).text
    assert token not in listed
    id = token.split("_")[1]
    assert id in listed
    after = post(browser, "/tokens/revoke", id=id)
    assert "revoked" in after.text
    login = browser.post("/login", data={"token": token}, headers=HTML)
    assert login.status_code == 401
    assert post(browser, "/tokens", owner="bob", grants="king:*").status_code == 422
    assert page("owner:*").get("/tokens", headers=HTML).status_code == 403


def test_a_page_shows_nothing_outside_its_scope(page):
    browser = page("reader:visits/*")
    assert "patients" not in browser.get("/", headers=HTML).text
    assert "visits/2026-01" in browser.get("/", headers=HTML).text
    hidden, absent = (
        browser.get("/budget", params={"name": name}, headers=HTML)
        for name in ("patients", "nothing")
    )
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace("patients", "") == absent.text.replace("nothing", "")
    for path in ("/events", "/download"):
        assert browser.get(path, params={"name": "patients"}).status_code == 404


def test_what_people_write_is_shown_and_never_run(page, url):
    with Ledger.open(url) as beside:
        beside.create(NASTY, 1.0, 1e-6, actor=NASTY, purpose=NASTY)
        beside[NASTY].spend(dm.Gaussian(20.0), actor=NASTY, purpose=NASTY, key=NASTY)
    browser = page("admin:*")
    for path in ("/", "/budget"):
        text = browser.get(path, params={"name": NASTY, "containing": "alert"}, headers=HTML).text
        assert "&lt;script&gt;" in text
        assert "<script>alert" not in text
    wrong = browser.get(
        "/budget", params={"name": "patients", "mechanism": NASTY[:40]}, headers=HTML
    )
    assert "<script>alert" not in wrong.text


def test_nothing_on_a_page_needs_what_its_policy_forbids(page):
    browser = page("admin:*")
    for path in ("/", "/budget?name=patients", "/tokens", "/login"):
        text = browser.get(path, headers=HTML).text
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:|<script>|https?://", text)
        assert '<html lang="en">' in text
        assert re.search(r"<title>[^<]+</title>", text)
        labelled = re.sub(r"<label>.*?</label>", "", text, flags=re.DOTALL)
        assert not re.search(r"<(input(?! type=\"hidden\")|select|textarea)", labelled), path
    for name, kind in (
        ("report.css", "text/css"),
        ("office.css", "text/css"),
        ("office.js", "text/javascript"),
    ):
        assert browser.get(f"/static/{name}").headers["content-type"].startswith(kind)
    assert browser.get("/static/..%2foffice.py").status_code == 404


def test_a_page_is_told_of_a_spend_by_another_program(url):
    with Ledger.open(url) as beside, running(url) as service:
        beside.create("patients", 3.0, 1e-6)
        secret = service.office.tokens.open_session(service.token("reader:*"))
        cookies = {"dosimeter": secret}
        told = []

        def listen():
            with httpx.stream(
                "GET", f"{service.address}/events?name=patients", cookies=cookies, timeout=20
            ) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data"):
                        told.append(line)
                    if len(told) == 2:
                        return

        listener = threading.Thread(target=listen)
        listener.start()
        while not told and listener.is_alive():
            time.sleep(0.01)
        beside["patients"].spend(dm.Gaussian(20.0))
        listener.join(20)
        assert len(set(told)) == 2


def test_a_broken_budget_hides_no_other(page, office, monkeypatch):
    from dosimeter.ledger import Budget, JournalError

    plain = Budget.statement

    def broken(self):
        if self.name == "patients":
            raise JournalError("a row was edited")
        return plain(self)

    browser = page("reader:*")
    monkeypatch.setattr(Budget, "statement", broken)
    text = browser.get("/", headers=HTML).text
    assert "a row was edited" in text
    assert "visits/2026-01" in text


class TestUses:
    """Who took how much, each as if alone: it does not matter who came first."""

    def rows(self, page, name):
        html = page.get("/budget", params={"name": name}, headers=HTML).text
        table = html.partition("<h2>By person</h2>")[2].partition("</table>")[0]
        return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]], html

    def test_equal_spends_are_equal_shares_whoever_came_first(self, page, url):
        with Ledger.open(url) as ledger:
            for who in ("ada", "bob"):
                ledger["patients"].spend(dm.Gaussian(30.0), 20, actor=who)
        rows, html = self.rows(page("reader:*"), "patients")
        (ada, *same), (bob, *others) = rows
        assert (ada, bob) == ("ada", "bob")
        assert same == others
        alone = dm.Filter(3.0, 1e-6)
        alone.spend(dm.Gaussian(30.0), 20)
        assert same == ["20", at_most(alone.epsilon), share_words(alone.spent_share)]
        assert "nearly adds up" in html

    def test_what_was_given_back_and_what_was_refused_is_nobodys(self, page, url):
        with Ledger.open(url) as ledger:
            budget = ledger["patients"]
            budget.spend(dm.Gaussian(30.0), actor="ada")
            with budget.reserve(dm.Gaussian(30.0), 5, actor="bob"):
                pass
            with pytest.raises(dm.BudgetExceeded):
                budget.spend(dm.Gaussian(0.1), actor="eve")
        rows, _ = self.rows(page("reader:*"), "patients")
        assert [row[:2] for row in rows] == [["ada", "1"]]

    def test_a_long_journal_is_spoken_of_from_where_the_page_begins(self, page, url, monkeypatch):
        """A reservation from before may be given back in it, and is nobody's."""
        monkeypatch.setattr(shown, "_ENTRIES", 4)
        with Ledger.open(url) as ledger:
            budget = ledger["patients"]
            budget.spend(dm.Gaussian(30.0), actor="ada")
            with budget.reserve(dm.Gaussian(30.0), 5, actor="bob"):
                for who in ("eve", "eve", "cyd"):
                    budget.spend(dm.Gaussian(30.0), actor=who)
        rows, html = self.rows(page("reader:*"), "patients")
        assert [row[:2] for row in rows] == [["eve", "2"], ["cyd", "1"]]
        assert "This speaks of the last 4 entries." in html

    def test_of_many_those_who_took_most_are_listed(self, page, url):
        with Ledger.open(url) as ledger:
            for number in range(15):
                cost = dm.Gaussian(30.0 if number == 13 else 3000.0)
                ledger["patients"].spend(cost, actor=f"p{number:02}")
        rows, html = self.rows(page("reader:*"), "patients")
        assert rows[0][0] == "p13"
        assert len(rows) == 12
        assert all(row[-1] != "0 %" for row in rows)
        assert "and 3 others" in html

    def test_without_a_limit_there_is_nothing_to_use_up(self, page, url):
        with Ledger.open(url) as ledger:
            ledger.create_odometer("clicks", 1e-6).spend(dm.Gaussian(30.0), actor="ada")
        rows, html = self.rows(page("reader:*"), "clicks")
        assert [len(row) for row in rows] == [3]
        assert "used up</th>" not in html


class TestViews:
    def entries(self, url, moments):
        clock = [datetime(2026, 1, 1, tzinfo=UTC)]
        with Ledger.open(url, clock=lambda: clock[0]) as ledger:
            budget = ledger.create("b", 3.0, 1e-6)
            for hours, who in moments:
                clock[0] += timedelta(hours=hours)
                budget.spend(dm.Gaussian(30.0), actor=who, purpose="p" if who == "ada" else "q")
            return budget.statement(), budget.history(), budget

    def test_runs_are_grouped_and_what_is_left_is_drawn(self, url):
        statement, entries, _ = self.entries(url, [(1, "ada"), (1, "ada"), (1, "bob"), (1, "ada")])
        assert [(one.first.actor, one.steps) for one in activities(entries)[1:]] == [
            ("ada", 3),
            ("bob", 1),
        ]
        assert views.short(activities(entries)[1].costs[0]) == "gaussian 30"
        assert "ε left" in views.burn_down(statement, entries)

    def test_a_budget_that_goes_at_a_steady_pace_ends_when_it_says(self, url):
        _, entries, budget = self.entries(url, [(24, "ada")] * 10)
        now = datetime(2026, 1, 12, tzinfo=UTC)
        cost = views.usual_cost(entries)
        left = budget.affordable(dm.Gaussian(30.0))
        ends = views.forecast(entries, cost, left, now)
        # Ten in the ten days since the first, so as many days as are left.
        assert ends == (now + timedelta(days=left)).date().isoformat()
        soon = datetime(2026, 1, 2, 0, 30, tzinfo=UTC)
        assert views.forecast(entries, cost, left, soon) is None
        assert views.forecast(entries, cost, 0, now) is None
        assert views.forecast(entries, cost, 2**53, now) is None
        assert views.usual_cost(entries[:1]) is None
