# SPDX-License-Identifier: Apache-2.0
"""A run tells a page how it goes and hears when to stop; a page that is away disturbs nothing."""

from __future__ import annotations

import pathlib
import time
from types import SimpleNamespace

import pytest

from dosimeter import watching
from dosimeter.watching import STOPPED, watched


class Run:
    """Steps until it is told to stop."""

    steps_per_epoch = 10

    def __init__(self):
        self.steps, self.stopped = 0, None

    def stop(self, reason):
        self.stopped = reason


def record(epoch, **named):
    made = dict(
        epoch=epoch, epsilon=0.5, noise_multiplier=1.0, batch_size=8, loss=0.3, accuracy=0.9
    )
    made["spent_share"] = None
    return SimpleNamespace(**{**made, **named})


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watching, "_EVERY", 0.01)


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


def test_a_page_is_told_where_a_run_stands(run_page):
    run = Run()
    gate = SimpleNamespace(limit=3.0, name="patients")
    with watched(
        run_page.url, run, name="r", epochs=2, gate=gate, ended=lambda: "all done"
    ) as tell:
        first = run_page.last
        assert (first["state"], first["done"], first["left"]) == ("running", 0, None)
        assert (first["limit"], first["budget"], first["history"]) == (3.0, "patients", [])
        run.steps = 7
        tell(record(1))
        until(lambda: run_page.last["done"] == 35)
        assert run_page.last["left"] >= 0
        assert run_page.last["history"][0]["loss"] == 0.3
    assert (run_page.last["state"], run_page.last["ended"]) == ("ended", "all done")


def test_the_page_stops_the_run(run_page):
    run = Run()
    with watched(run_page.url, run, name="r", epochs=2):
        assert run.stopped is None
        run_page.stop = True
        until(lambda: run.stopped == STOPPED)


def test_infinity_and_no_limit_can_be_told(run_page):
    with watched(
        run_page.url, Run(), name="r", epochs=1, gate=SimpleNamespace(limit=float("inf"))
    ) as t:
        t(record(1, epsilon=float("inf"), loss=None))
    assert (run_page.last["limit"], run_page.last["history"][0]["epsilon"]) == (None, "inf")


def test_a_run_that_fails_says_so(run_page):
    with pytest.raises(ZeroDivisionError), watched(run_page.url, Run(), name="r", epochs=1):
        raise ZeroDivisionError
    assert (run_page.last["state"], run_page.last["ended"]) == ("failed", "ZeroDivisionError")


def test_a_page_that_goes_away_disturbs_nothing(run_page):
    run = Run()
    with watched(run_page.url, run, name="r", epochs=1) as tell:
        run_page.away = True
        tell(record(1))
        time.sleep(0.1)
    assert run.stopped is None


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("http://example.org", "must begin with https://"),
        ("http://127.0.0.1:1", "must be reachable"),
        ("ftp://example.org", "must be the URL of a budget service, got 'ftp"),
        (pathlib.Path("run"), "must be the URL of a budget service, got "),
    ],
)
def test_a_wrong_place_is_said_before_anything_begins(target, match, monkeypatch):
    monkeypatch.setenv("DOSIMETER_TOKEN", "dsm_x")
    with pytest.raises(ValueError, match=match), watched(target, Run(), name="r", epochs=1):
        pytest.fail("it began")


def test_a_service_needs_a_token(monkeypatch):
    monkeypatch.delenv("DOSIMETER_TOKEN", raising=False)
    with pytest.raises(ValueError, match="set DOSIMETER_TOKEN"):
        watched("https://example.org", Run(), name="r", epochs=1).__enter__()


def test_without_a_place_nothing_happens():
    with watched(None, Run(), name="r", epochs=1) as tell:
        tell(record(1))
