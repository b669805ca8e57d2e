# SPDX-License-Identifier: Apache-2.0
"""A run tells a page how it goes and hears when to stop; a page that is away disturbs nothing."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from dosimeter import watching
from dosimeter.watching import LIVE, STOP, STOPPED, watched


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


def told(folder):
    return json.loads((folder / LIVE).read_text())


def test_a_folder_is_told_where_a_run_stands(tmp_path):
    run = Run()
    gate = SimpleNamespace(limit=3.0, name="patients")
    with watched(tmp_path, run, name="r", epochs=2, gate=gate, ended=lambda: "all done") as tell:
        first = told(tmp_path)
        assert (first["state"], first["done"], first["left"]) == ("running", 0, None)
        assert (first["limit"], first["budget"], first["history"]) == (3.0, "patients", [])
        run.steps = 7
        tell(record(1))
        until(lambda: told(tmp_path)["done"] == 35)
        assert told(tmp_path)["left"] >= 0
        assert told(tmp_path)["history"][0]["loss"] == 0.3
    last = told(tmp_path)
    assert (last["state"], last["ended"]) == ("ended", "all done")


def test_the_file_stop_stops_the_run_and_one_from_before_does_not(tmp_path):
    (tmp_path / STOP).touch()
    run = Run()
    with watched(tmp_path, run, name="r", epochs=2):
        assert run.stopped is None
        (tmp_path / STOP).touch()
        until(lambda: run.stopped == STOPPED)


def test_infinity_and_no_limit_can_be_told(tmp_path):
    with watched(
        tmp_path, Run(), name="r", epochs=1, gate=SimpleNamespace(limit=float("inf"))
    ) as t:
        t(record(1, epsilon=float("inf"), loss=None))
    last = told(tmp_path)
    assert (last["limit"], last["history"][0]["epsilon"]) == (None, "inf")


def test_a_run_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), watched(tmp_path, Run(), name="r", epochs=1):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_goes_away_disturbs_nothing(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    run = Run()
    with watched(folder, run, name="r", epochs=1) as tell:
        (folder / LIVE).unlink()
        folder.rmdir()
        tell(record(1))
        time.sleep(0.1)
    assert run.stopped is None


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("http://example.org", "must begin with https://"),
        ("http://127.0.0.1:1", "must be reachable"),
        ("nowhere", "must be a URL or a folder"),
    ],
)
def test_a_wrong_place_is_said_before_anything_begins(target, match, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOSIMETER_TOKEN", "dsm_x")
    with pytest.raises(ValueError, match=match), watched(target, Run(), name="r", epochs=1):
        pytest.fail("it began")


def test_a_service_needs_a_token(monkeypatch):
    monkeypatch.delenv("DOSIMETER_TOKEN", raising=False)
    with pytest.raises(ValueError, match="set DOSIMETER_TOKEN"):
        watching.mailbox("https://example.org")


def test_without_a_place_nothing_happens():
    with watched(None, Run(), name="r", epochs=1) as tell:
        tell(record(1))
