# SPDX-License-Identifier: Apache-2.0
"""Streams behind a service: the same words, the roles, and the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dosimeter as dm
from dosimeter.ledger import AccessDenied, BudgetNotFound, Ledger, LedgerRefusal
from dosimeter.service import Caller, Grant
from service.servers import running

QUERY = dm.Gaussian(30.0)
TODAY = datetime.now(UTC).date()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(f"sqlite:///{tmp_path_factory.mktemp('office')}/budgets.db") as made:
        yield made


def opened(service, *grants):
    return Ledger.open(service.address, token=service.token(*grants))


def test_a_stream_over_http_is_a_stream(service):
    with opened(service, "owner:*") as owner:
        since = TODAY - timedelta(days=9)
        made = owner.create_stream("visits", "day", 1.0, 1e-6, since=since, menu=None)
        every = made.blocks()
        assert len(every) == 10
    with opened(service, "spender:visits/*") as ledger:
        stream = ledger.stream("visits")
        assert stream.rule == made.rule
        assert stream.blocks(last=3) == every[-3:]
        receipts = stream.spend(QUERY, last=3, purpose="stay")
        assert sorted(receipts) == stream.blocks(last=3)
        assert [one.entries for one in stream.statements(last=4)] == [1, 2, 2, 2]
        while stream.offered(QUERY, last=1):
            stream.spend(QUERY, last=1)
        assert stream.offered(QUERY, last=3) == stream.blocks(last=3)[:2]
        with pytest.raises(LedgerRefusal):
            stream.spend(QUERY, last=3)
        with pytest.raises(AccessDenied):
            ledger.create_stream("visits/sub", "day", 1.0, 1e-6)


def test_shards_are_added_by_owners_once(service):
    with opened(service, "owner:*") as owner:
        owner.create_stream("uploads", "shard", 1.0, 1e-6)
        stream = owner.stream("uploads")
        stream.add("7").spend(QUERY)
        assert stream.add("7").epsilon > 0
        assert stream.blocks() == ["uploads/7"]
    with opened(service, "spender:uploads/*") as ledger:
        with pytest.raises(AccessDenied):
            ledger.stream("uploads").add("8")


def test_a_stream_outside_the_scope_is_not_there(service):
    with opened(service, "owner:*") as owner:
        owner.create_stream("secret", "day", 1.0, 1e-6)
    with opened(service, "owner:visits*") as ledger:
        for ask in (
            lambda: ledger.stream("secret"),
            lambda: ledger._courier.tell("/v1/stream/blocks", {"name": "secret"}),
            lambda: ledger._courier.tell("/v1/stream/add", {"name": "secret", "label": "x"}),
            lambda: ledger.stream("never-made"),
        ):
            with pytest.raises(BudgetNotFound):
                ask()


@pytest.mark.parametrize(
    "wrong",
    [{"every": "hour"}, {"since": "soon"}, {"epsilon": -1}, {"extra": 1}, {"name": ""}],
)
def test_wrong_values_are_refused(client, bearer, wrong):
    asked = {"name": "v", "every": "day", "epsilon": 1.0, "delta": 1e-6, **wrong}
    answer = client.post("/v1/streams", json=asked, headers=bearer("owner:*"))
    assert (answer.status_code, answer.json()["error"]) == (422, "ValueError")


def test_the_page_shows_blocks_by_heat_and_what_is_offered(office, page):
    caller = Caller("t", "root", (Grant.read("owner:*"),))
    since = TODAY - timedelta(days=4)
    stream = office.create_stream(caller, "stays", "day", 1.0, delta=1e-6, since=since)
    hot = stream.blocks()[-1]
    while office._ledger[hot].admits(QUERY):
        stream.spend(QUERY, blocks=[hot])
    client = page("reader:stays/*")
    found = client.get("/stream", params={"name": "stays"}).text
    assert found.count('<a class="h') == 5
    assert found.count('<a class="h0') == 4
    assert found.count("% used up") == 1
    asked = {"name": "stays", "mechanism": "gaussian", "numbers": "30", "last": "5"}
    offered = client.get("/stream", params=asked).text
    assert "4 of the last 5 blocks would accept one run" in offered
    assert offered.count("· offered") == 4
    for bad in ({"numbers": "x"}, {"last": "-1"}, {"mechanism": "<script>"}):
        answer = client.get("/stream", params={**asked, **bad})
        assert (answer.status_code, 'role="alert"' in answer.text) == (200, True)
        assert "<script>" not in answer.text.replace("<script src", "")
    assert 'href="/stream?name=stays"' in client.get("/").text
    assert client.get("/stream", params={"name": "patients"}).status_code == 404
