# SPDX-License-Identifier: Apache-2.0
"""Whoever should not get in does not, learns nothing, and cannot wear the service down."""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import re
import socket
import sqlite3
import time

import pytest

from dosimeter.ledger import LedgerUnavailable
from dosimeter.service import Grant, Office
from dosimeter.service.logs import Lines
from dosimeter.service.patience import Patience
from service.servers import running

QUERY = {"kind": "gaussian", "noise_multiplier": 20.0}
DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
TAKES_NAME = ["statement", "share", "guarantee", "history", "export", "allowances"]
HOSTILE = [
    "'; DROP TABLE dosimeter_budgets; --",
    '" OR 1=1 --',
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "a\x00b",
    "{{7*7}}",
    "%s%n",
    "\u202e\u0000",
    "dsm_" + "f" * 12 + "_x",
]


def commands(name):
    """Every command that names a budget, with what it sends."""
    return [
        ("spend", {"costs": {name: QUERY}}),
        ("price", {"name": name, "cost": QUERY}),
        ("reserve", {"name": name, "cost": QUERY}),
        ("verify", {"name": name}),
        ("close", {"name": name}),
        ("allowances", {"name": name, "label": "x", "holders": ["y"], "epsilon": 0.1}),
        ("approval-line", {"name": name, "above": 0.5}),
        ("budgets", {"names": [name], "epsilon": 1.0, "delta": 1e-6}),
    ]


def answers(client, who, name):
    """What every route answers about a budget, but for the name itself."""
    key = {"Idempotency-Key": "k"}
    found = [client.get(f"/v1/{route}", params={"name": name}, headers=who) for route in TAKES_NAME]
    found += [
        client.post(f"/v1/{route}", json=body, headers={**who, **key})
        for route, body in commands(name)
    ]
    return [(answer.status_code, answer.text.replace(name, "NAME")) for answer in found]


def test_without_a_valid_token_every_route_says_the_same(client, bearer, office, clock):
    revoked, expired = bearer("admin:*", owner="out"), bearer("admin:*", days=0.5)
    for token in office.tokens.listed():
        if token.owner == "out":
            office.tokens.revoke(token.id, by="test")
    clock[0] += 0.6 * 86400
    valid = bearer("admin:*")["Authorization"]
    wrong = [
        {"Authorization": valid[:-1] + ("A" if valid[-1] != "A" else "B")},
        {"Authorization": "Bearer dsm_000000000000_x"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "Bearer"},
        {"Authorization": valid.lower()},
        {"Cookie": f"session={valid}"},
        revoked,
        expired,
        {},
    ]
    for who in wrong[:6] + wrong[6:]:
        codes = {code for code, _ in answers(client, who, "patients")[:2]}
        assert codes <= {401, 429}, who
        client.app._app.state.desk.door._failures._levels.clear()
    assert {code for code, _ in answers(client, {}, "patients")} == {401}
    assert client.get("/v1/tokens").status_code == 401


def test_a_reader_cannot_tell_a_hidden_budget_from_none(client, bearer):
    who = bearer("owner:visits/*", owner="eve")
    hidden, absent = answers(client, who, "patients"), answers(client, who, "no such one")
    assert hidden == absent
    assert {code for code, _ in hidden} == {404}
    listed = client.get("/v1/budgets", headers=who).text
    assert "patients" not in listed
    assert "visits/2026-01" in listed
    found = client.get("/v1/budgets", params={"containing": "patient"}, headers=who).json()
    assert found == {"budgets": [], "next": None}
    both = {"costs": {"visits/2026-01": QUERY, "patients": QUERY}}
    mixed = client.post("/v1/spend", json=both, headers={**who, "Idempotency-Key": "k"})
    assert mixed.status_code == 404
    left = client.get("/v1/statement", params={"name": "visits/2026-01"}, headers=who).json()
    assert left["entries"] == 1


def test_each_role_may_do_what_it_may(client, bearer):
    allowed = {
        "reader": {"price", "verify"},
        "spender": {"price", "verify", "spend", "reserve"},
        "owner": {route for route, _ in commands("patients")},
    }
    for role, able in allowed.items():
        who = bearer(f"{role}:*", owner=role)
        for route, body in commands("patients"):
            done = client.post(f"/v1/{route}", json=body, headers={**who, "Idempotency-Key": role})
            # A budget of that name is there already, which only who may make one is told.
            assert (done.status_code != 403) == (route in able), (role, route, done.text)
        if role == "owner":
            assert client.get("/v1/tokens", headers=who).status_code == 403


def test_another_ones_reservation_cannot_be_ended(client, bearer):
    ask = {"name": "patients", "cost": QUERY, "count": 2}
    made = client.post(
        "/v1/reserve", json=ask, headers={**bearer("spender:*"), "Idempotency-Key": "k"}
    ).json()
    eve = bearer("spender:*", owner="eve")
    done = client.post("/v1/settle", json={"id": made["id"], "drawn": 0}, headers=eve)
    unknown = client.post("/v1/settle", json={"id": "0" * 24, "drawn": 0}, headers=eve)
    assert (done.status_code, unknown.status_code) == (409, 409)
    assert done.text.replace(made["id"], "") == unknown.text.replace("0" * 24, "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_is_text(client, bearer, office, text):
    root = bearer("admin:*", owner="root")
    for route in TAKES_NAME:
        answer = client.get(f"/v1/{route}", params={"name": text}, headers=root)
        assert answer.status_code in (404, 422) or answer.json() == [], answer.text
        assert answer.headers["content-type"] == "application/json"
    for route, body in commands(text):
        headers = {**root, "Idempotency-Key": "k"}
        assert client.post(f"/v1/{route}", json=body, headers=headers).status_code < 500
    asked = {"costs": {"patients": QUERY}, "purpose": text}
    done = client.post("/v1/spend", json=asked, headers={**root, "Idempotency-Key": "p"})
    assert done.is_success
    last = client.get("/v1/history?name=patients&last=1", headers=root).json()[0]
    assert last["purpose"] == text
    for body in (
        {"owner": text, "grants": ["reader:*"]},
        {"owner": "x", "grants": [text]},
        {"owner": "x", "grants": [f"reader:{text}\nadmin:*"]},
    ):
        assert client.post("/v1/tokens", json=body, headers=root).status_code == 422
    assert client.post("/v1/tokens/revoke", json={"id": text}, headers=root).status_code == 422
    kind = {"costs": {"patients": {"kind": text}}}
    refused = client.post("/v1/spend", json=kind, headers={**root, "Idempotency-Key": "q"})
    assert refused.status_code == 422
    assert client.get("/v1/statement?name=patients", headers=root).is_success
    assert all(grant.scope == "*" for t in office.tokens.listed() for grant in t.grants)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": NaN}}}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": Infinity}}}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": -1}}}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": 1e999}}}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": 20.0}}, "count": true}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": 20.0}}, "count": 0}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": 20.0}}, "count": 1.5}',
        b'{"costs": {"patients": {"kind": "gaussian", "noise_multiplier": 20.0}}, "count": '
        + b"9" * 5000
        + b"}",
        b"\xff\xfe",
    ],
)
def test_wrong_bodies_are_refused_and_change_nothing(client, bearer, body):
    who = {**bearer("spender:*"), "Idempotency-Key": "k", "Content-Type": "application/json"}
    done = client.post("/v1/spend", content=body, headers=who)
    assert done.status_code in (400, 409, 422), done.text
    assert client.get("/v1/statement?name=patients", headers=who).json()["epsilon"] == 0


def test_bodies_that_are_too_large_or_too_slow_are_refused(url):
    with running(url, largest=1000, slowest=0.3) as service:
        host, port = service.address.removeprefix("http://").split(":")

        def sent(*pieces, pause=0.0):
            with socket.create_connection((host, int(port)), timeout=20) as line:
                for piece in pieces:
                    line.sendall(piece)
                    time.sleep(pause)
                return line.recv(100).decode().split(" ")[1]

        head = b"POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        assert sent(head + b"Content-Length: 2000\r\n\r\n") == "413"
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        assert sent(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk) == "413"
        assert sent(head + b"Content-Length: 10\r\n\r\n{", pause=0.5) == "408"


def test_heads_that_are_too_slow_are_hung_up_on(url, monkeypatch):
    monkeypatch.setattr(Patience, "slowest_head", 0.3)
    with running(url) as service:
        host, port = service.address.removeprefix("http://").split(":")
        begun, whole = b"GET /health HTTP/1.1\r\nHost: x\r\n", b"Connection: keep-alive\r\n\r\n"
        for first in (b"", begun + whole):
            with socket.create_connection((host, int(port)), timeout=20) as line:
                if first:
                    line.sendall(first)
                    answer = b""
                    while not answer.endswith(b'{"status":"ok"}'):
                        answer += line.recv(10_000)
                line.sendall(begun)
                with contextlib.suppress(ConnectionResetError):
                    assert line.recv(100) == b""


def test_metrics_need_a_token_and_keep_to_its_scope(client, bearer):
    assert client.get("/metrics").status_code == 401
    spender = {**bearer("spender:*"), "Idempotency-Key": "k"}
    for count in (1, 10**6):
        body = {"costs": {"patients": QUERY}, "count": count}
        client.post("/v1/spend", json=body, headers={**spender, "Idempotency-Key": str(count)})
    told = client.get("/metrics", headers=spender).text
    assert "dosimeter_spends_total 1.0" in told
    assert "dosimeter_refusals_total 1.0" in told
    assert 'dosimeter_budget_remaining{budget="patients"} 2.7' in told
    assert 'route="/v1/spend",status="409"' in told
    less = client.get("/metrics", headers=bearer("reader:visits/*")).text
    assert "patients" not in less
    assert 'budget="visits/2026-01"' in less


def test_wrong_tokens_wear_nobody_down(client, bearer):
    valid = bearer("reader:*")
    wrong = {"Authorization": "Bearer dsm_000000000000_x"}
    codes = [client.get("/v1/budgets", headers=wrong).status_code for _ in range(25)]
    assert codes[:20] == [401] * 20
    assert codes[20:] == [429] * 5
    # Even a valid one must wait then, or guessing on would cost nothing.
    assert client.get("/v1/budgets", headers=valid).status_code == 429


def test_a_token_keeps_the_pace(url):
    import httpx

    with running(url, rate=2.0) as service:
        who = {"Authorization": f"Bearer {service.token('reader:*')}"}
        with httpx.Client(base_url=service.address, headers=who) as client:
            answers = [client.get("/v1/budgets") for _ in range(30)]
    assert 429 in {answer.status_code for answer in answers}
    late = next(answer for answer in answers if answer.status_code == 429)
    assert late.headers["Retry-After"] == "1"


def test_answers_carry_strict_headers_and_no_origin_is_let_in(client, bearer):
    for path in ("/v1/budgets", "/health", "/none", "/openapi.json"):
        head = client.get(path, headers={"Origin": "https://evil.example"}).headers
        assert "default-src 'none'" in head["Content-Security-Policy"]
        assert head["X-Content-Type-Options"] == "nosniff"
        assert head["X-Frame-Options"] == "DENY"
        assert head["Cache-Control"] == "no-store"
        assert not [name for name in head if name.startswith("access-control")]
        assert "server" not in head


def test_only_hashes_of_tokens_are_stored(client, bearer, tmp_path):
    token = bearer("admin:*")["Authorization"].removeprefix("Bearer ")
    with sqlite3.connect(tmp_path / "budgets.db") as stored:
        stored.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stored.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.split("_", 2)[1].encode() in content
    assert token.split("_", 2)[2].encode() not in content


def test_no_log_says_a_token_or_a_password(client, bearer, caplog):
    caplog.set_level(logging.DEBUG)
    who = bearer("admin:*")
    token = who["Authorization"].removeprefix("Bearer ")
    client.get("/v1/budgets", headers=who, params={"containing": token})
    client.post("/v1/tokens", json={"owner": token, "grants": [token]}, headers=who)
    lines = Lines(("hun'ter\"2",))
    said = "\n".join(lines.format(record) for record in caplog.records)
    assert '"route": "/v1/budgets"' in said
    assert token not in said
    password = "hun'ter\"2"
    record = logging.LogRecord(
        "x", 40, "", 0, "at postgresql://me:s3cret@db/x %s %s", (password, token), None
    )
    text = lines.format(record)
    assert json.loads(text)["level"] == "error"
    for secret in ("s3cret", token, "ter"):
        assert secret not in text


def test_what_a_database_says_of_itself_stays_inside(client, bearer, office, monkeypatch):
    def broken(*_, **__):
        raise LedgerUnavailable("password=hunter2 host=10.0.0.7 is away")

    monkeypatch.setattr(office, "statement", broken)
    done = client.get("/v1/statement?name=patients", headers=bearer("reader:*"))
    assert (done.status_code, done.json()["error"]) == (503, "LedgerUnavailable")
    assert "hunter2" not in done.text
    monkeypatch.setattr(office, "statement", lambda *_: 1 / 0)
    done = client.get("/v1/statement?name=patients", headers=bearer("reader:*"))
    assert done.status_code == 500
    assert "division" not in done.text


def test_what_deploys_the_service_gives_options_that_it_has():
    from typer.main import get_command

    from dosimeter.cli.app import app

    known = {name for option in get_command(app).commands["serve"].params for name in option.opts}
    for file in ("dosimeter.service", "Containerfile"):
        text = (DEPLOY / file).read_text()
        assert set(re.findall(r"--[a-z-]+", text.split("serve", 1)[1])) <= known, file


def test_the_first_token_is_made_once(url):
    with Office(url) as office:
        token = office.tokens.issue_first()
        assert office.tokens.caller(token).is_admin
        assert office.tokens.issue_first() is None
        with pytest.raises(ValueError, match="days must"):
            office.tokens.issue("a", [Grant.read("reader:*")], days=10**6, issued_by="t")
