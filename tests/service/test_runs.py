# SPDX-License-Identifier: Apache-2.0
"""Runs report to a service, are seen by those who may, and stop when told to."""

from __future__ import annotations

import secrets
import time
from types import SimpleNamespace

import pytest

from dosimeter import watching
from dosimeter.service import Caller, Grant
from dosimeter.service.runs import Report
from dosimeter.watching import STOPPED, watched
from service.servers import running
from service.test_pages import post

HTML = {"Accept": "text/html"}
ROW = {
    "epoch": 1,
    "spent_share": 0.25,
    "epsilon": 0.5,
    "noise_multiplier": 1.0,
    "batch_size": 8,
    "loss": 0.25,
}


def report(**named):
    made = {"id": secrets.token_hex(12), "name": "night run", "epochs": 3, "done": 10}
    return {**made, "state": "running", "history": [ROW], "budget": "patients", **named}


def tell(client, headers, **named):
    told = report(**named)
    answer = client.post("/v1/runs", json=told, headers=headers)
    assert answer.status_code == 200, answer.text
    return told["id"], answer.json()["stop"]


def ids(client, headers):
    return {one["id"] for one in client.get("/v1/runs", headers=headers).json()}


def test_who_sees_a_run_and_who_may_stop_it(client, bearer):
    ada = bearer("spender:patients")
    id, stop = tell(client, ada)
    assert stop is False
    other = bearer("reader:patients", owner="bob")
    stranger = bearer("owner:visits/*", owner="eve")
    assert (
        ids(client, ada) == ids(client, other) == ids(client, bearer("admin:*", owner="r")) == {id}
    )
    assert ids(client, stranger) == set()
    halt = {"id": id}
    assert client.post("/v1/runs/stop", json=halt, headers=other).status_code == 403
    assert client.post("/v1/runs/stop", json=halt, headers=stranger).status_code == 422
    assert tell(client, ada, id=id)[1] is False
    owner = bearer("owner:patients", owner="olga")
    assert client.post("/v1/runs/stop", json=halt, headers=owner).status_code == 200
    assert tell(client, ada, id=id)[1] is True
    assert tell(client, ada, id=id, done=11)[1] is True, "until it has heard"


def test_a_run_cannot_be_put_before_others_by_naming_their_budget(client, bearer):
    eve = bearer("reader:patients", owner="eve")
    id, _ = tell(client, eve, budget="patients")
    assert ids(client, bearer("owner:patients", owner="olga")) == set()
    assert ids(client, eve) == {id}


def test_another_owner_cannot_speak_for_a_run(client, bearer):
    id, _ = tell(client, bearer("spender:patients"))
    answer = client.post("/v1/runs", json=report(id=id), headers=bearer("owner:*", owner="eve"))
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "x"},
        {"done": 101},
        {"state": "happy"},
        {"history": [{**ROW, "loss": "nan"}]},
        {"history": [ROW] * 1001},
        {"left": -1},
        {"more": 1},
    ],
)
def test_wrong_reports_are_refused(client, bearer, wrong):
    answer = client.post("/v1/runs", json=report(**wrong), headers=bearer("spender:*"))
    assert (answer.status_code, answer.json()["error"]) == (422, "ValueError")
    assert client.post("/v1/runs", json=report()).status_code == 401


def test_old_runs_are_forgotten(office, monkeypatch, clock):
    monkeypatch.setattr("dosimeter.service.runs._KEPT", 3)
    ada = Caller("t", "ada", (Grant.read("spender:*"),))
    for _ in range(5):
        clock[0] += 1
        office.runs.report(ada, Report(**report()))
    assert len(office.runs.listed(ada)) == 3


def test_the_pages_show_a_run_and_stop_it(page, office, clock):
    ada = Caller("t", "ada", (Grant.read("spender:*"),))
    told = Report(**report(name="<b>night</b>", limit=3.0, left=200.0))
    office.runs.report(ada, told)
    browser = page("owner:*", owner="olga")
    assert f'href="/run?id={told.id}"' in browser.get("/runs", headers=HTML).text
    text = browser.get("/run", params={"id": told.id}, headers=HTML).text
    for words in ("10 % done", "about 3 min left", "0.250", "ε 0.5 of 3", "Stop at the next step",
                  "25 % of the budget used up", "The budget burned"):  # fmt: skip
        assert words in text, words
    assert "<b>night" not in text
    assert "stands still at the limit" not in text
    flat = {"history": [{**ROW, "epoch": n, "epsilon": 3.0} for n in (1, 2)], "limit": 3.0}
    office.runs.report(ada, still := Report(**report(**flat)))
    text = browser.get("/run", params={"id": still.id}, headers=HTML).text
    assert "stands still at the limit, steps are not free" in text
    done = post(browser, "/runs/stop", id=told.id)
    assert "It will stop at its next step" in done.text
    assert office.runs.report(ada, told) is True
    clock[0] += 60
    assert "may have been killed" in browser.get("/run", params={"id": told.id}).text
    ended = told.model_copy(update={"state": "ended", "ended": STOPPED})
    office.runs.report(ada, ended)
    text = browser.get("/run", params={"id": told.id}).text
    assert f"It ended: {STOPPED}" in text
    assert "Stop at the next step" not in text
    assert browser.get("/run", params={"id": "0" * 24}, headers=HTML).status_code == 422


class Run:
    steps, steps_per_epoch, stopped = 0, 10, None

    def stop(self, reason):
        self.stopped = reason


def test_a_run_over_http_hears_that_it_is_to_stop(url, monkeypatch):
    monkeypatch.setattr(watching, "_EVERY", 0.01)
    with running(url) as service:
        monkeypatch.setenv("DOSIMETER_TOKEN", service.token("spender:*"))
        run, admin = Run(), Caller("t", "root", (Grant.read("admin:*"),))
        with watched(service.address, run, name="r", epochs=1, ended=lambda: run.stopped) as show:
            show(SimpleNamespace(**ROW, accuracy=None))
            (seen,) = service.office.runs.listed(admin)
            service.office.runs.stop(admin, seen.id)
            end = time.monotonic() + 30
            while run.stopped is None and time.monotonic() < end:
                time.sleep(0.01)
            assert run.stopped == STOPPED
        (seen,) = service.office.runs.listed(admin)
        assert (seen.status["state"], seen.status["ended"]) == ("ended", STOPPED)
        assert seen.status["history"][0]["loss"] == 0.25
        monkeypatch.setenv("DOSIMETER_TOKEN", "dsm_wrong")
        with pytest.raises(ValueError, match="refused by the service: token"):
            with watched(service.address, run, name="r", epochs=1):
                pytest.fail("it began")
