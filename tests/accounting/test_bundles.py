"""Bundles: all or nothing, at the price of their parts, in every account and journal."""

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dosimeter as dm
from dosimeter.accounting.account import Account
from dosimeter.accounting.terms import Terms
from dosimeter.ledger import Ledger
from strategies import costs

COARSE, FINE, STRANGER = dm.Gaussian(40.0), dm.Laplace(60.0), dm.Zcdp(5e-5)
BOTH = dm.Together([COARSE, FINE])


@cache
def terms(*menu):
    return Terms.of_filter(1.0, 1e-6, menu=menu or None, approx_delta=1e-7)


def opened(*menu):
    return Account.open(terms(*menu))


SOME = {"parts": st.lists(costs, min_size=1, max_size=4), "count": st.integers(1, 5)}
WHOLE = Account.open(Terms.of_filter(1.0, 1e-6, approx_delta=1e-7, cut=0.0))


@given(**SOME)
def test_it_costs_what_its_parts_cost(parts, count):
    """Where nothing is left out of them."""
    bundle, apart = dm.Together(parts), WHOLE
    for part in parts:
        if not apart.admits(part, count):
            assert not WHOLE.admits(bundle, count)
            return
        apart = apart.after(part, count)
    whole = WHOLE.after(bundle, count)
    assert whole.epsilon == pytest.approx(apart.epsilon, rel=1e-9)
    assert whole.sums.tally.delta == pytest.approx(apart.sums.tally.delta, rel=1e-12)


@given(**SOME)
def test_and_never_less_than_parts_that_leave_something_out(parts, count):
    if not opened().admits(dm.Together(parts), count):
        return
    whole, apart = opened().after(dm.Together(parts), count), opened()
    for part in parts:
        apart = apart.after(part, count)
    assert apart.epsilon <= whole.epsilon * (1 + 1e-9)


def test_pure_parts_add_up_without_a_rounding_too_many():
    for parts in ([0.5, 0.25, 0.25], [0.1] * 10, [1 / 3] * 3):
        bundle = dm.Together(map(dm.PureDp, parts))
        exact = sum(map(Fraction, parts))
        assert Fraction(bundle.pure_epsilon) >= exact
    assert dm.Filter(1.0, 1e-6).admits(dm.Together([dm.PureDp(0.5), dm.PureDp(0.5)]))


def test_a_menu_sells_each_part():
    whole = opened(COARSE, FINE).after(BOTH, 3)
    apart = opened(COARSE, FINE).after(COARSE, 3).after(FINE, 3)
    assert whole.plain() == apart.plain()
    assert whole.standing.menu
    # Prepaid runs of a part are used first, whoever asks for it.
    one = opened(COARSE, FINE).after(FINE)
    assert one.after(dm.Together([FINE])).plain() == opened(COARSE, FINE).after(FINE, 2).plain()
    with_stranger = opened(COARSE, FINE).after(dm.Together([COARSE, STRANGER]))
    assert not with_stranger.standing.menu


def test_what_is_affordable_is_admitted_and_one_more_is_not():
    for account in (opened(), opened(COARSE, FINE), opened(COARSE, FINE).after(STRANGER)):
        most = account.affordable(BOTH)
        assert most > 0
        account.after(BOTH, most)
        with pytest.raises(dm.BudgetExceeded) as refusal:
            account.after(BOTH, most + 1)
        assert refusal.value.affordable == most


def test_a_refusal_says_at_which_part():
    dear = dm.Together([COARSE, dm.PureDp(5.0)])
    with pytest.raises(dm.BudgetExceeded, match=r"at its PureDp\(epsilon=5.0\) off the menu"):
        opened(COARSE, FINE).after(dear)
    with pytest.raises(dm.BudgetExceeded, match="epsilon would be"):
        opened().after(dear)
    failing = dm.Together([dm.ApproxDp(0.01, 6e-8), dm.ApproxDp(0.01, 6e-8)])
    with pytest.raises(dm.BudgetExceeded, match="approx_delta"):
        opened(COARSE, FINE).after(failing)


def test_what_is_no_bundle_is_refused():
    for wrong in (dm.Gaussian(2.0), "gaussian", b"", 1, None, [1.0], [dm.Gaussian]):
        with pytest.raises(TypeError, match="costs must be"):
            dm.Together(wrong)
    with pytest.raises(ValueError, match="at least one cost"):
        dm.Together([])
    users = dm.Gaussian(2.0, neighbours=dm.Neighbours.ADD_REMOVE_USER)
    assert dm.Together([users, users]).neighbours is dm.Neighbours.ADD_REMOVE_USER
    with pytest.raises(ValueError, match="one neighbouring relation"):
        dm.Together([users, dm.Gaussian(2.0)])
    with pytest.raises(ValueError, match="sum below 1"):
        dm.Together([dm.ApproxDp(0.1, 0.5), dm.ApproxDp(0.1, 0.5)])
    with pytest.raises(ValueError, match="add/remove one user"):
        dm.Filter(1.0, 1e-6).spend(dm.Together([users]))


def test_bundles_in_bundles_are_undone():
    assert dm.Together([BOTH, COARSE]) == dm.Together([COARSE, FINE, COARSE])


@pytest.mark.parametrize("with_menu", [False, True])
def test_a_journal_has_one_entry_for_all_or_none(tmp_path, with_menu):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("b", 1.0, 1e-6, menu=[COARSE, FINE] if with_menu else None)
        budget.spend(BOTH, 2, key="once")
        assert budget.spend(BOTH, 2, key="once").replayed
        before = budget.epsilon, budget.remaining, budget.affordable(BOTH)
        with pytest.raises(dm.BudgetExceeded):
            budget.spend(dm.Together([COARSE, dm.PureDp(5.0)]))
        assert (budget.epsilon, budget.remaining, budget.affordable(BOTH)) == before
        spends = [entry for entry in budget.history() if entry.kind == "spend"]
        assert [entry.priced() for entry in spends] == [BOTH]
        with budget.reserve(BOTH, 5):
            held = budget.remaining
        assert budget.remaining >= held
        budget.spend(BOTH)
        ledger.verify("b")


def test_a_state_holds_what_a_bundle_cost():
    gate = dm.Filter(1.0, 1e-6)
    gate.spend(BOTH, 3)
    assert dm.Filter.from_state(gate.state()).epsilon == gate.epsilon
