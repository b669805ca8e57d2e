# SPDX-License-Identifier: Apache-2.0
"""Anchors that others keep show what whoever owns the database did to a journal."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.ledger import JournalError, Ledger
from dosimeter.ledger.anchors import Anchor, AnchorLog, require_signed, sign_receipt
from dosimeter.ledger.records import canonical
from dosimeter.ledger.signing import Signer

QUERY = dm.Gaussian(30.0)


class Desk:
    """A ledger, its owner, and someone who keeps the anchors."""

    def __init__(self, folder):
        self.database, self.key = folder / "budgets.db", folder / "office.key"
        self.file = folder / "anchors.jsonl"
        self.copy = folder / "copy.db"
        with self.open() as ledger:
            for name in ("patients", "visits"):
                ledger.create(name, 3.0, 1e-6).spend(QUERY)

    def open(self):
        return Ledger.open(f"sqlite:///{self.database}")

    def anchor(self):
        with self.open() as ledger:
            return ledger.anchor(self.file, signing_key=self.key)

    def spend(self, name="patients", cost=QUERY):
        with self.open() as ledger:
            return ledger[name].spend(cost)

    def keep_copy(self):
        shutil.copy(self.database, self.copy)

    def put_back(self):
        for path in self.database.parent.glob("budgets.db*"):
            path.unlink()
        shutil.copy(self.copy, self.database)

    def verify(self, name="patients", **named):
        with self.open() as ledger:
            return ledger.verify(name, anchors=AnchorLog.read(self.file, **named))


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def rewrite(path, change):
    """Changes the lines of a file of anchors, as someone without the key can."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(canonical(line) + "\n" for line in lines))


def test_anchors_chain_name_what_moved_and_verify(desk):
    (first,) = desk.anchor()
    assert sorted(first.heads) == ["patients", "visits"]
    assert desk.anchor() == []
    receipt = desk.spend()
    (second,) = desk.anchor()
    assert second.heads == {"patients": (receipt.sequence, receipt.hash)}
    assert (second.number, second.previous) == (1, first.hash)
    assert desk.verify().ok
    assert desk.verify("visits", key=first.key).ok
    log = AnchorLog.read(desk.file)
    assert log.heads["patients"] == [(1, first.heads["patients"][1]), (2, receipt.hash)]
    assert (log.entries, log.hash) == (2, second.hash)


def test_the_key_is_made_once_and_is_for_its_owner_alone(desk):
    (first,) = desk.anchor()
    assert desk.key.stat().st_mode & 0o777 == 0o600
    assert Signer.made(desk.key).public == first.key
    desk.key.chmod(0o640)
    desk.spend()
    with pytest.raises(ValueError, match=r"by its owner alone, got .* mode 0640"):
        desk.anchor()


def test_a_journal_that_was_rolled_back_is_found(desk):
    desk.keep_copy()
    desk.spend()
    desk.anchor()
    desk.put_back()
    found = desk.verify()
    assert (found.ok, found.sequence) == (False, 2)
    assert "rolled back" in found.problem
    assert desk.verify("visits").ok
    with pytest.raises(JournalError, match="must hold entry 2, which was anchored"):
        desk.anchor()


def test_a_journal_that_was_rewritten_is_found_though_it_fits_in_itself(desk):
    desk.keep_copy()
    desk.spend(cost=dm.Gaussian(10.0))
    desk.anchor()
    desk.put_back()
    for _ in range(3):  # cheaper ones instead, and more of them
        desk.spend(cost=dm.Gaussian(300.0))
    with desk.open() as ledger:
        assert ledger.verify("patients").ok, "by itself it cannot know"
    assert desk.verify().sequence == 2


def test_a_rewritten_entry_under_an_old_anchor_is_found(desk):
    desk.keep_copy()
    desk.spend()
    desk.anchor()
    desk.spend()
    desk.anchor()
    desk.put_back()
    for _ in range(5):
        desk.spend(cost=dm.Gaussian(300.0))
    assert desk.verify().sequence == 2, "the oldest of them is named"


def test_a_ledger_put_in_its_place_is_found(desk, tmp_path):
    desk.anchor()
    desk.database.unlink()
    with desk.open() as ledger:
        ledger.create("patients", 3.0, 1e-6).spend(QUERY)
    with pytest.raises(JournalError, match="anchors must be of this ledger"):
        desk.verify()
    with pytest.raises(JournalError, match="must hold entry 1"):
        desk.anchor()


def test_a_budget_that_is_gone_is_found(desk):
    desk.keep_copy()
    with desk.open() as ledger:
        ledger.create("trial", 3.0, 1e-6)
    desk.anchor()
    desk.put_back()
    found = CliRunner().invoke(
        app, ["budget", "verify", "--anchor", str(desk.file), "--db", str(desk.database)]
    )
    assert found.exit_code == 5
    assert "trial: entry 0 does not fit: it was anchored" in found.output


def drop(lines):
    del lines[1]


def swap(lines):
    lines[1:3] = reversed(lines[1:3])


def lower(lines):
    lines[2]["heads"]["patients"][0] -= 1


def retime(lines):
    lines[1]["time"] = lines[0]["time"]


def rehash(lines):
    lines[1]["previous"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "line"), [(drop, 2), (swap, 2), (lower, 3), (retime, 2), (rehash, 2)]
)
def test_an_edited_file_is_found_at_the_line(desk, change, line):
    for _ in range(3):
        desk.spend()
        desk.anchor()
    rewrite(desk.file, change)
    with pytest.raises(JournalError, match=f"line {line} is not"):
        AnchorLog.read(desk.file)
    with pytest.raises(JournalError, match=f"line {line} is not"):
        desk.anchor()


def test_a_line_signed_by_another_key_does_not_follow(desk, tmp_path):
    (first,) = desk.anchor()
    forger = Signer.made(tmp_path / "forger.key")
    heads = {"patients": (7, "f" * 64)}
    forged = Anchor.signed(forger, first.ledger, 1, first.hash, heads, first.time)
    with desk.file.open("a") as file:
        file.write(forged.line() + "\n")
    with pytest.raises(JournalError, match=r"line 2 is not: it is of ledger .* and key"):
        AnchorLog.read(desk.file)
    # Under the right name with the wrong signature, too.
    disguised = forged._replace(key=first.key)
    desk.file.write_text(f"{first.line()}\n{disguised.line()}\n")
    with pytest.raises(JournalError, match="its signature is not that of its key"):
        AnchorLog.read(desk.file)


def test_a_whole_file_of_another_key_is_refused_where_the_key_is_named(desk, tmp_path):
    (first,) = desk.anchor()
    forger = Signer.made(tmp_path / "forger.key")
    forged = Anchor.signed(forger, first.ledger, 0, first.previous, first.heads, first.time)
    desk.file.write_text(forged.line() + "\n")
    with pytest.raises(JournalError, match="must be signed by key"):
        desk.verify(key=first.key)


def test_the_log_itself_cannot_say_that_an_entry_was_lost(desk, tmp_path):
    (first,) = desk.anchor()
    signer = Signer.read(desk.key)
    for head in [(0, "a" * 64), (1, "a" * 64)]:
        worse = Anchor.signed(signer, first.ledger, 1, first.hash, {"visits": head}, first.time)
        desk.file.write_text(f"{first.line()}\n{worse.line()}\n")
        with pytest.raises(JournalError, match="says that budget 'visits' lost entry 1"):
            AnchorLog.read(desk.file)


def test_a_missing_key_is_not_made_anew_for_anchors_that_are_there(desk):
    desk.anchor()
    desk.key.unlink()
    desk.spend()
    before = desk.file.read_text()
    with pytest.raises(ValueError, match="which is not there; restore it"):
        desk.anchor()
    assert desk.file.read_text() == before
    assert not desk.key.exists()
    with desk.open() as ledger, pytest.raises(ValueError, match="signing_key must name the file"):
        ledger.anchor(desk.file)


def test_a_key_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.key"
    path.write_text("-----BEGIN NOTHING-----")
    path.chmod(0o600)
    with pytest.raises(ValueError, match="must be an Ed25519 key in PEM"):
        Signer.read(path)


@pytest.mark.parametrize("text", ["", "{}\n", '{"dosimeter":"anchor"}\n', "\udce9\n", "[]\n"])
def test_what_is_no_file_of_anchors_is_refused(tmp_path, text):
    path = tmp_path / "anchors.jsonl"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(JournalError, match=r"must hold anchors|line 1 is not"):
        AnchorLog.read(path)


def test_a_line_cut_short_by_a_crash_is_named(desk):
    desk.anchor()
    os.truncate(desk.file, desk.file.stat().st_size - 5)
    with pytest.raises(JournalError, match="line 1 is not: it is cut short; take it off"):
        desk.anchor()


def test_several_who_append_at_once_make_one_chain(desk):
    desk.anchor()

    def work(i):
        desk.spend("visits" if i % 2 else "patients")
        desk.anchor()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    desk.anchor()
    assert len(AnchorLog.read(desk.file).heads["visits"]) >= 2
    assert desk.verify().ok


def test_a_signed_receipt_proves_itself_and_no_other(tmp_path, desk):
    signer = Signer.made(desk.key)
    receipt = sign_receipt(desk.spend(), signer, "ledger-1")
    require_signed(receipt, signer.public)
    for changed in (
        receipt._replace(sequence=9),
        receipt._replace(hash="0" * 64),
        receipt._replace(budget="visits"),
        receipt._replace(signature=receipt.signature.replace("ledger-1", "ledger-2")),
        receipt._replace(signature=""),
    ):
        with pytest.raises(JournalError, match="must be signed by key"):
            require_signed(changed, signer.public)
    other = Signer.made(tmp_path / "other.key")
    with pytest.raises(JournalError, match="must be signed by key"):
        require_signed(receipt, other.public)
    with pytest.raises(ValueError, match="public key must be 64 hexadecimal digits"):
        require_signed(receipt, "nonsense")


def test_from_a_shell(desk):
    where = ["--db", str(desk.database)]
    run = lambda *words: CliRunner().invoke(app, ["budget", *words, *where])  # noqa: E731
    made = run("anchor", str(desk.file), "--signing-key", str(desk.key))
    assert made.exit_code == 0, made.output
    key = made.output.split("signed by key ")[1].strip()
    assert "anchor 0: 2 journals" in made.output
    again = run("anchor", str(desk.file), "--signing-key", str(desk.key))
    assert "nothing moved" in again.output
    good = run("verify", "--anchor", str(desk.file), "--public-key", key)
    assert (good.exit_code, good.output.count("entries fit")) == (0, 2)
    bad = run("verify", "--anchor", str(desk.file), "--public-key", "0" * 64)
    assert (bad.exit_code, "must be signed by key" in bad.output) == (5, True)
    unsigned = run("spend", "patients", "--gaussian", "30", "--json")
    receipts = desk.file.with_name("receipts.json")
    receipts.write_text(unsigned.stdout)
    assert run("verify", "--receipt", str(receipts)).exit_code == 0
    assert run("verify", "--receipt", str(receipts), "--public-key", key).exit_code == 5
