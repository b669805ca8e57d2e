# SPDX-License-Identifier: Apache-2.0
"""Allowances: a spend takes both or none, another's cannot be touched, and the owner sees why."""

from __future__ import annotations

import pytest

from service.test_pages import HTML, post

QUERY = {"kind": "gaussian", "noise_multiplier": 20.0}
GIVEN = {"name": "patients", "label": "cardio", "holders": ["ada", "bob"], "epsilon": 0.5}


@pytest.fixture
def given(client, bearer):
    """The heads of requests by an owner, after an allowance was given."""
    owner = bearer("owner:*", owner="root")
    assert client.post("/v1/allowances", json=GIVEN, headers=owner).status_code == 201
    return owner


def spend(client, who, key, count=1, name="patients"):
    body = {"costs": {name: QUERY}, "count": count, "purpose": "mean"}
    return client.post("/v1/spend", json=body, headers={**who, "Idempotency-Key": key})


def spent(client, owner, name="patients"):
    found = client.get("/v1/allowances", params={"name": name}, headers=owner).json()
    whole = client.get("/v1/statement", params={"name": name}, headers=owner).json()
    return whole["epsilon"], *(one["statement"]["epsilon"] for one in found)


def test_a_holder_spends_in_both_and_others_in_the_budget_alone(client, bearer, given):
    ada, eve = bearer("spender:patients", owner="ada"), bearer("spender:patients", owner="eve")
    assert set(spend(client, ada, "1").json()) == {"patients"}
    first = spent(client, given)
    assert min(first) > 0
    assert spend(client, eve, "1").is_success
    second = spent(client, given)
    assert second[0] > first[0]
    assert second[1] == first[1]


def test_what_passes_the_allowance_is_refused_in_both_and_the_owner_sees_why(
    client, bearer, given, page
):
    ada = bearer("spender:patients", owner="ada")
    before = spent(client, given)
    refused = spend(client, ada, "1", count=20)
    assert (refused.status_code, refused.json()["error"]) == (409, "LedgerRefusal")
    assert refused.json()["budget"] == "patients@cardio"
    assert 0 < refused.json()["affordable"] < 20
    assert spent(client, given) == before
    journal = client.get("/v1/history", params={"name": "patients@cardio"}, headers=given).json()
    assert (journal[-1]["kind"], journal[-1]["actor"]) == ("refuse", "ada")
    browser = page("owner:patients", owner="olga")
    shown = browser.get("/budget", params={"name": "patients"}, headers=HTML).text
    assert "the allowance cardio, at ε 0" in shown
    assert "20 × gaussian 20" in shown
    # The budget itself has room: whoever holds no allowance may.
    assert spend(client, bearer("spender:patients", owner="eve"), "1", count=20).is_success


def test_what_passes_the_budget_is_refused_in_both(client, bearer, given):
    eve, ada = bearer("spender:*", owner="eve"), bearer("spender:*", owner="ada")
    most = client.post("/v1/price", json={"name": "patients", "cost": QUERY}, headers=eve).json()
    assert spend(client, eve, "1", count=most["affordable"]).is_success
    before = spent(client, given)
    assert spend(client, ada, "1").json()["budget"] == "patients"
    assert spent(client, given) == before


def test_a_price_is_that_of_whoever_asks(client, bearer, given):
    """Training asks before it spends: it must not be told yes by the budget and no by its part."""

    def price(who, count):
        asked = {"name": "patients", "cost": QUERY, "count": count}
        return client.post("/v1/price", json=asked, headers=who).json()

    ada, eve = bearer("spender:patients", owner="ada"), bearer("spender:patients", owner="eve")
    free, mine = price(eve, 1), price(ada, 1)
    assert mine["affordable"] < free["affordable"]
    assert mine["remaining"] < free["remaining"]
    assert spend(client, ada, "1", count=mine["affordable"] + 1).status_code == 409
    beyond = price(ada, mine["affordable"] + 1)
    assert (beyond["admitted"], beyond["after"]) == (False, beyond["spent"])
    assert "in allowance 'patients@cardio'" in beyond["reason"]
    assert price(eve, mine["affordable"] + 1)["admitted"]
    assert spend(client, ada, "2", count=mine["affordable"]).is_success
    assert price(ada, 1)["affordable"] == 0


def test_a_key_spends_once_in_both(client, bearer, given):
    ada = bearer("spender:patients", owner="ada")
    first = spend(client, ada, "1").json()["patients"]
    before = spent(client, given)
    again = spend(client, ada, "1").json()["patients"]
    assert (again["hash"], again["replayed"]) == (first["hash"], True)
    assert spent(client, given) == before


def test_anothers_allowance_cannot_be_spent_from_directly(client, bearer, given):
    for grants in (["spender:*"], ["spender:patients@cardio"]):
        eve = bearer(*grants, owner="eve")
        done = spend(client, eve, "1", name="patients@cardio")
        assert (done.status_code, done.json()["error"]) == (403, "AccessDenied")
        ask = {"name": "patients@cardio", "cost": QUERY}
        done = client.post("/v1/reserve", json=ask, headers={**eve, "Idempotency-Key": "r"})
        assert done.status_code == 403
    assert spent(client, given) == (0, 0)


def test_a_reservation_holds_both_and_frees_both(client, bearer, given):
    ada = {**bearer("spender:patients", owner="ada"), "Idempotency-Key": "r"}
    ask = {"name": "patients", "cost": QUERY, "count": 2}
    made = client.post("/v1/reserve", json=ask, headers=ada).json()
    assert made["receipt"]["budget"] == "patients"
    held = spent(client, given)
    assert min(held) > 0
    client.post("/v1/settle", json={"id": made["id"], "drawn": 0}, headers=ada)
    assert all(now < 0.1 * then for now, then in zip(spent(client, given), held, strict=True))
    # One that the budget refuses leaves nothing in the allowance, and the other way round.
    free = spent(client, given)
    refused = client.post(
        "/v1/reserve", json={**ask, "count": 20}, headers={**ada, "Idempotency-Key": "s"}
    )
    assert refused.json()["budget"] == "patients@cardio"
    eve = bearer("spender:*", owner="eve")
    most = client.post("/v1/price", json={"name": "patients", "cost": QUERY}, headers=eve).json()
    assert spend(client, eve, "1", count=most["affordable"]).is_success
    refused = client.post("/v1/reserve", json=ask, headers={**ada, "Idempotency-Key": "t"})
    assert refused.json()["budget"] == "patients"
    assert spent(client, given)[1] < 0.1 * held[1] + free[1]


def test_only_owners_give_and_end_them(client, bearer, given):
    spender = bearer("spender:*", owner="ada")
    assert (
        client.post("/v1/allowances", json={**GIVEN, "label": "x"}, headers=spender).status_code
        == 403
    )
    end = {"name": "patients", "label": "cardio"}
    assert client.post("/v1/allowances/end", json=end, headers=spender).status_code == 403
    stranger = bearer("owner:visits/*")
    assert client.get("/v1/allowances?name=patients", headers=stranger).status_code == 404
    assert client.post("/v1/allowances/end", json=end, headers=given).is_success
    assert client.post("/v1/allowances/end", json=end, headers=given).status_code == 422
    assert spend(client, spender, "1", count=20).is_success
    again = client.post("/v1/allowances", json=GIVEN, headers=given)
    assert again.json()["error"] == "BudgetExists"


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"epsilon": 3.5},
        {"holders": []},
        {"holders": ["a b"]},
        {"label": "a/b"},
        {"label": ""},
    ],
)
def test_allowances_that_are_none_are_refused(client, bearer, wrong):
    owner = bearer("owner:*")
    done = client.post("/v1/allowances", json={**GIVEN, **wrong}, headers=owner)
    assert done.status_code == 422
    assert client.get("/v1/allowances?name=patients", headers=owner).json() == []


def test_the_page_gives_shows_and_ends_them(page, url):
    browser = page("owner:*", owner="root")
    made = post(
        browser, "/allowances", name="patients", label="cardio", holders="ada bob", epsilon="1"
    )
    assert "ada, bob" in made.text
    assert "End the allowance cardio" in made.text
    assert (
        post(
            browser, "/allowances", name="patients", label="x", holders="", epsilon="1"
        ).status_code
        == 422
    )
    ended = post(browser, "/allowances/end", name="patients", label="cardio")
    assert "ada, bob" not in ended.text
    reader = page("reader:*")
    assert "Give" not in reader.get("/budget?name=patients", headers=HTML).text
