# SPDX-License-Identifier: Apache-2.0
"""A second opinion: large spends wait, reserved; the same key is answered once, and once only."""

from __future__ import annotations

import pytest

from service.test_pages import HTML, post

QUERY = {"kind": "gaussian", "noise_multiplier": 20.0}


@pytest.fixture
def root(client, bearer):
    """An owner, who has drawn a line at 0.3 in `patients`."""
    head = bearer("owner:*", owner="root")
    line = {"name": "patients", "above": 0.3}
    assert client.post("/v1/approval-line", json=line, headers=head).is_success
    return head


@pytest.fixture
def ada(bearer):
    return bearer("spender:*", owner="ada")


def spend(client, who, key="big", count=5, **changed):
    body = {"costs": {"patients": QUERY}, "count": count, "purpose": "mean", **changed}
    return client.post("/v1/spend", json=body, headers={**who, "Idempotency-Key": key})


def standing(client, who, name="patients"):
    return client.get("/v1/statement", params={"name": name}, headers=who).json()


def waiting(client, who):
    found = client.get("/v1/requests", headers=who).json()
    return [one["id"] for one in found if one["state"] == "waiting"]


def decide(client, who, id, approve=True):
    return client.post("/v1/requests/decide", json={"id": id, "approve": approve}, headers=who)


def test_small_spends_pass_and_large_ones_wait_reserved(client, root, ada):
    assert spend(client, ada, "small", count=1).is_success
    before = standing(client, ada)["epsilon"]
    told = spend(client, ada)
    assert (told.status_code, told.json()["error"]) == (409, "AwaitingApproval")
    assert "'big'" in told.json()["message"]
    held = standing(client, ada)
    assert held["epsilon"] > before
    assert spend(client, ada).json()["error"] == "AwaitingApproval"
    assert standing(client, ada) == held, "asked again, it is not reserved again"
    assert len(waiting(client, root)) == 1


def test_an_approved_one_is_answered_with_its_receipt_and_never_spent_twice(client, root, ada):
    spend(client, ada)
    held = standing(client, ada)["epsilon"]
    (id,) = waiting(client, root)
    assert decide(client, root, id).is_success
    assert decide(client, root, id).is_success
    first, again = (spend(client, ada).json()["patients"] for _ in range(2))
    assert (first["count"], first["replayed"], again["replayed"]) == (5, False, True)
    assert first["hash"] == again["hash"]
    assert standing(client, ada)["epsilon"] == held
    last = client.get("/v1/history?name=patients&last=1", headers=root).json()[0]
    assert (last["kind"], last["count"]) == ("commit", 5)
    assert spend(client, ada, count=6).json()["error"] == "KeyConflict"
    verified = client.post("/v1/verify", json={"name": "patients"}, headers=root).json()
    assert verified["problem"] is None
    # The line may be taken away; the key is still that of one spend.
    client.post("/v1/approval-line", json={"name": "patients", "above": None}, headers=root)
    assert spend(client, ada).json()["patients"]["replayed"]
    assert spend(client, ada, "other").is_success


def test_a_denied_one_is_free_again_however_late(client, bearer, root, ada, clock):
    spend(client, ada)
    held = standing(client, ada)["epsilon"]
    clock[0] += 40 * 86400
    head = bearer("owner:*", owner="root")
    (id,) = waiting(client, head)
    assert decide(client, head, id, approve=False).is_success
    assert decide(client, head, id).json()["error"] == "KeyConflict"
    assert standing(client, head)["epsilon"] < 0.1 * held
    assert client.get("/v1/requests", headers=head).json()[0]["decided_by"] == "root"


def test_a_denied_one_says_by_whom(client, root, ada):
    spend(client, ada)
    decide(client, root, *waiting(client, root), approve=False)
    refused = spend(client, ada)
    assert (refused.status_code, refused.json()["error"]) == (403, "AccessDenied")
    assert "denied by root" in refused.json()["message"]


def test_nobody_decides_about_their_own_or_anothers_business(client, bearer, root, ada):
    assert spend(client, root).json()["error"] == "AwaitingApproval"
    (id,) = waiting(client, root)
    assert decide(client, root, id).status_code == 403
    for who in (ada, bearer("owner:visits/*", owner="eve")):
        assert decide(client, who, id).status_code == 422
        assert client.get("/v1/requests", headers=who).json() == []
    line = {"name": "patients", "above": None}
    assert client.post("/v1/approval-line", json=line, headers=ada).status_code == 403
    assert decide(client, bearer("owner:*", owner="second"), id).is_success


def test_what_could_not_be_afforded_is_refused_at_once(client, root, ada):
    assert spend(client, ada, count=10**6).json()["error"] == "LedgerRefusal"
    assert waiting(client, root) == []


def test_a_reservation_is_no_way_around(client, root, ada):
    ask = {"name": "patients", "cost": QUERY, "count": 5}
    done = client.post("/v1/reserve", json=ask, headers={**ada, "Idempotency-Key": "r"})
    assert done.status_code == 403
    assert standing(client, ada)["epsilon"] == 0


def test_an_allowance_waits_with_its_budget(client, root, ada):
    given = {"name": "patients", "label": "own", "holders": ["ada"], "epsilon": 1.0}
    client.post("/v1/allowances", json=given, headers=root)
    spend(client, ada)
    held = standing(client, root, "patients@own")["epsilon"]
    assert held > 0
    decide(client, root, *waiting(client, root))
    assert set(spend(client, ada).json()) == {"patients"}
    assert standing(client, root, "patients@own")["epsilon"] == held


@pytest.mark.parametrize("above", [-1.0, "NaN", "x"])
def test_lines_that_are_none_are_refused(client, root, above):
    line = {"name": "patients", "above": above}
    assert client.post("/v1/approval-line", json=line, headers=root).status_code == 422


def test_the_page_draws_lines_and_decides(client, bearer, page):
    browser = page("owner:*", owner="root")
    drawn = post(browser, "/approval-line", name="patients", above="0.3")
    assert "takes more than ε 0.3" in drawn.text
    ada = bearer("spender:*", owner="ada")
    spend(client, ada, purpose="<script>alert(1)</script>")
    listed = browser.get("/requests", headers=HTML).text
    assert "&lt;script&gt;" in listed
    assert "Approve the request of ada" in listed
    (id,) = waiting(client, bearer("owner:*", owner="root"))
    decided = post(browser, "/requests/decide", id=id, decision="approve")
    assert "approved by root" in decided.text
    assert "patients" in spend(client, ada, purpose="<script>alert(1)</script>").json()
    off = post(browser, "/approval-line", name="patients", above="")
    assert "No spend waits" in off.text
