# SPDX-License-Identifier: Apache-2.0
"""A service signs receipts and anchors with its own key, and cannot talk its way out of them."""

from __future__ import annotations

import json
import shutil

import pytest

import dosimeter as dm
from dosimeter.ledger import BudgetNotFound, JournalError, Ledger
from dosimeter.ledger.anchors import AnchorLog, require_signed
from dosimeter.ledger.signing import Signer
from service.servers import running

QUERY = dm.Gaussian(30.0)


@pytest.fixture
def signer(tmp_path):
    return Signer.made(tmp_path / "office.key")


@pytest.fixture
def service(url, signer):
    with running(url, signer=signer) as made:
        yield made


def opened(service, *grants):
    return Ledger.open(service.address, token=service.token(*(grants or ("admin:*",))))


def test_receipts_carry_a_signature(service, signer):
    with opened(service) as ledger:
        ledger.create("patients", 3.0, 1e-6)
        receipt = ledger["patients"].spend(QUERY, key="a")
        again = ledger["patients"].spend(QUERY, key="a")
        with ledger["patients"].reserve(QUERY, 2) as reserved:
            held = reserved.receipt
        for one in (receipt, again, held):
            require_signed(one, signer.public)
        assert again.replayed
        with pytest.raises(JournalError, match="must be signed"):
            require_signed(receipt._replace(hash=held.hash), signer.public)
        assert ledger.verify("patients", receipt=receipt).ok


def test_anchors_are_signed_by_the_service_and_checked_here(service, signer, tmp_path):
    file = tmp_path / "anchors.jsonl"
    with opened(service) as ledger:
        ledger.create("patients", 3.0, 1e-6).spend(QUERY)
        (first,) = ledger.anchor(file)
        assert first.key == signer.public
        assert ledger.anchor(file) == []
        ledger["patients"].spend(QUERY)
        (second,) = ledger.anchor(file)
        assert second.previous == first.hash
        found = ledger.verify("patients", anchors=AnchorLog.read(file))
        assert (found.ok, found.entries) == (True, 3)
        with pytest.raises(ValueError, match="the service signs with its own"):
            ledger.anchor(file, signing_key=tmp_path / "mine.key")


def test_a_service_over_a_rolled_back_database_is_found_out(url, signer, tmp_path):
    file, database = tmp_path / "anchors.jsonl", tmp_path / "budgets.db"
    with running(url, signer=signer) as service, opened(service) as ledger:
        ledger.create("patients", 3.0, 1e-6).spend(QUERY)
        token = service.token("owner:*")
    shutil.copy(database, tmp_path / "copy.db")
    with running(url, signer=signer) as service:
        with Ledger.open(service.address, token=token) as ledger:
            ledger["patients"].spend(dm.Gaussian(5.0))
            ledger.anchor(file)
    for path in tmp_path.glob("budgets.db*"):
        path.unlink()
    shutil.copy(tmp_path / "copy.db", database)
    with running(url, signer=signer) as service:
        with Ledger.open(service.address, token=token) as ledger:
            ledger["patients"].spend(dm.Gaussian(500.0))
            assert ledger.verify("patients").ok, "the service believes itself"
            found = ledger.verify("patients", anchors=AnchorLog.read(file))
            assert (found.ok, found.sequence) == (False, 2)
            with pytest.raises(JournalError, match="must hold entry 2"):
                ledger.anchor(file)


def test_a_service_that_lies_about_entries_is_not_asked(service, tmp_path, monkeypatch):
    """What it exports is replayed here: it cannot say that it holds what it does not show."""
    file = tmp_path / "anchors.jsonl"
    with opened(service) as ledger:
        ledger.create("patients", 3.0, 1e-6).spend(QUERY)
        ledger.anchor(file)
        lines = list(ledger.export("patients"))
        monkeypatch.setattr(type(ledger), "export", lambda self, name: iter([lines[0], lines[-1]]))
        found = ledger.verify("patients", anchors=AnchorLog.read(file))
        assert (found.ok, found.sequence) == (False, 1)


def test_a_token_anchors_what_it_may_see(service, tmp_path):
    with opened(service) as ledger:
        for name in ("patients", "visits/1"):
            ledger.create(name, 3.0, 1e-6)
    with opened(service, "reader:visits/*") as ledger:
        (made,) = ledger.anchor(tmp_path / "anchors.jsonl")
        assert list(made.heads) == ["visits/1"]
        asked = {"names": ["patients"], "number": 0, "previous": "0" * 64}
        with pytest.raises(BudgetNotFound):
            ledger._courier.tell("/v1/anchor", asked)


def test_a_service_without_a_key_says_so(client, bearer):
    asked = {"names": ["patients"], "number": 0, "previous": "0" * 64}
    answer = client.post("/v1/anchor", json=asked, headers=bearer("reader:*"))
    assert answer.status_code == 422
    assert "--signing-key" in answer.json()["message"]
    assert client.get("/v1/key", headers=bearer("reader:*")).json()["key"] is None
    spend = {"costs": {"patients": {"kind": "gaussian", "noise_multiplier": 20.0}}}
    headers = {**bearer("spender:*"), "Idempotency-Key": "1"}
    assert (
        client.post("/v1/spend", json=spend, headers=headers).json()["patients"]["signature"] == ""
    )


@pytest.mark.parametrize(
    "wrong",
    [{"previous": "x"}, {"number": -1}, {"names": []}, {"number": True}, {"previous": "0" * 63}],
)
def test_wrong_values_are_refused(client, bearer, wrong):
    asked = {"names": ["patients"], "number": 0, "previous": "0" * 64, **wrong}
    answer = client.post("/v1/anchor", json=asked, headers=bearer("reader:*"))
    assert answer.status_code == 422
    assert json.loads(answer.text)["error"] == "ValueError"
