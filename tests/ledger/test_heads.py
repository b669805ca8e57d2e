# SPDX-License-Identifier: Apache-2.0
"""A balance is believed only beside the entry that led to it; audits go on where they ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dosimeter as dm
from dosimeter.ledger import Budget, JournalError, Ledger, LedgerError
from dosimeter.ledger.book import Balance
from ledger import raw

STEP = dm.Gaussian(20)


@pytest.fixture
def budget(ledger: Ledger) -> Budget:
    made = ledger.create("b", epsilon=3.0, delta=1e-6)
    for _ in range(3):
        made.spend(STEP)
    return made


def row(url: str) -> Balance:
    return Balance(*raw.query(url, "SELECT * FROM dosimeter_budgets WHERE name = 'b'")[0])


def put(url: str, balance: Balance) -> None:
    """One UPDATE, which is what every client may do."""
    values = balance._asdict()
    fields = ", ".join(f"{name} = :{name}" for name in values if name != "id")
    raw.query(url, f"UPDATE dosimeter_budgets SET {fields} WHERE id = :id", **values)


@pytest.mark.parametrize("reset", ["the sums", "the limit", "the beginning", "the end"])
def test_a_balance_that_was_set_is_not_believed(
    ledger: Ledger, open_ledger: Callable[..., Ledger], url: str, budget: Budget, reset: str
) -> None:
    """With checksums worked out anew: they are no secret."""
    now = row(url)
    nothing = ledger.create("other", epsilon=9.0, delta=1e-6)
    fresh = Balance(*raw.query(url, "SELECT * FROM dosimeter_budgets WHERE name = 'other'")[0])
    first = raw.query(url, "SELECT hash FROM dosimeter_journal ORDER BY place LIMIT 1")[0][0]
    edits = {
        "the sums": now._replace(sums=fresh.sums, epsilon=0.0),
        "the limit": now._replace(parameters=fresh.parameters),
        "the beginning": now._replace(sequence=0, head=first, sums=fresh.sums, epsilon=0.0),
        "the end": now._replace(sequence=now.sequence + 1, sums=fresh.sums, epsilon=0.0),
    }
    edited = edits[reset]
    put(url, Balance.sealed(*edited[:-1]))
    client = open_ledger()
    for ask in (
        lambda: client["b"].spend(STEP),
        lambda: client["b"].statement(),
        lambda: client["b"].affordable(STEP),
        lambda: client["b"].spend(STEP, key="k"),
        lambda: client.spend_all({"b": STEP, "other": STEP}),
        lambda: budget.spend(STEP),
    ):
        with pytest.raises(JournalError, match=r"balance|backup"):
            ask()
    assert not client.verify("b").ok
    assert nothing.epsilon == 0.0
    put(url, now)
    assert open_ledger()["b"].spend(STEP).sequence == 4


def test_a_junk_line_cannot_block_a_budget(ledger: Ledger, url: str, budget: Budget) -> None:
    identity = row(url).id
    for beyond in (4, 5, 1000):
        with pytest.raises(Exception, match="beyond its balance"):
            raw.query(
                url,
                "INSERT INTO dosimeter_journal (place, hash, body) VALUES (:place, 'x', 'junk')",
                place=(identity << 36) + beyond,
            )
    with pytest.raises(Exception, match="beyond its balance"):
        raw.query(
            url,
            "INSERT INTO dosimeter_journal (place, hash, body) VALUES (:place, 'x', 'junk')",
            place=(identity + 1) << 36,
        )
    budget.spend(STEP)
    assert ledger.verify("b").entries == 5


def test_what_an_owner_put_beyond_the_end_is_named(
    ledger: Ledger, open_ledger: Callable[..., Ledger], url: str, budget: Budget
) -> None:
    raw.unprotect(url)
    raw.query(
        url,
        "INSERT INTO dosimeter_journal (place, hash, body) VALUES (:place, 'x', 'junk')",
        place=(row(url).id << 36) + 4,
    )
    for client in (ledger, open_ledger()):
        with pytest.raises(JournalError, match="beyond 3"):
            client["b"].spend(STEP)
    assert ledger.verify("b").sequence == 4


class TestGoingOn:
    def test_only_what_is_new_is_replayed(self, ledger: Ledger, budget: Budget) -> None:
        first = ledger.verify("b")
        with budget.reserve(STEP, 2) as reservation:
            halfway = ledger.verify("b", since=first.memory)
            reservation.draw()
        told: list[tuple[int, int]] = []
        second = ledger.verify(
            "b", since=halfway.memory, progress=lambda done, of: told.append((done, of))
        )
        whole = ledger.verify("b")
        assert (second.ok, second.entries, second.head) == (True, whole.entries, whole.head)
        assert second.epsilon == pytest.approx(whole.epsilon)
        assert halfway.entries == 5
        assert told == []
        assert ledger.verify("b", since=second.memory).ok

    def test_with_a_menu(self, ledger: Ledger) -> None:
        budget = ledger.create("m", epsilon=2.0, delta=1e-6, menu=[dm.Gaussian(50)])
        budget.spend(dm.Gaussian(50), 3)
        memory = ledger.verify("m").memory
        budget.spend(dm.Gaussian(50), 2)
        assert ledger.verify("m", since=memory).ok

    def test_an_entry_that_was_verified_must_still_be_there(
        self, ledger: Ledger, url: str, budget: Budget
    ) -> None:
        memory = ledger.verify("b").memory
        raw.unprotect(url)
        raw.query(url, f"UPDATE dosimeter_journal SET hash = 'x' WHERE {raw.SEQUENCE} = 3")
        found = ledger.verify("b", since=memory)
        assert found.sequence == 3
        assert "verified before" in str(found)

    def test_a_new_entry_that_does_not_fit_is_named(
        self, ledger: Ledger, url: str, budget: Budget
    ) -> None:
        memory = ledger.verify("b").memory
        budget.spend(STEP)
        raw.unprotect(url)
        raw.query(
            url,
            "UPDATE dosimeter_journal SET body = replace(body, '20.0', '90.0') "
            f"WHERE {raw.SEQUENCE} = 4",
        )
        assert ledger.verify("b", since=memory).sequence == 4

    @pytest.mark.parametrize("memory", ["x", "{}", "[]", "null"])
    def test_what_is_no_memory_is_refused(
        self, ledger: Ledger, budget: Budget, memory: str
    ) -> None:
        with pytest.raises(ValueError, match="verify it whole"):
            ledger.verify("b", since=memory)
        ledger.create("c", epsilon=1.0, delta=1e-6)
        with pytest.raises(ValueError, match="verify it whole"):
            ledger.verify("c", since=ledger.verify("b").memory)

    def test_a_head_and_a_receipt_must_be_there(self, ledger: Ledger, budget: Budget) -> None:
        head = budget.statement().head
        receipt = budget.spend(STEP)
        assert ledger.verify("b", head=head).ok
        assert not ledger.verify("b", head="0" * 64).ok
        assert budget.holds(receipt.sequence, receipt.hash)
        assert not budget.holds(receipt.sequence, head)


def test_one_damaged_balance_hides_no_other(ledger: Ledger, url: str, budget: Budget) -> None:
    ledger.create("c", epsilon=1.0, delta=1e-6).spend(STEP)
    ledger.create("m", epsilon=2.0, delta=1e-6, menu=[dm.Gaussian(50)])
    names = ["b", "c", "m"]
    assert ledger.statements() == [ledger[name].statement() for name in names]
    raw.query(url, "UPDATE dosimeter_budgets SET epsilon = 0.0 WHERE name = 'b'")
    listed = ledger.statements()
    assert [one.name for one in listed] == names
    assert listed[0].epsilon == float("inf")
    assert "checksum" in listed[0].problem
    assert listed[1:] == [ledger[name].statement() for name in names[1:]]


def test_lists_come_in_pages(ledger: Ledger) -> None:
    ledger.create_blocks("day", map(str, range(5)), epsilon=1.0, delta=1e-6)
    first = ledger.statements(most=3)
    assert [one.name for one in first] == ["day/0", "day/1", "day/2"]
    assert [one.name for one in ledger.statements(after="day/2")] == ["day/3", "day/4"]
    with pytest.raises(LedgerError):
        ledger.statements(after="day/9")
