# SPDX-License-Identifier: Apache-2.0
"""A ledger behind a service is a ledger: the same values, the same errors, and safe retries."""

from __future__ import annotations

import contextlib
import inspect
import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import dosimeter as dm
from dosimeter.ledger import (
    AccessDenied,
    AwaitingApproval,
    Budget,
    BudgetClosed,
    BudgetExists,
    BudgetNotFound,
    ConnectionLost,
    KeyConflict,
    Ledger,
    LedgerError,
    LedgerRefusal,
)
from dosimeter.ledger.courier import Courier
from dosimeter.ledger.remote import RemoteBudget, RemoteLedger
from dosimeter.ledger.wire import error_to_wire
from service.servers import free_port, running

QUERY = dm.Gaussian(20.0)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(f"sqlite:///{tmp_path_factory.mktemp('office')}/budgets.db") as made:
        yield made


@pytest.fixture
def ledger(service):
    with Ledger.open(service.address, token=service.token("admin:*")) as opened:
        yield opened


@pytest.fixture
def budget(ledger, request):
    return ledger.create(request.node.name, 3.0, 1e-6)


@pytest.mark.parametrize(("remote", "local"), [(RemoteLedger, Ledger), (RemoteBudget, Budget)])
def test_every_word_of_a_ledger_is_spoken_remotely(remote, local):
    inherited = {"open", "buffered", "name", "__enter__", "__exit__", "__repr__", "_open_all"}
    inherited |= {"_lines", "_repr_html_", "anchor", "_heads", "blocks", "noted"}
    for name, word in inspect.getmembers(local):
        ours = inspect.isfunction(word) or isinstance(word, property)
        if ours and name not in inherited and name != "__init__":
            assert name in vars(remote), name


def test_blocks_are_one_gate_remotely(ledger):
    ledger.create_blocks("one gate", ["a", "b"], 3.0, 1e-6)
    receipts = ledger.blocks("one gate").spend(QUERY)
    assert sorted(receipts) == ["one gate/a", "one gate/b"]
    assert ledger["one gate/b"].statement().entries == 2


def test_it_says_what_a_ledger_beside_it_says(service, ledger, budget, tmp_path):
    receipt = budget.spend(QUERY, 2, purpose="mean", key="once", actor="not sent")
    assert budget.spend(QUERY, 2, key="once") == receipt._replace(replayed=True)
    with Ledger.open(service.office._ledger._desk.store._file) as beside:
        here = beside[budget.name]
        assert here.statement() == budget.statement()
        assert here.history() == budget.history()
        assert here.opening() == budget.opening() == here.history()[0]
        assert here.guarantee() == budget.guarantee()
        assert here.price(QUERY, 3) == budget.price(QUERY, 3)
        assert beside.verify(budget.name) == ledger.verify(budget.name, receipt=receipt)
        assert list(beside.export(budget.name)) == list(ledger.export(budget.name))
        assert budget.name in list(ledger)
        assert here.statement() in ledger.statements()
        assert not ledger.verify(budget.name, head="0" * 64).ok
        assert budget.holds(1, receipt.hash)
        assert (here.spent_share, repr(here)) == (budget.spent_share, repr(budget))
        assert not budget.holds(0, receipt.hash)
    assert budget.history()[-1].actor == "ada"
    assert (budget.epsilon, budget.limit) == (receipt.epsilon, 3.0)
    assert budget.remaining == budget.statement().remaining
    assert budget.affordable(QUERY) == budget.price(QUERY).affordable
    assert not budget.closed


def test_it_raises_what_a_ledger_raises(service, ledger, budget):
    budget.spend(QUERY, key="k")
    with pytest.raises(KeyConflict):
        budget.spend(QUERY, 2, key="k")
    with pytest.raises(LedgerRefusal) as refused:
        budget.spend(QUERY, 10**6)
    assert refused.value.affordable == budget.affordable(QUERY)
    assert (refused.value.cost, refused.value.limit) == (QUERY, 3.0)
    assert str(refused.value).count("in budget") == 1
    with pytest.raises(BudgetExists):
        ledger.create(budget.name, 3.0, 1e-6)
    with pytest.raises(BudgetNotFound):
        ledger["none"]
    assert "none" not in ledger
    with pytest.raises(BudgetNotFound, match=f"did you mean {budget.name!r}"):
        ledger[budget.name + "x"]
    with pytest.raises(ValueError, match="epsilon must"):
        ledger.create("x", -1.0, 1e-6)
    budget.close(purpose="done")
    with pytest.raises(BudgetClosed):
        budget.spend(QUERY)
    assert not budget.admits(QUERY)
    with pytest.raises(LedgerError, match="where the database is"):
        ledger.import_journal([])
    with pytest.raises(LedgerError, match="where the database is"):
        ledger.export(budget.name, to="another")
    with pytest.raises(LedgerError, match="where the database is"):
        _ = ledger.identity


def test_a_spend_that_waits_is_given_its_receipt_once_approved(service, ledger, budget):
    office, name = service.office, budget.name
    office.approvals.draw_line(name, 0.0)
    with pytest.raises(AwaitingApproval, match="key="):
        budget.spend(QUERY, key="large")
    (waiting,) = [one for one in office.approvals.listed() if name in one.costs]
    office.approvals.decide(waiting.id, approve=True, by="bob")
    assert not budget.spend(QUERY, key="large").replayed


def test_blocks_odometers_menus_and_relations_are_made(ledger):
    blocks = ledger.create_blocks("seasons", ["winter", "summer"], 1.0, 1e-6, purpose="years")
    assert [block.name for block in blocks] == ["seasons/winter", "seasons/summer"]
    assert len(ledger.spend_all(dict.fromkeys([b.name for b in blocks], QUERY))) == 2
    assert ledger.create_odometer("reads", 1e-6).limit == float("inf")
    replaced = dm.Neighbours.REPLACE_ONE_RECORD
    swapped = ledger.create("swaps", 1.0, 1e-6, neighbours=replaced, plan=(QUERY, 10))
    assert swapped.guarantee().neighbours is replaced
    with pytest.raises(TypeError, match="menu must be a list"):
        ledger.create("priced", 1.0, 1e-6, menu="gaussian")


def test_a_buffered_gate_reserves_draws_and_settles(budget):
    step = dm.SampledGaussian(sample_rate=0.001, noise_multiplier=1.0)
    with budget.buffered(block=100) as gate:
        for _ in range(250):
            gate.spend(step)
    entries = [(entry.kind.value, entry.count) for entry in budget.history()[1:]]
    assert entries == [("reserve", 100), ("commit", 100)] * 2 + [("reserve", 100), ("commit", 50)]
    with budget.reserve(step, 10):
        pass
    assert budget.history()[-1].kind == "release"


def lossy(monkeypatch, lost):
    """Loses answers that a service gave: those of which `lost` says so."""
    plain, seen = httpx.Client.request, []

    def request(self, method, url, **rest):
        answer = plain(self, method, url, **rest)
        seen.append(url)
        if lost(len(seen), url):
            raise httpx.ReadTimeout("lost on the way")
        return answer

    monkeypatch.setattr(httpx.Client, "request", request)
    return seen


def test_a_lost_answer_is_asked_for_again_and_nothing_spent_twice(budget, monkeypatch):
    seen = lossy(monkeypatch, lambda number, url: number < 3)
    receipt = budget.spend(QUERY)
    assert (receipt.sequence, receipt.replayed, len(seen)) == (1, False, 3)
    assert budget.statement().entries == 2
    seen.clear()
    reservation = budget.reserve(QUERY, 5)
    reservation.draw(2)
    seen.clear()
    reservation.commit()
    assert [entry.count for entry in budget.history()[2:]] == [5, 2]


def test_a_service_that_is_away_is_told_from_one_whose_answer_was_lost(service, monkeypatch):
    away = Ledger.open(f"http://127.0.0.1:{free_port()}", token="x", timeout=0.2)
    with pytest.raises(ConnectionLost) as failed:
        away.spend_all({"a": QUERY})
    assert not failed.value.outcome_unknown
    token = service.token("admin:*")
    near = Ledger.open(service.address, token=token, timeout=0.2)
    lossy(monkeypatch, lambda number, url: not url.endswith("/v1/budgets") or number)
    with pytest.raises(ConnectionLost) as failed:
        near.create("half made", 1.0, 1e-6)
    assert failed.value.outcome_unknown
    assert token not in str(failed.value)
    assert token not in repr(near)
    for made in (away, near):
        made.disconnect()


def test_tokens_that_do_not_open_say_so(service, ledger, budget):
    with Ledger.open(service.address, token="dsm_000000000000_x") as wrong:
        with pytest.raises(AccessDenied, match="unknown, expired or revoked"):
            list(wrong)
    with Ledger.open(service.address, token=service.token("reader:*")) as reader:
        assert reader[budget.name].admits(QUERY)
        with pytest.raises(AccessDenied, match="must have the role spender"):
            reader[budget.name].spend(QUERY)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://example.org", "t"),
        ("https://me:secret@example.org", "t"),
        ("https://example.org?x=1", "t"),
        ("https://", "t"),
        ("https://example.org", ""),
        ("https://example.org", "a\nb"),
    ],
)
def test_addresses_that_would_give_the_token_away_are_refused(url, token, monkeypatch):
    monkeypatch.delenv("DOSIMETER_TOKEN", raising=False)
    with pytest.raises(ValueError, match="must") as refused:
        Ledger.open(url, token=token)
    assert "secret" not in str(refused.value)


def test_the_token_may_be_in_the_environment_and_only_a_service_takes_one(
    service, monkeypatch, url
):
    monkeypatch.setenv("DOSIMETER_TOKEN", service.token("reader:*"))
    with Ledger.open(service.address) as opened:
        list(opened)
    with pytest.raises(ValueError, match="token must come with"):
        Ledger.open(url, token="t")


def test_a_page_that_is_no_service_is_told_from_one(monkeypatch):
    def other(self, method, url, **rest):
        return httpx.Response(200 if method == "x" else 404, text="<html>", request=None)

    monkeypatch.setattr(httpx.Client, "request", other)
    with pytest.raises(LedgerError, match="url must be that of a budget service"):
        list(RemoteLedger(Courier("http://localhost:1", "t", 1.0)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_child_speaks_for_itself(budget):
    budget.spend(QUERY)
    child = os.fork()
    if not child:
        try:
            budget.spend(QUERY)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    budget.spend(QUERY)
    assert budget.statement().entries == 4


def test_threads_that_race_for_the_last_units_get_exactly_the_affordable(budget):
    big = dm.Gaussian(3.0)
    most, won = budget.affordable(big), []

    def buy(_):
        for _ in range(2):
            with contextlib.suppress(dm.BudgetExceeded):
                won.append(budget.spend(big).sequence)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(buy, range(6)))
    assert 0 < most < 12
    assert sorted(won) == list(range(1, most + 1))


def test_a_service_suggests_no_name_that_a_token_may_not_see():
    error = BudgetNotFound("salarys")
    error.hint = "did you mean 'salaries'?"
    assert "salaries" not in str(error_to_wire(error))
