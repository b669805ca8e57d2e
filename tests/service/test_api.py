# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: what each route does, whose name is in the journal, what a key is worth."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from dosimeter.service import Grant, Role

QUERY = {"kind": "gaussian", "noise_multiplier": 20.0}
SPEND = {"costs": {"patients": QUERY}, "purpose": "mean age"}


def spend(client, who, key="k", **changed):
    return client.post(
        "/v1/spend", json={**SPEND, **changed}, headers={**who, "Idempotency-Key": key}
    )


def test_a_spend_is_recorded_in_the_name_of_the_tokens_owner(client, bearer):
    ada = bearer("spender:patients", owner="ada")
    receipt = spend(client, ada).json()["patients"]
    assert (receipt["sequence"], receipt["replayed"]) == (1, False)
    last = client.get("/v1/history", params={"name": "patients"}, headers=ada).json()[-1]
    assert (last["actor"], last["purpose"], last["cost"]) == ("ada", "mean age", QUERY)
    assert last["key"] == "ada/k"


def test_a_client_cannot_say_who_it_is(client, bearer):
    done = spend(client, bearer("spender:patients"), actor="somebody else")
    assert done.status_code == 422


def test_a_key_spends_once_and_belongs_to_its_owner(client, bearer):
    ada, bob = bearer("spender:*", owner="ada"), bearer("spender:*", owner="bob")
    first, again, other = (spend(client, who).json()["patients"] for who in (ada, ada, bob))
    assert (first["hash"], first["replayed"]) == (again["hash"], not again["replayed"])
    assert other["sequence"] == 2
    assert not other["replayed"]
    conflict = spend(client, ada, count=2)
    assert (conflict.status_code, conflict.json()["error"]) == (409, "KeyConflict")


@pytest.mark.parametrize("key", [None, "", "x" * 301])
def test_a_spend_needs_a_key(client, bearer, key):
    who = bearer("spender:*")
    headers = who if key is None else {**who, "Idempotency-Key": key}
    assert client.post("/v1/spend", json=SPEND, headers=headers).status_code == 422
    assert client.get("/v1/statement?name=patients", headers=who).json()["entries"] == 1


def test_a_refusal_says_what_would_be_affordable_and_changes_nothing(client, bearer):
    who = bearer("spender:*")
    before = client.get("/v1/statement?name=patients", headers=who).json()
    refused = spend(client, who, count=10**6)
    said = refused.json()
    assert (refused.status_code, said["error"]) == (409, "LedgerRefusal")
    assert said["budget"] == "patients"
    assert 0 < said["affordable"] < 10**6
    after = client.get("/v1/statement?name=patients", headers=who).json()
    assert (after["epsilon"], after["remaining"]) == (before["epsilon"], before["remaining"])
    last = client.get("/v1/history?name=patients&last=1", headers=who).json()[0]
    assert (last["kind"], last["actor"], last["count"]) == ("refuse", "ada", 10**6)


def test_several_budgets_are_spent_from_together_or_not_at_all(client, bearer):
    who = bearer("spender:*")
    both = {"patients": QUERY, "visits/2026-01": QUERY}
    assert set(spend(client, who, costs=both).json()) == set(both)
    ruin = {"patients": QUERY, "visits/2026-01": {"kind": "gaussian", "noise_multiplier": 0.01}}
    assert spend(client, who, key="2", costs=ruin).status_code == 409
    assert client.get("/v1/statement?name=patients", headers=who).json()["entries"] == 2


def test_a_price_is_what_a_spend_then_takes(client, bearer):
    who = bearer("spender:*")
    asked = {"name": "patients", "cost": QUERY, "count": 3}
    price = client.post("/v1/price", json=asked, headers=who).json()
    assert (price["admitted"], price["spent"], price["reason"]) == (True, 0.0, "")
    receipt = spend(client, who, count=3).json()["patients"]
    statement = client.get("/v1/statement?name=patients", headers=who).json()
    assert receipt["epsilon"] == price["after"]
    assert statement["remaining"] == price["remaining"]
    asked["count"] = 10**6
    price = client.post("/v1/price", json=asked, headers=who).json()
    assert not price["admitted"]
    assert price["reason"]
    assert price["after"] == price["spent"] == receipt["epsilon"]


def test_budgets_are_made_listed_verified_exported_and_closed(client, bearer):
    who = bearer("owner:*", owner="eve")
    made = client.post(
        "/v1/budgets",
        json={"names": ["scans/a", "scans/b"], "epsilon": 1.0, "delta": 1e-6},
        headers=who,
    )
    assert (made.status_code, [b["name"] for b in made.json()]) == (201, ["scans/a", "scans/b"])
    odometer = {"names": ["clicks"], "epsilon": None, "delta": 1e-6}
    assert client.post("/v1/budgets", json=odometer, headers=who).json()[0]["limit"] == "inf"
    assert client.post("/v1/budgets", json=odometer, headers=who).json()["error"] == "BudgetExists"
    names, after = [], ""
    while after is not None:
        page = client.get("/v1/budgets", params={"size": 2, "after": after}, headers=who).json()
        names += [budget["name"] for budget in page["budgets"]]
        after = page["next"]
    assert names == ["clicks", "patients", "scans/a", "scans/b", "visits/2026-01"]
    found = client.get("/v1/budgets", params={"containing": "SCAN"}, headers=who).json()
    assert [budget["name"] for budget in found["budgets"]] == ["scans/a", "scans/b"]
    assert client.post("/v1/close", json={"name": "scans/a"}, headers=who).json() == {
        "closed": True
    }
    verified = client.post("/v1/verify", json={"name": "scans/a"}, headers=who).json()
    assert (verified["problem"], verified["entries"]) == (None, 2)
    lines = client.get("/v1/export?name=scans/a", headers=who).text.splitlines()
    assert json.loads(lines[0])["actor"] == "eve"
    assert json.loads(lines[-1])["entries"] == 2


def test_a_receipt_shows_a_journal_written_anew(client, bearer):
    who = bearer("spender:*")
    receipt = spend(client, who).json()["patients"]
    asked = {"name": "patients", "receipt": receipt}
    assert client.post("/v1/verify", json=asked, headers=who).json()["problem"] is None
    asked["receipt"] = {**receipt, "hash": "0" * 64}
    assert client.post("/v1/verify", json=asked, headers=who).json()["problem"]
    asked["receipt"] = {"nothing": 1}
    assert client.post("/v1/verify", json=asked, headers=who).status_code == 422


class TestReservations:
    ASK: ClassVar = {"name": "patients", "cost": QUERY, "count": 10}

    def reserve(self, client, who, key="r", **changed):
        ask = {**self.ASK, **changed}
        return client.post("/v1/reserve", json=ask, headers={**who, "Idempotency-Key": key})

    def test_the_same_key_gives_the_same_reservation(self, client, bearer):
        who = bearer("spender:*")
        first, again = self.reserve(client, who), self.reserve(client, who)
        assert first.json() == again.json()
        assert client.get("/v1/statement?name=patients", headers=who).json()["entries"] == 2
        assert self.reserve(client, who, count=11).json()["error"] == "KeyConflict"

    def test_it_is_settled_once_by_its_owner(self, client, bearer):
        who, other = bearer("spender:*"), bearer("spender:*", owner="bob")
        id = self.reserve(client, who).json()["id"]
        settle = lambda drawn, by: client.post(  # noqa: E731
            "/v1/settle", json={"id": id, "drawn": drawn}, headers=by
        )
        assert settle(4, other).json()["error"] == "ReservationError"
        assert settle(11, who).status_code == 422
        assert settle(4, who).json() == {"settled": True}
        assert settle(4, who).json() == {"settled": True}
        assert settle(0, who).json()["error"] == "ReservationError"
        last = client.get("/v1/history?name=patients", headers=who).json()[-1]
        assert (last["kind"], last["count"], last["actor"]) == ("commit", 4, "ada")
        assert self.reserve(client, who).json()["error"] == "KeyConflict"

    def test_one_of_which_nothing_was_drawn_is_free_again_until_it_expires(
        self, client, bearer, clock
    ):
        who = bearer("spender:*")
        epsilon = lambda: client.get("/v1/statement?name=patients", headers=who).json()["epsilon"]  # noqa: E731
        id = self.reserve(client, who).json()["id"]
        held = epsilon()
        assert client.post("/v1/settle", json={"id": id, "drawn": 0}, headers=who).is_success
        assert epsilon() < 0.1 * held  # what is left are the roundings of sums
        id = self.reserve(client, who, key="late", lifetime=60).json()["id"]
        clock[0] += 61
        late = client.post("/v1/settle", json={"id": id, "drawn": 0}, headers=who)
        assert late.json()["error"] == "ReservationError"
        assert epsilon() >= held

    def test_a_refused_one_leaves_its_key_free(self, client, bearer):
        who = bearer("spender:*")
        assert self.reserve(client, who, count=10**6).json()["error"] == "LedgerRefusal"
        assert self.reserve(client, who).is_success

    def test_one_begun_by_a_server_that_died_is_not_made_again(
        self, client, bearer, office, monkeypatch
    ):
        who = bearer("spender:*")
        monkeypatch.setattr(type(office.holds), "_write", lambda *_, **__: 1 / 0)
        assert self.reserve(client, who).status_code == 500
        assert self.reserve(client, who).json()["error"] == "KeyConflict"


def test_tokens_are_issued_shown_once_listed_and_revoked(client, bearer):
    root = bearer("admin:*", owner="root")
    ask = {"owner": "bob", "grants": ["spender:visits/*"], "days": 30}
    token = client.post("/v1/tokens", json=ask, headers=root).json()["token"]
    bob = {"Authorization": f"Bearer {token}"}
    assert spend(client, bob, costs={"visits/2026-01": QUERY}).is_success
    listed = client.get("/v1/tokens", headers=root)
    assert token not in listed.text
    mine = next(row for row in listed.json() if row["owner"] == "bob")
    assert (mine["grants"], mine["issued_by"]) == (["spender:visits/*"], "root")
    assert client.post("/v1/tokens/revoke", json={"id": mine["id"]}, headers=root).is_success
    assert spend(client, bob, key="2", costs={"visits/2026-01": QUERY}).status_code == 401
    assert client.post("/v1/tokens/revoke", json={"id": "none"}, headers=root).status_code == 422


@pytest.mark.parametrize("path", ["/v1/tokens", "/v1/tokens/revoke"])
def test_only_admins_see_and_make_tokens(client, bearer, path):
    who = bearer("owner:*")
    assert client.get("/v1/tokens", headers=who).status_code == 403
    ask = {"owner": "eve", "grants": ["admin:*"]} if path == "/v1/tokens" else {"id": "x"}
    assert client.post(path, json=ask, headers=who).status_code == 403


def test_the_api_describes_itself(client):
    described = client.get("/openapi.json").json()
    assert "Idempotency-Key" in json.dumps(described["paths"]["/v1/spend"])
    assert all(
        "security" in route for path in described["paths"].values() for route in path.values()
    )
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "text",
    [
        "reader",
        "king:*",
        "admin:visits/*",
        "reader:",
        "reader:a*b",
        "spender:a\nadmin:*",
        "reader:" + "x" * 501,
    ],
)
def test_grants_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="must"):
        Grant.read(text)


def test_scopes_cover_what_they_say():
    assert Grant(Role.READER, "visits/*").covers("visits/2026-01")
    assert not Grant(Role.READER, "visits/*").covers("visits")
    assert not Grant(Role.READER, "patients").covers("patients2")
