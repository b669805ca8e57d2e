# SPDX-License-Identifier: Apache-2.0
"""Audit: whatever byte is changed, the first entry that does not fit is named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dosimeter as dm
from dosimeter.ledger import (
    Entry,
    JournalError,
    KeyConflict,
    Kind,
    Ledger,
    LedgerError,
    Receipt,
    journal,
)
from dosimeter.ledger.audit import Replay, replayed
from dosimeter.ledger.book import Balance
from dosimeter.ledger.records import digest
from ledger import raw

COLUMNS = [raw.SEQUENCE, "key", "reference", "hash", "body"]


STEP = dm.Gaussian(50)
MENU = [STEP, *(dm.Gaussian(20 + i) for i in range(3))]


@pytest.fixture(params=[None, MENU], ids=["sums", "menu"])
def receipts(ledger: Ledger, url: str, request: pytest.FixtureRequest) -> list[Receipt]:
    menu = request.param
    note = {"purpose": "trial", "actor": "ada"}
    budget = ledger.create("patients", epsilon=3.0, delta=1e-6, menu=menu, **note)
    made = [
        budget.spend(dm.Gaussian(20 + i), 2, key=f"k{i}", purpose=f"query {i}", actor="ada")
        for i in range(3)
    ]
    with budget.reserve(STEP, 10) as reservation:
        reservation.draw(2)
    raw.unprotect(url)
    return made


def stored(url: str) -> list[tuple[Any, ...]]:
    return raw.query(url, f"SELECT {', '.join(COLUMNS)} FROM dosimeter_journal ORDER BY place")


def change(url: str, sequence: int, column: str, value: object) -> None:
    raw.query(
        url,
        f"UPDATE dosimeter_journal SET {column} = :value WHERE {raw.SEQUENCE} = :sequence",
        value=value,
        sequence=sequence,
    )


def other(character: str, rng: random.Random) -> str:
    # No letter that makes one key of the fixture another one: the index would refuse it.
    return rng.choice([c for c in '9a4f{"x' if c != character])


def tamper_everywhere(ledger: Ledger, url: str, places: list[tuple[int, str, int]]) -> None:
    rng = random.Random(0)
    lines = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in stored(url)}
    for sequence, column, place in places:
        value = lines[sequence][column]
        edited = value[:place] + other(value[place], rng) + value[place + 1 :]
        change(url, sequence, column, edited)
        found = ledger.verify("patients")
        assert not found.ok, (sequence, column, place)
        assert found.sequence == sequence, (sequence, column, place, found)
        assert str(sequence) in str(found)
        change(url, sequence, column, value)
    assert ledger.verify("patients").ok


def all_places(url: str) -> list[tuple[int, str, int]]:
    return [
        (row[0], column, place)
        for row in stored(url)
        for column in ("key", "hash", "body")
        for place in range(len(row[COLUMNS.index(column)] or ""))
    ]


def test_some_bytes_of_every_entry(ledger: Ledger, url: str, receipts: list[Receipt]) -> None:
    places = all_places(url)
    tamper_everywhere(ledger, url, random.Random(1).sample(places, 60))


@pytest.mark.slow
def test_every_byte_of_every_entry(ledger: Ledger, url: str, receipts: list[Receipt]) -> None:
    tamper_everywhere(ledger, url, all_places(url))


@pytest.mark.parametrize(("column", "value"), [("key", None), ("reference", 1)])
def test_columns_beside_the_text_count_too(
    ledger: Ledger, url: str, receipts: list[Receipt], column: str, value: object
) -> None:
    change(url, 2, column, value)
    assert ledger.verify("patients").sequence == 2


@pytest.mark.parametrize("move", [7, 1 << 36, -(1 << 50)])
def test_an_entry_that_was_moved_is_named(
    ledger: Ledger, url: str, receipts: list[Receipt], move: int
) -> None:
    raw.query(
        url,
        f"UPDATE dosimeter_journal SET place = place + :move WHERE {raw.SEQUENCE} = 2",
        move=move,
    )
    assert ledger.verify("patients").sequence == 2


@pytest.mark.parametrize("sequence", [0, 1, 3, 5])
def test_a_missing_entry_is_named(
    ledger: Ledger, url: str, receipts: list[Receipt], sequence: int
) -> None:
    raw.query(url, f"DELETE FROM dosimeter_journal WHERE {raw.SEQUENCE} = :s", s=sequence)
    found = ledger.verify("patients")
    assert (found.ok, found.sequence) == (False, sequence)


def test_an_entry_with_a_matching_hash_breaks_the_chain(
    ledger: Ledger, url: str, receipts: list[Receipt]
) -> None:
    body = json.loads(stored(url)[1][4])
    body["purpose"] = "something else"
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    change(url, 1, "body", text)
    change(url, 1, "hash", digest(text))
    assert ledger.verify("patients").sequence == 2


def rewrite(url: str, edit: Any) -> None:
    """Writes the whole journal anew, hashes and balance too, as a forger would."""
    previous = "0" * 64
    for row in stored(url):
        body = {**json.loads(row[4]), "previous": previous}
        edit(body)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        previous = digest(text)
        change(url, row[0], "body", text)
        change(url, row[0], "hash", previous)
    (row,) = raw.query(url, f"SELECT {', '.join(Balance._fields)} FROM dosimeter_budgets")
    forged = Balance.sealed(*Balance(*row)._replace(head=previous)[:-1])
    raw.query(
        url,
        "UPDATE dosimeter_budgets SET head = :head, checksum = :checksum",
        head=forged.head,
        checksum=forged.checksum,
    )


def test_a_forged_cost_does_not_add_up(ledger: Ledger, url: str, receipts: list[Receipt]) -> None:
    def cheaper(body: dict[str, Any]) -> None:
        if body["sequence"] == 2:
            body["cost"]["noise_multiplier"] = 2000.0

    rewrite(url, cheaper)
    found = ledger.verify("patients")
    assert found.sequence == 2
    assert "epsilon" in str(found)


def test_a_receipt_shows_a_journal_written_anew(
    ledger: Ledger, url: str, receipts: list[Receipt]
) -> None:
    def rename(body: dict[str, Any]) -> None:
        body["actor"] = "nobody"

    assert ledger.verify("patients", receipt=receipts[1]).ok
    rewrite(url, rename)
    assert ledger.verify("patients").ok
    assert ledger.verify("patients", receipt=receipts[1]).sequence == 2


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dosimeter_budgets SET epsilon = 0.0",
        "UPDATE dosimeter_budgets SET closed = 1",
        "UPDATE dosimeter_budgets SET sequence = sequence - 1",
        f"UPDATE dosimeter_budgets SET head = hash FROM dosimeter_journal WHERE {raw.SEQUENCE} = 1",
        "UPDATE dosimeter_budgets SET sums = replace(sums, 'f', '0')",
        "UPDATE dosimeter_parameters SET body = replace(body, '3.0', '9.0')",
        "DELETE FROM dosimeter_parameters",
    ],
)
def test_an_edited_balance_is_found_and_stops_spending(
    ledger: Ledger, url: str, receipts: list[Receipt], edit: str
) -> None:
    if "DELETE" in edit and url.startswith("postgresql"):
        raw.query(
            url, "ALTER TABLE dosimeter_budgets DROP CONSTRAINT dosimeter_budgets_parameters_fkey"
        )
    raw.query(url, edit)
    found = ledger.verify("patients")
    assert not found.ok
    assert found.sequence is None
    fresh = Ledger.open(url)
    with pytest.raises(JournalError):
        fresh["patients"].spend(dm.Gaussian(20))
    fresh.disconnect()


def test_an_audit_sees_one_moment_and_blocks_nobody(ledger: Ledger) -> None:
    budget = ledger.create("b", epsilon=3.0, delta=1e-6)
    budget.spend(dm.Gaussian(20))
    lines = ledger.export("b")
    first = next(lines)
    budget.spend(dm.Gaussian(20))
    # The entries, and the line that counts them.
    assert len([first, *lines]) == 3
    assert len(list(ledger.export("b"))) == 4


def test_a_budget_that_went_back_is_refused(ledger: Ledger, url: str) -> None:
    budget = ledger.create("b", epsilon=3.0, delta=1e-6)
    budget.spend(dm.Gaussian(20))
    ((sequence, head, epsilon, sums, checksum),) = raw.query(
        url, "SELECT sequence, head, epsilon, sums, checksum FROM dosimeter_budgets"
    )
    budget.spend(dm.Gaussian(20))
    raw.unprotect(url)
    raw.query(url, f"DELETE FROM dosimeter_journal WHERE {raw.SEQUENCE} > 1")
    raw.query(
        url,
        "UPDATE dosimeter_budgets SET sequence = :sequence, head = :head, epsilon = :epsilon, "
        "sums = :sums, checksum = :checksum",
        sequence=sequence,
        head=head,
        epsilon=epsilon,
        sums=sums,
        checksum=checksum,
    )
    # It is a journal that fits; only who has seen more knows.
    assert ledger.verify("b").ok
    with pytest.raises(JournalError, match="backup"):
        budget.spend(dm.Gaussian(20))
    with pytest.raises(JournalError, match="backup"):
        budget.spend(dm.Gaussian(20), key="k")


def test_a_moved_key_is_no_receipt(ledger: Ledger, url: str, receipts: list[Receipt]) -> None:
    other = ledger.create("other", epsilon=3.0, delta=1e-6)
    ((here, there),) = raw.query(url, "SELECT min(id), max(id) FROM dosimeter_budgets")
    raw.query(
        url,
        "INSERT INTO dosimeter_journal (place, key, reference, hash, body) "
        "SELECT place + :move, key, reference, hash, body FROM dosimeter_journal WHERE key = 'k0'",
        move=((there - here) << 36) + 9,
    )
    # A line of another budget stands beyond where this one ends.
    with pytest.raises(JournalError, match="beyond"):
        other.spend(dm.Gaussian(20), 2, key="k0")
    change(url, 3, "key", "renamed")
    with pytest.raises(KeyConflict):
        ledger["patients"].spend(dm.Gaussian(22), 2, key="renamed")


@pytest.mark.parametrize("epsilon", [1e-4, 3e-4, 1e-3])
@pytest.mark.parametrize("orders", [None, [2.0, 8.0, 64.0, 1024.0, 8192.0, 65536.0]])
def test_a_small_budget_at_its_limit_verifies(
    ledger: Ledger, epsilon: float, orders: list[float] | None
) -> None:
    for place in range(3, 10):
        budget = ledger.create(f"b{place}", epsilon=epsilon, delta=10.0**-place, orders=orders)
        for noise in (40 / epsilon, 400 / epsilon, 4e4 / epsilon):
            count = budget.affordable(dm.Gaussian(noise))
            if 0 < count < 2**53:
                budget.spend(dm.Gaussian(noise), count)
        found = ledger.verify(budget.name)
        assert found.ok, found


class TestBytesThatAreNoText:
    """What SQLite lets into a column of text is found by its hash."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/budgets.db"

    @pytest.mark.parametrize("edit", ["X'7B7D'", "CAST(X'FF7B' AS TEXT)", "X'FF' || body"])
    def test_in_an_entry(
        self, ledger: Ledger, url: str, receipts: list[Receipt], edit: str
    ) -> None:
        raw.query(url, f"UPDATE dosimeter_journal SET body = {edit} WHERE {raw.SEQUENCE} = 2")
        assert ledger.verify("patients").sequence == 2

    @pytest.mark.parametrize("edit", ["X'7B7D'", "CAST(X'FF7B' AS TEXT)", "X'FF' || body"])
    def test_in_the_parameters(
        self, ledger: Ledger, url: str, receipts: list[Receipt], edit: str
    ) -> None:
        raw.query(url, f"UPDATE dosimeter_parameters SET body = {edit}")
        assert not ledger.verify("patients").ok

    @pytest.mark.parametrize("edit", ["CAST(X'FF7B' AS TEXT)", "X'FF' || sums"])
    def test_in_the_balance(
        self, ledger: Ledger, url: str, receipts: list[Receipt], edit: str
    ) -> None:
        raw.query(url, f"UPDATE dosimeter_budgets SET sums = {edit}")
        with pytest.raises(JournalError, match="checksum"):
            ledger["patients"].spend(dm.Gaussian(20))


@pytest.mark.parametrize("field", ["head", "sums", "name"])
def test_no_edit_of_a_row_keeps_its_checksum(field: str) -> None:
    entry = Entry(
        budget="b", sequence=3, kind=Kind.SPEND, epsilon=0.5, time="", previous="p", cost=None
    )
    row = Balance.sealed(1, "x 0.0 00 0 y", "p", 3, "h", 0.5, "00", 0)
    body = entry._replace(state=row.checksum).body()
    row = row._replace(head=digest(body))
    assert row.require_head(row.head, body, beyond=False) is row
    edits = {field: getattr(row, field) + " 0"}
    others: dict[str, Any] = {"name": "y", "sums": "h 0.5 00 0 x", "epsilon": 0.0}
    for edited in (row._replace(**edits), row._replace(**others)):
        with pytest.raises(JournalError, match=r"checksum|head"):
            edited.require_head(row.head, body, beyond=False)


def number_next(url: str, identity: int) -> None:
    """Makes the next budget's id this one."""
    if url.startswith("sqlite"):
        raw.query(url, "UPDATE dosimeter_budgets SET id = :id", id=identity - 1)
    else:
        raw.query(url, f"ALTER TABLE dosimeter_budgets ALTER id RESTART WITH {identity}")


@pytest.mark.parametrize("beyond", [0, 1, 2])
def test_a_ledger_that_is_full_says_so(ledger: Ledger, url: str, beyond: int) -> None:
    ledger.create("first", epsilon=1.0, delta=1e-6)
    number_next(url, 2**27 - 1 + beyond)
    before = raw.everything(url)
    with pytest.raises(LedgerError, match="fewer than"):
        ledger.create("one too many", epsilon=1.0, delta=1e-6)
    assert raw.everything(url) == before


def test_the_last_budget_of_a_ledger_works(ledger: Ledger, url: str) -> None:
    ledger.create("first", epsilon=1.0, delta=1e-6)
    number_next(url, 2**27 - 2)
    budget = ledger.create("last", epsilon=1.0, delta=1e-6)
    budget.spend(dm.Gaussian(100))
    assert len(budget.history()) == 2
    assert ledger.verify("last").ok


@pytest.mark.parametrize("later", [False, True])
def test_the_first_of_many_that_does_not_fit_is_named(
    open_ledger: Callable[..., Ledger], later: bool
) -> None:
    """Epsilons are compared many at a time; one that is wrong comes before a later broken line."""
    ledger = open_ledger()
    budget = ledger.create("b", epsilon=3.0, delta=1e-6)
    for _ in range(12):
        budget.spend(STEP)
    lines = [journal.import_line(line) for line in list(ledger.export("b"))[:-1]]
    wrong, forged, head = 5, [], "0" * 64
    for line in lines:
        entry = line.entry()._replace(previous=head)
        if entry.sequence == wrong:
            entry = entry._replace(epsilon=entry.epsilon * 1.001)
        head = digest(entry.body())
        forged.append(journal.Line(line.sequence, None, None, head, entry.body()))
    if later:
        forged[9] = forged[9]._replace(hash="0" * 64)
    replay = Replay("b")
    found = replayed(replay, forged)
    assert (found.ok, found.sequence, found.entries) == (False, wrong, wrong)
    assert found.head == forged[wrong - 1].hash
    assert found.epsilon == pytest.approx(forged[wrong - 1].entry().epsilon)
    assert "recomputed" in str(found)
