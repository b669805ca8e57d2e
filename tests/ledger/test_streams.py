# SPDX-License-Identifier: Apache-2.0
"""Streams: blocks by a rule, each made once with the same budget, spent from together."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import dosimeter as dm
from dosimeter.cli.app import app
from dosimeter.ledger import (
    BudgetClosed,
    BudgetExists,
    BudgetNotFound,
    KeyConflict,
    Ledger,
    LedgerRefusal,
)
from dosimeter.ledger.rules import Every, Rule

QUERY = dm.Gaussian(30.0)
TODAY = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.fixture
def now():
    return [TODAY]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/budgets.db"


@pytest.fixture
def ledger(url, now):
    with Ledger.open(url, clock=lambda: now[0]) as opened:
        yield opened


@pytest.fixture
def days(ledger):
    return ledger.create_stream("visits", "day", 1.0, 1e-6, since=date(2026, 11, 1))


def test_each_day_has_a_block_with_the_same_budget(ledger, days, now):
    assert days.blocks() == [f"visits/2026-11-{day:02}" for day in range(1, 18)]
    assert days.blocks(last=2) == ["visits/2026-11-16", "visits/2026-11-17"]
    now[0] += timedelta(days=2)
    assert days.blocks(last=3) == [f"visits/2026-11-{day}" for day in (17, 18, 19)]
    assert {(one.limit, one.delta, one.epsilon) for one in days.statements()} == {(1.0, 1e-6, 0.0)}
    assert ledger.stream("visits").rule == Rule(Every.DAY, date(2026, 11, 1))


def test_a_new_day_renews_and_nothing_is_forgiven(ledger, days, now):
    while days.offered(QUERY, last=3) == days.blocks(last=3):
        days.spend(QUERY, last=3)
    spent = [one.epsilon for one in days.statements(last=3)]
    assert days.offered(QUERY, last=3) == []
    with pytest.raises(LedgerRefusal, match=r"visits/2026-11-15"):
        days.spend(QUERY, last=3)
    now[0] += timedelta(days=1)
    assert days.offered(QUERY, last=3) == ["visits/2026-11-18"]
    with pytest.raises(LedgerRefusal):
        days.spend(QUERY, last=2)
    assert ledger["visits/2026-11-18"].epsilon == 0.0, "all of them or none"
    days.spend(QUERY, blocks=days.offered(QUERY, last=3))
    assert [one.epsilon for one in days.statements(last=4)][:3] == spent
    assert all(ledger.verify(name).ok for name in ledger)


def test_a_block_is_made_once_whoever_sees_the_day_first(url, ledger, days, now):
    days.spend(QUERY, last=1)
    now[0] += timedelta(days=40)

    def look(_):
        with Ledger.open(url, clock=lambda: now[0]) as other:
            return other.stream("visits").blocks()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(look, range(6)))
    assert all(names == found[0] for names in found)
    names = list(ledger)
    assert len(names) == len(set(names)) == 1 + 57
    assert ledger["visits/2026-11-17"].epsilon > 0, "a block that is there is left as it is"
    assert ledger["visits/2026-11-17"].statement().entries == 2


def test_the_rule_cannot_be_spent_from_and_is_audited(ledger, days):
    with pytest.raises(BudgetClosed):
        ledger["visits/*"].spend(QUERY)
    with pytest.raises(ValueError, match="must be those of stream"):
        days.spend(QUERY, blocks=["visits/*"])
    with pytest.raises(ValueError, match="must be those of stream"):
        days.spend(QUERY, blocks=["patients"])
    assert ledger.verify("visits/*").ok
    assert ledger["visits/*"].history()[0].purpose == "stream by day since 2026-11-01"


def test_a_name_has_one_rule_and_no_other_blocks(ledger, days):
    with pytest.raises(BudgetExists, match="must be new for a stream"):
        ledger.create_stream("visits", "week", 5.0, 1e-6)
    ledger.create_blocks("stays", ["2026-01"], 1.0, 1e-6)
    with pytest.raises(BudgetExists, match="which has blocks"):
        ledger.create_stream("stays", "month", 1.0, 1e-6)
    with pytest.raises(BudgetNotFound):
        ledger.stream("stays")


def test_a_budget_that_only_looks_like_a_rule_is_none(ledger):
    ledger.create("fake/*", 1.0, 1e-6, purpose="stream by day since 2026-11-01")
    with pytest.raises(BudgetNotFound):
        ledger.stream("fake")  # it is open: somebody may spend from it


def test_the_same_key_on_another_day_is_a_conflict_and_never_half_a_spend(ledger, days, now):
    first = days.spend(QUERY, last=3, key="report")
    again = days.spend(QUERY, last=3, key="report")
    assert all(receipt.replayed for receipt in again.values())
    assert set(first) == set(again)
    now[0] += timedelta(days=1)
    with pytest.raises(KeyConflict):
        days.spend(QUERY, last=3, key="report")
    assert ledger["visits/2026-11-18"].epsilon == 0.0


def test_shards_are_named_as_they_arrive_and_keep_their_block(ledger):
    shards = ledger.create_stream("uploads", "shard", 1.0, 1e-6)
    assert shards.blocks() == []
    with pytest.raises(ValueError, match="has nothing to offer"):
        shards.spend(QUERY, last=5)
    for label in ("b", "a", "c"):
        shards.add(label)
    shards.spend(QUERY, last=1)
    assert shards.add("c").epsilon > 0, "adding it again renews nothing"
    assert shards.blocks() == ["uploads/b", "uploads/a", "uploads/c"], "in the order of arrival"
    assert shards.blocks(last=2) == ["uploads/a", "uploads/c"]
    for wrong in ("*", "a/b", "", 7):
        with pytest.raises((ValueError, TypeError), match="label must"):
            shards.add(wrong)


def test_labels_of_the_calendar_are_left_to_the_rule(days):
    with pytest.raises(ValueError, match="has a block for every day"):
        days.add("2026-11-7")


def test_closed_blocks_drop_out_too(ledger, days):
    ledger["visits/2026-11-01"] if days.blocks() else None
    ledger["visits/2026-11-16"].close()
    assert days.offered(QUERY, last=3) == ["visits/2026-11-15", "visits/2026-11-17"]
    with pytest.raises(BudgetClosed):
        days.spend(QUERY, last=3)


def test_days_are_those_of_utc(ledger, days, now):
    now[0] = datetime(2026, 11, 18, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert days.blocks(last=1) == ["visits/2026-11-17"]


def test_a_menu_holds_for_every_block(ledger):
    stream = ledger.create_stream("scans", "week", 1.0, 1e-6, menu=[QUERY])
    plain = ledger.create("plain", 1.0, 1e-6)
    (name,) = stream.blocks()
    assert name == "scans/2026-W47"
    assert ledger[name].affordable(QUERY) > plain.affordable(QUERY)


@pytest.mark.parametrize(
    ("every", "since", "match"),
    [
        ("hour", None, "every must be one of day, week, month, shard"),
        ("dya", None, "did you mean 'day'"),
        ("shard", date(2026, 1, 1), "since must be given for days, weeks and months alone"),
        ("day", date(1900, 1, 1), "since must be at most 4000 blocks ago"),
    ],
)
def test_wrong_rules_are_refused_and_nothing_is_written(ledger, every, since, match):
    with pytest.raises(ValueError, match=match):
        ledger.create_stream("visits", every, 1.0, 1e-6, since=since)
    assert list(ledger) == []


def test_a_stream_that_begins_later_has_no_blocks_yet(ledger, now):
    later = ledger.create_stream("later", "month", 1.0, 1e-6, since=date(2026, 12, 5))
    assert later.blocks() == []
    now[0] = datetime(2027, 1, 31, tzinfo=UTC)
    assert later.blocks() == ["later/2026-12", "later/2027-01"]


@given(
    every=st.sampled_from([Every.DAY, Every.WEEK, Every.MONTH]),
    since=st.dates(date(2015, 1, 1), date(2026, 1, 1)),
    days=st.integers(0, 900),
    last=st.integers(1, 40),
)
def test_every_day_lies_in_exactly_one_block_of_those_up_to_it(every, since, days, last):
    rule, today = Rule(every, since), since + timedelta(days=days)
    labels = rule.labels(today)
    each = [rule.label(since + timedelta(days=n)) for n in range(days + 1)]
    assert labels == sorted(set(labels)) == sorted(set(each)), "in order, without gaps"
    assert rule.labels(today, last) == labels[-last:]
    assert Rule.read(rule.words("any: words\nat all")) == rule


@pytest.mark.parametrize(
    "words",
    ["", "stream by day", "stream by shard since 2026-01-01", "stream by day since 2026-13-01"],
)
def test_words_that_are_no_rule(words):
    assert Rule.read(words) is None


def test_from_a_shell(tmp_path):
    where = ["--db", str(tmp_path / "budgets.db")]
    run = lambda *words: CliRunner().invoke(app, [*words, *where])  # noqa: E731
    made = run("stream", "create", "visits", "--every", "day", "--epsilon", "1", "--delta", "1e-6")
    assert made.exit_code == 0, made.output
    assert "1 blocks so far" in made.output
    spent = run("stream", "spend", "visits", "--last", "30", "--gaussian", "30", "--json")
    (receipt,) = json.loads(spent.stdout)
    assert receipt["budget"].startswith("visits/20")
    offered = run("stream", "offer", "visits", "--gaussian", "30", "--last", "30", "--json")
    assert json.loads(offered.output) == [receipt["budget"]]
    refused = run("stream", "spend", "visits", "--last", "30", "--gaussian", "2")
    assert (refused.exit_code, receipt["budget"] in refused.output) == (3, True)
    assert json.loads(run("stream", "offer", "visits", "--gaussian", "2", "--json").output) == []
    assert len(json.loads(run("stream", "show", "visits", "--json").output)) == 1
    assert "visits/*" not in run("budget", "show", "visits").output
    assert run("stream", "add", "visits", "x").exit_code == 2
    assert run("stream", "show", "nothing").exit_code == 4
    wrong = run("stream", "create", "v", "--every", "day", "--epsilon", "1", "--delta", "1e-6",
                "--since", "yesterday")  # fmt: skip
    assert (wrong.exit_code, "--since must be a day" in wrong.output) == (2, True)


def test_a_stream_that_is_there_will_do_by_the_same_rule_and_terms(tmp_path):
    with Ledger.open(str(tmp_path / "budgets.db")) as ledger:
        terms = {"epsilon": 1.0, "delta": 1e-6, "exist_ok": True}
        since = date(2026, 1, 1)
        made = ledger.create_stream("stays", "month", since=since, **terms)
        made.blocks(1)
        for again in (since, None):
            assert ledger.create_stream("stays", "month", since=again, **terms).rule == made.rule
        for other in ({"every": "day"}, {"since": date(2026, 2, 1)}, {"epsilon": 2.0}):
            asked = {"every": "month", "since": since, **terms, **other}
            with pytest.raises(BudgetExists):
                ledger.create_stream("stays", **asked)
        with pytest.raises(
            BudgetExists, match=r"ledger.stream\(name\) is the stream that is there"
        ):
            ledger.create_stream("stays", "month", epsilon=1.0, delta=1e-6)
        ledger.create_blocks("rooms", ["a"], epsilon=1.0, delta=1e-6)
        with pytest.raises(BudgetExists):
            ledger.create_stream("rooms", "month", **terms)  # blocks, and no rule
