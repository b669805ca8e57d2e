# SPDX-License-Identifier: Apache-2.0
"""Entries as bytes: exact both ways, and strict on the way back."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter.ledger import Entry, JournalError, Kind
from dosimeter.ledger.records import canonical, stated

texts = st.text(st.characters(), max_size=30)
entries = st.builds(
    Entry,
    budget=texts,
    sequence=st.integers(0, 2**62),
    kind=st.sampled_from(Kind),
    cost=st.none() | st.just('{"kind":"gaussian","noise_multiplier":2.0}'),
    count=st.integers(0, 2**53),
    epsilon=st.floats(0, math.inf),
    key=st.none() | texts,
    reference=st.none() | st.integers(0, 2**62),
    parameters=st.none() | st.just({"kind": "odometer", "orders": [2.0, 3.0]}),
    actor=texts,
    purpose=texts,
    time=texts,
    previous=texts,
    state=texts,
)


@given(entry=entries)
def test_an_entry_comes_back_from_its_line(entry: Entry) -> None:
    body = entry.body()
    epsilon = "inf" if entry.epsilon == math.inf else entry.epsilon
    cost = None if entry.cost is None else json.loads(entry.cost)
    values = {**entry._asdict(), "cost": cost, "epsilon": epsilon, "format": 1}
    assert body == canonical(values)
    assert body.isascii()
    assert "\n" not in body
    assert Entry.parse(body) == entry
    assert Entry.parse(body).body() == body


plain = st.text('abc de"\\\\}{:,1', max_size=8)
usual = st.builds(
    Entry,
    budget=plain,
    sequence=st.integers(0, 2**36),
    kind=st.sampled_from(Kind),
    cost=st.none() | st.sampled_from(['{"a":1.0}', '{"a":{"b":"}"},"count":1,"epsilon":0.5}']),
    count=st.integers(0, 2**53),
    epsilon=st.floats(0, 1e30),
    key=st.none() | plain,
    reference=st.none() | st.integers(0, 99),
    actor=plain,
    purpose=plain,
    time=plain,
    previous=plain,
    state=plain,
    parameters=st.none(),
)


@given(entry=usual, at=st.integers(0, 10**6), put=st.sampled_from('0 1.e-"}{,\\ax\x7f'))
def test_lines_are_read_alike_in_both_ways(entry: Entry, at: int, put: str) -> None:
    """The quick way takes what the slow one takes, as the same entry, and nothing else."""
    body = entry.body()
    assert Entry.parse(body) == entry == Entry._parse(body)
    for edited in (body[: at % len(body)] + put + body[at % len(body) + 1 :], body + put):
        try:
            expected = Entry._parse(edited)
        except JournalError:
            with pytest.raises(JournalError):
                Entry.parse(edited)
        else:
            assert Entry.parse(edited) == expected


@pytest.mark.parametrize(
    "cost",
    ['{"a": 1.0}', '{"b":1,"a":2}', '{"a":1.00}', '{"a":"é"}', '{"a":1.0', "{x}", '{"a":1}}'],
)
def test_a_cost_in_another_form_is_refused(cost: str) -> None:
    entry = Entry(
        *("b", 1, Kind.SPEND, "t", "p"), cost='{"a":1.0}', count=1, epsilon=0.5, state="s"
    )
    assert Entry.parse(entry.body()) == entry
    with pytest.raises(JournalError, match="entry must"):
        Entry.parse(entry.body().replace('{"a":1.0}', cost))


@pytest.mark.parametrize("epsilon", [math.nan, -1.0, -math.inf])
def test_an_entry_is_not_written_with_an_epsilon_that_is_none(epsilon: float) -> None:
    entry = Entry(budget="b", sequence=1, kind=Kind.SPEND, epsilon=epsilon, time="", previous="")
    with pytest.raises(ValueError, match="epsilon must be >= 0"):
        entry.body()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", "0.5"),
        ("epsilon", True),
        ("sequence", 1.5),
        ("sequence", True),
        ("count", "1"),
        ("kind", "refund"),
        ("budget", None),
        ("cost", []),
        ("key", 7),
        ("reference", "1"),
        ("state", None),
        ("format", True),
        ("format", "1"),
        ("surprise", 1),
    ],
)
def test_what_the_ledger_would_not_write_is_refused(name: str, value: object) -> None:
    body = json.loads(Entry(budget="b", sequence=1, kind=Kind.SPEND, time="", previous="").body())
    text = json.dumps({**body, name: value}, sort_keys=True, separators=(",", ":"))
    with pytest.raises(JournalError, match="entry must"):
        Entry.parse(text)


@pytest.mark.parametrize("format", [0, 2, 99])
def test_an_entry_of_another_format_is_refused(format: int) -> None:
    body = Entry(budget="b", sequence=1, kind=Kind.SPEND, time="", previous="").body()
    with pytest.raises(JournalError, match=f"format must be 1 for this release, got {format}"):
        Entry.parse(body.replace('"format":1', f'"format":{format}'))


def test_an_entry_without_its_balance_is_refused() -> None:
    body = Entry(budget="b", sequence=1, kind=Kind.SPEND, time="", previous="").body()
    with pytest.raises(JournalError, match="its fields"):
        Entry.parse(body.replace(',"state":""', ""))


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{", '{"format":1}', "[" * 100_000])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(JournalError, match="entry must"):
        Entry.parse(text)


def test_another_spelling_of_the_same_entry_is_refused() -> None:
    body = Entry(budget="é", sequence=1, kind=Kind.SPEND, time="", previous="").body()
    for other in (body.replace(":", ": ", 1), json.dumps(json.loads(body), ensure_ascii=False)):
        with pytest.raises(JournalError):
            Entry.parse(other)


@given(entry=entries, state=st.text("0123456789abcdef", min_size=64, max_size=64))
def test_the_state_is_found_without_reading_the_rest(entry: Entry, state: str) -> None:
    tricky = ',"state":"' + "0" * 64 + '","time":""'
    assert stated(entry._replace(state=state, purpose=tricky, time=tricky).body()) == state


def test_a_line_without_a_state_states_none() -> None:
    assert stated('{"time":""}') == stated("") == ""
