# SPDX-License-Identifier: Apache-2.0
"""The account as a value: spends follow one another, nothing changes, nothing is lost."""

from __future__ import annotations

import json
import math

import pytest

import dosimeter as dm
from dosimeter import Neighbours
from dosimeter.accounting import Account, Guarantee, Terms
from dosimeter.accounting.sums import read_all
from dosimeter.accounting.tally import charge_after
from dosimeter.errors import BudgetExceeded, StateError

NOMINAL, OTHER, STRANGER = dm.Gaussian(10.0), dm.Gaussian(20.0), dm.Gaussian(40.0)
UNPRICED = dm.Zcdp(1 / 3200)  # the same curve, of which no loss is known


def opened(kind):
    menu = None if "menu" not in kind else [NOMINAL, OTHER]
    if kind.startswith("filter"):
        return Account.open(Terms.of_filter(1.0, 1e-6, approx_delta=1e-9, menu=menu))
    return Account.open(Terms.of_odometer(1e-6, approx_delta=1e-9, menu=menu))


@pytest.fixture(params=["filter", "odometer", "filter with a menu", "odometer with a menu"])
def account(request):
    return opened(request.param)


def seen(account):
    """Everything that an account says."""
    return account.plain(), account.epsilon, account.remaining, account.affordable(NOMINAL)


@pytest.mark.parametrize("spent", [0, 1, 40])
@pytest.mark.parametrize(
    "cost",
    [NOMINAL, pytest.param(dm.SampledGaussian(0.01, 2.0), marks=pytest.mark.slow), dm.PureDp(0.01)],
)
def test_an_account_found_from_another_one_decides_alike(account, spent, cost):
    """Behind it, ahead of it, and across it: what is known elsewhere changes no decision."""
    places = [account]
    for _ in range(45):
        if places[-1].admits(cost):
            places.append(places[-1].after(cost))
    here = places[min(spent, len(places) - 1)]
    for near in [*places[::9], *places[-2:]]:
        counts = None
        if here.terms.menu is not None:
            plain = here.plain()
            counts = plain["quanta_left"], plain["prepaid"], plain["menu_open"], here.strangers
        found = Account.at(here.terms, here.sums.tally, counts, near=near)
        fresh = Account.at(here.terms, here.sums.tally, counts)
        assert found.plain() == here.plain()
        assert found.epsilon == pytest.approx(fresh.epsilon, abs=2e-7)
        assert found.epsilon >= fresh.epsilon - 2e-7
        for other in (cost, OTHER):
            assert found.affordable(other) == fresh.affordable(other)


def test_many_readings_at_once_are_those_of_each():
    account = opened("filter")
    accounts = [account := account.after(STRANGER) for _ in range(20)]
    ones = [Account.at(one.terms, one.sums.tally).epsilon for one in accounts]
    read_all([one.sums for one in accounts])
    assert [one.epsilon for one in accounts] == pytest.approx(ones, abs=2e-7)
    assert sorted(ones) == ones


def test_a_spend_gives_another_account_and_leaves_this_one(account):
    before = json.dumps(seen(account))
    after = account.after(NOMINAL, 3)
    assert after is not account
    assert json.dumps(seen(account)) == before
    assert after.epsilon > account.epsilon
    # The same question has the same answer, in any order of asking.
    assert seen(account.after(NOMINAL, 3)) == seen(after)


def test_two_futures_of_one_account_know_nothing_of_each_other(account):
    one, two = account.after(NOMINAL, 2), account.after(STRANGER, 5)
    assert one.plain() == account.after(NOMINAL, 2).plain()
    assert two.plain() == account.after(STRANGER, 5).plain()


def test_a_refusal_is_what_admits_foretold(account):
    failing = dm.ApproxDp(0.01, 1e-3)
    assert not account.admits(failing)
    with pytest.raises(BudgetExceeded, match="approx_delta"):
        account.after(failing)


def test_the_affordable_count_is_admitted_and_one_more_is_not(account):
    now = account.after(OTHER, 3)
    most = now.affordable(NOMINAL)
    assert now.admits(NOMINAL, most)
    if most < 2**53:
        assert not now.admits(NOMINAL, most + 1)


def test_only_an_odometer_has_no_end(account):
    odometer = account.terms.kind == "odometer"
    assert (account.limit == math.inf) == odometer
    assert (account.remaining == math.inf) == odometer


def test_the_plain_form_leads_back_to_the_same_account(account):
    for cost, count in [(NOMINAL, 1), (OTHER, 1), (STRANGER, 2), (OTHER, 2)]:
        account = account.after(cost, count)
        again = Account.from_plain(json.loads(json.dumps(account.plain())))
        assert again.plain() == account.plain()
        assert again.epsilon == pytest.approx(account.epsilon, rel=1e-12)
        assert again.affordable(NOMINAL) == pytest.approx(account.affordable(NOMINAL), abs=1)


@pytest.mark.parametrize(
    "edit",
    [{"kind": "meter"}, {"rdp": [0.0]}, {"delta": 2.0}, {"spent_delta": 1.0}, {"weights": None}],
)
def test_an_edited_plain_form_is_refused(account, edit):
    with pytest.raises(StateError):
        Account.from_plain({**account.plain(), **edit})


@pytest.mark.parametrize("name", ["kind", "delta", "rdp", "spent_delta"])
def test_an_incomplete_plain_form_is_refused(account, name):
    plain = account.plain()
    del plain[name]
    with pytest.raises(StateError):
        Account.from_plain(plain)


def test_sums_cannot_be_written_to(account):
    with pytest.raises(ValueError, match="read-only"):
        account.after(NOMINAL).sums.tally.rdp[:] = 0.0


RARE = dm.SampledGaussian(0.05, 4.0)
FINE, FINER = dm.Gaussian(200.0), dm.Gaussian(300.0)


@pytest.mark.parametrize(
    ("kind", "menu", "spends"),
    [
        ("filter", [NOMINAL], [NOMINAL] * 30),
        ("filter", [RARE], [RARE] * 85),
        ("filter", [NOMINAL, OTHER], [NOMINAL, NOMINAL, OTHER] * 6),
        ("filter", [FINE, FINER], [(FINE, 30), (FINE, 71), (FINER, 7), (FINE, 83)] * 5),
        ("filter", [NOMINAL], [NOMINAL, (NOMINAL, 2), (NOMINAL, 2), NOMINAL]),
        ("filter", [NOMINAL], [NOMINAL, dm.Gaussian(10.0), NOMINAL, STRANGER, NOMINAL]),
        ("odometer", [NOMINAL], [NOMINAL] * 20),
    ],
    ids=[
        "one cost",
        "past the cut",
        "two costs",
        "bundles",
        "counts",
        "equal costs and a stranger",
        "odometer",
    ],
)
def test_what_a_menu_sold_sums_alike_whenever_one_looks(kind, menu, spends):
    """To the last bit: added up at every spend, at the end, and by hand."""
    if kind == "filter":
        looked = Account.open(Terms.of_filter(0.5 if RARE in menu else 3.0, 1e-6, menu=menu))
    else:
        looked = Account.open(Terms.of_odometer(1e-6, menu=menu))
    left_alone, terms = looked, looked.terms
    by_hand = looked.sums.tally
    for spend in spends:
        cost, count = spend if isinstance(spend, tuple) else (spend, 1)
        before = looked
        looked, left_alone = looked.after(cost, count), left_alone.after(cost, count)
        item = looked.price(cost)
        runs = (before.quanta.left - looked.quanta.left) // item.price * item.steps
        assert sum(looked.prepaid) == sum(before.prepaid) + runs - count
        assert min(looked.prepaid) >= 0
        if runs:
            asked = charge_after(by_hand, cost, runs, terms.mixture.orders, terms.cutting)
            by_hand = by_hand.plus(asked)
        assert looked.sums.tally.rdp.tolist() == by_hand.rdp.tolist()
        assert looked.sums.tally[1:] == by_hand[1:]
    assert left_alone.plain() == looked.plain()
    assert left_alone.sums.reading == looked.sums.reading
    assert (looked.sums.tally.cut == math.inf) == (RARE in menu)


def test_a_cost_that_cannot_be_summed_is_refused_when_it_is_bought():
    class Moody(dm.Gaussian):
        asked = 0

        def _curve(self, orders):
            if len(orders) > 1 and Moody.asked:
                raise ValueError("no curve today")
            return super()._curve(orders)

    gate = dm.Filter(1.0, 1e-6, menu=[Moody(10.0)])
    Moody.asked = 1
    with pytest.raises(ValueError, match="no curve today"):
        gate.spend(Moody(10.0))
    assert gate.quanta_left == gate.menu.quanta


def test_a_stranger_to_the_menu_was_not_spent_and_is_not_given_back():
    with pytest.raises(ValueError, match="must be one that was spent"):
        opened("filter with a menu").released(STRANGER, 1)


class TestRelations:
    """Figures of different neighbouring relations are never added up."""

    @pytest.mark.parametrize("relation", Neighbours)
    @pytest.mark.parametrize("menu", [False, True], ids=["sums", "menu"])
    @pytest.mark.parametrize("kind", [dm.Filter, dm.Odometer])
    def test_a_gate_takes_costs_of_its_own_relation_only(self, kind, menu, relation):
        cost = dm.Gaussian(20.0, neighbours=relation)
        given = (1.0, 1e-6) if kind is dm.Filter else (1e-6,)
        gate = kind(*given, neighbours=relation, menu=[cost] if menu else None)
        gate.spend(cost)
        before = gate.state()
        for other in set(Neighbours) - {relation}:
            stranger = dm.Gaussian(20.0, neighbours=other)
            for ask in (gate.admits, gate.spend, gate.affordable):
                with pytest.raises(ValueError, match=f"must be for neighbours that {relation}"):
                    ask(stranger)
            with pytest.raises(ValueError, match="must be for neighbours"):
                kind(*given, neighbours=other, menu=[cost])
        assert gate.state() == before
        assert gate.guarantee().neighbours is relation
        assert str(relation) in str(gate.guarantee())
        again = kind.from_state(json.loads(json.dumps(before)))
        assert again.neighbours is relation
        again.spend(cost)

    def test_the_usual_relation_is_not_written_down(self):
        assert "neighbours" not in dm.Filter(1.0, 1e-6).state()

    @pytest.mark.parametrize("relation", ["replace one record", None, 1])
    def test_what_is_no_relation_is_refused(self, relation):
        with pytest.raises(TypeError, match="neighbours must be"):
            dm.Filter(1.0, 1e-6, neighbours=relation)

    def test_an_edited_relation_is_refused(self):
        plain = Account.open(
            Terms.of_filter(1.0, 1e-6, neighbours=Neighbours.REPLACE_ONE_RECORD)
        ).plain()
        for edit in ("replace two records", None, "add/remove one record"):
            with pytest.raises(StateError):
                Account.from_plain({**plain, "neighbours": edit})

    @pytest.mark.parametrize("relation", Neighbours)
    @pytest.mark.parametrize("menu", [False, True])
    def test_a_guarantee_is_data(self, relation, menu):
        for epsilon in (0.5, math.inf):
            said = Guarantee(
                kind="odometer",
                epsilon=epsilon,
                delta=1e-6,
                neighbours=relation,
                menu=menu,
                seeded=True,
            )
            assert Guarantee.from_plain(json.loads(json.dumps(said.plain()))) == said
        sides = "the same side" in " ".join(said.conditions)
        assert sides == (menu and relation is not Neighbours.REPLACE_ONE_RECORD)


class TestReleases:
    def test_sums_fall_again_but_never_below_the_rest(self):
        account = opened("filter").after(OTHER, 2)
        back = account.after(NOMINAL, 3).released(NOMINAL, 3)
        assert back.epsilon == pytest.approx(account.epsilon, rel=1e-9)
        assert (back.sums.tally.rdp >= account.sums.tally.rdp).all()

    def test_a_menu_takes_nothing_back_but_gives_the_runs_again(self):
        account = opened("filter with a menu").after(NOMINAL, 3)
        back = account.released(NOMINAL, 3)
        assert back.quanta == account.quanta
        assert back.sums.tally is account.sums.tally
        again = back.after(NOMINAL, 3)
        assert again.plain() == account.plain()

    def test_released_runs_pay_for_no_other_cost(self):
        account = opened("filter with a menu").after(NOMINAL, 3)
        back = account.released(NOMINAL, 3)
        assert back.affordable(OTHER) == account.affordable(OTHER)

    def test_once_the_menu_has_ended_the_sums_take_back(self):
        account = opened("filter with a menu").after(NOMINAL, 2).after(UNPRICED)
        assert account.quanta is None
        back = account.released(UNPRICED, 1)
        assert back.epsilon < account.epsilon


def test_runs_that_were_paid_for_outlive_the_menu_and_every_spend_after_it():
    bought = Account.open(Terms.of_filter(3.0, 1e-6, menu=[dm.Gaussian(50.0), OTHER]))
    bought = bought.after(dm.Gaussian(50.0)).after(STRANGER)
    assert max(bought.prepaid) > 0
    ended = bought.after(UNPRICED)
    assert ended.quanta is None
    later = ended.after(UNPRICED).after(UNPRICED, 3)
    assert (later.prepaid, later.strangers) == (bought.prepaid, bought.strangers)
    assert Account.from_plain(later.plain()).plain() == later.plain()
