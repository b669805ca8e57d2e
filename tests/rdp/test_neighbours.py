"""Costs say which neighbours they are for, and none passes for another."""

import math

import dp_accounting as dpa
import pytest

import dosimeter as dm
from dosimeter.accounting.priced import verify
from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.accounting.priced.menu import make_menu
from dosimeter.compare.adversaries import FiniteMechanism
from dosimeter.rdp.plain import from_plain, to_plain

RECORD, SWAP, USER = dm.Neighbours
SAMPLED = dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(2.0))


def test_words_are_the_written_form():
    assert [str(relation) for relation in dm.Neighbours] == [
        "add/remove one record",
        "replace one record",
        "add/remove one user",
    ]
    for relation in dm.Neighbours:
        assert dm.Neighbours.named(str(relation)) is relation
        assert eval(repr(relation), {"Neighbours": dm.Neighbours}) is relation
    for wrong in ("REPLACE_ONE_RECORD", "", None, 1, SWAP):
        with pytest.raises(ValueError, match=r"^neighbours must be one of"):
            dm.Neighbours.named(wrong)


@pytest.mark.parametrize("relation", ["Add/remove one record", "", None, [], 1, "replace"])
def test_a_written_relation_that_is_none_is_refused(relation):
    plain = {"kind": "gaussian", "noise_multiplier": 2.0, "neighbours": relation}
    with pytest.raises(ValueError, match="neighbours must"):
        from_plain(plain)


def test_what_was_written_before_there_were_relations_is_read():
    cost = from_plain({"kind": "zcdp", "rho": 0.1, "xi": 0.0})
    assert cost.neighbours is RECORD
    assert "neighbours" not in to_plain(cost)


def test_a_poisson_sample_has_no_gain_where_a_record_is_replaced():
    with pytest.raises(ValueError, match=r"add/remove for a Poisson sample.*Gaussian.*Curve"):
        dm.SampledGaussian(0.1, 2.0, neighbours=SWAP)
    with pytest.raises(ValueError, match=r"neighbours that replace one record.*Bound it yourself"):
        dm.Event(SAMPLED, neighbours=SWAP)
    inner = dpa.dp_event.RepeatAndSelectDpEvent(dpa.SelfComposedDpEvent(SAMPLED, 3), 2.0, 1.0)
    for event in (inner, dpa.ComposedDpEvent([dpa.NoOpDpEvent(), inner])):
        with pytest.raises(ValueError, match="replace one record"):
            dm.Event(event, neighbours=SWAP)
        dm.Event(event, neighbours=USER)


def test_events_take_the_names_that_dp_accounting_has():
    event, theirs = dpa.GaussianDpEvent(2.0), dpa.NeighboringRelation
    assert dm.Event(event, neighbours=theirs.ADD_OR_REMOVE_ONE) == dm.Event(event)
    assert dm.Event(event, neighbours=theirs.REPLACE_ONE).neighbours is SWAP
    with pytest.raises(ValueError, match=r"neighbours must be one of.*Bound it yourself"):
        dm.Event(event, neighbours=theirs.REPLACE_SPECIAL)
    with pytest.raises(TypeError, match=r"neighbours must be a dosimeter\.Neighbours"):
        dm.Event(event, neighbours="REPLACE_ONE")


def test_menus_take_no_side_where_a_record_is_replaced():
    odd = FiniteMechanism((1.2,), (0.002,), neighbours=SWAP)
    with pytest.raises(ValueError, match="same loss either way"):
        make_menu([odd], 1.0, 1e-2)
    for added in (dm.Gaussian(20.0, neighbours=SWAP), dm.PureDp(0.1, neighbours=SWAP)):
        by_hand = Menu(1.0, 1e-2, 1, (Item(odd, 1, 1), Item(added, 1, 1)))
        with pytest.raises(ValueError, match="no asymmetric cost"):
            verify.require_menu(by_hand)


def test_menus_are_for_one_relation():
    costs = [dm.Gaussian(20.0), dm.Gaussian(30.0, neighbours=USER)]
    with pytest.raises(ValueError, match="one neighbouring relation"):
        make_menu(costs, 1.0, 1e-6)
    by_hand = Menu(1.0, 1e-6, 1, tuple(Item(cost, 1, 1) for cost in costs))
    with pytest.raises(ValueError, match="one neighbouring relation"):
        verify.require_menu(by_hand)


def test_the_last_digits_do_not_hide_another_relation():
    menu = Menu(1.0, 1e-6, 1, (Item(dm.Gaussian(20.0, neighbours=USER), 1, 1),))
    near = math.nextafter(20.0, 21.0)
    assert menu.item(dm.Gaussian(near, neighbours=USER)) is not None
    for cost in (dm.Gaussian(20.0), dm.Gaussian(near), dm.Gaussian(near, neighbours=SWAP)):
        assert menu.item(cost) is None


def test_a_menu_is_worth_the_same_in_every_relation():
    menus = [make_menu([dm.Gaussian(20.0, neighbours=each)], 1.0, 1e-6) for each in dm.Neighbours]
    assert len({(menu.quanta, menu.items[0].steps, menu.items[0].price) for menu in menus}) == 1
    assert len({menu.items[0].cost for menu in menus}) == 3
