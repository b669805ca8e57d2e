"""What a config asks of its budget is known before the data are touched."""

import math

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

import dosimeter as dm
from configs import changed
from dosimeter.errors import StateError
from dosimeter.ledger import Ledger
from dosimeter.runs.budgets import Needs, policies
from dosimeter.runs.purse import opened
from dosimeter.runs.reader import config_from
from dosimeter.training import AdaptBatch, AdaptNoise, LowerNoise, StopEarly


def config(**changes):
    return config_from(changed(**changes))


NO_MENU = {"menu": False}


def test_without_a_menu_noise_that_was_left_out_is_the_least_that_lasts():
    asked = config(budget=NO_MENU, training={"noise_multiplier": None, "epochs": 50})
    needs = Needs(asked, records=120)
    assert needs.steps == 150
    assert dm.Filter(4.0, 1e-5).admits(needs.cost(needs.noise), 150)
    assert not dm.Filter(4.0, 1e-5).admits(needs.cost(needs.noise * 0.99), 150)
    with opened(asked, needs.gate) as purse:
        assert 50 <= needs.lasts(purse) < 52


@pytest.mark.parametrize("menu", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_noise_that_was_left_out_leaves_room_for_the_readings(menu):
    asked = {"budget": {"menu": menu}, "training": {"noise_multiplier": None, "epochs": 50}}
    signal = {"signal": {"noise_multiplier": 20.0}, "stop": {"patience": 9, "every": 5}}
    needs = Needs(config(**asked, **signal), records=120)
    needs.gate.spend(dm.Gaussian(20.0), 10)
    needs.gate.spend(needs.cost(needs.noise), 150)
    assert needs.noise > Needs(config(**asked), records=120).noise
    plain = dm.Filter(4.0, 1e-5)
    plain.spend(dm.Gaussian(20.0), 10)
    assert plain.admits(needs.cost(1.07 * needs.noise), 150) is not menu


def test_a_menu_needs_less_noise_and_lasts_as_long():
    asked = config(training={"noise_multiplier": None, "epochs": 50})
    needs = Needs(asked, records=120)
    assert [item.cost for item in needs.gate.menu.items] == [needs.cost(needs.noise)]
    assert not dm.Filter(4.0, 1e-5).admits(needs.cost(1.08 * needs.noise), 150)
    # By another road: no exact accountant would let the steps pass with 2 % less noise.
    exact = PLDAccountant()
    exact.compose(PoissonSampledDpEvent(40 / 120, GaussianDpEvent(0.98 * needs.noise)), needs.steps)
    assert exact.get_epsilon(1e-5) > 4.0
    with opened(asked, needs.gate) as purse:
        assert 50 <= needs.lasts(purse) < 51.5


def test_a_menu_holds_all_that_the_config_can_ask_for():
    asked = config(
        policy={"kind": "adapt_noise", "step": 0.5, "every": 5, "levels": 2},
        stop={"target": 0.9},
        signal={"noise_multiplier": 30.0},
    )
    needs = Needs(asked, records=120)
    assert needs.costs(2.0) == (
        *(needs.cost(noise) for noise in (2.0, 2.5, 3.0)),
        dm.Gaussian(30.0),
    )
    public = config(data={"public_share": 0.1}, stop={"target": 0.9}, signal={"public": True})
    assert Needs(public, records=120).costs(2.0) == (needs.cost(2.0),)


def test_a_menu_that_cannot_be_made_is_done_without_and_said_so():
    levels = {"kind": "adapt_noise", "step": 0.5, "every": 5, "levels": 50}
    needs = Needs(config(policy=levels), records=120)
    assert needs.gate.menu is None
    (line,) = needs.notes
    assert line.startswith("note: the budget has no menu and so lasts less long: menu must hold")
    left_out = config(training={"noise_multiplier": None}, policy=levels)
    needs = Needs(left_out, records=120)
    assert needs.gate.menu is None
    assert needs.gate.admits(needs.cost(needs.noise), needs.steps)
    assert needs.notes == [line]


def test_an_odometer_has_a_menu_if_the_end_of_the_run_is_known():
    budget = {"kind": "odometer", "epsilon": None}
    needs = Needs(config(budget=budget), records=120)
    plain = dm.Odometer(1e-5)
    for gate in (needs.gate, plain):
        gate.spend(needs.cost(2.0), needs.steps)
    assert needs.gate.epsilon < 0.95 * plain.epsilon
    for changes in ({"stop": {"target": 0.9}}, {"budget": {**budget, "menu": False}}):
        assert Needs(config(**{"budget": budget, **changes}), records=120).gate.menu is None


def test_a_run_that_is_resumed_keeps_its_noise_and_its_menu():
    asked = config(training={"noise_multiplier": None, "epochs": 50})
    fresh = Needs(asked, records=120)
    again = Needs(asked, records=120, begun=fresh.noise)
    assert again.noise == fresh.noise
    assert again.gate.menu == fresh.gate.menu
    before = Needs(asked, records=120, begun=3.7, menu=False)
    assert (before.noise, before.gate.menu) == (3.7, None)


def test_readings_that_do_not_fit_are_refused_with_the_noise_that_does():
    signal = {"signal": {"noise_multiplier": 0.5}, "stop": {"patience": 9, "every": 5}}
    needs = Needs(config(training={"noise_multiplier": None, "epochs": 50}, **signal), records=120)
    with pytest.raises(ValueError, match=r"signal\.noise_multiplier must leave") as caught:
        _ = needs.noise
    least = float(str(caught.value).split("fit from ")[1].split()[0])
    assert dm.Filter(4.0, 1e-5).admits(dm.Gaussian(least), 10)
    assert not dm.Filter(4.0, 1e-5).admits(dm.Gaussian(least * 0.99), 10)


def test_a_budget_that_pays_for_nothing_is_refused_with_the_nearest_that_pays_for_all():
    asked = config(budget={"epsilon": 0.05})
    needs = Needs(asked, records=120)
    gate = needs.gate
    with opened(asked, gate) as purse, pytest.raises(ValueError, match="epsilon must") as caught:
        needs.lasts(purse)
    words = str(caught.value).split("fit from ")[1].split()
    noise, epsilon = float(words[1]), float(words[4])
    cost = needs.cost(2.0)
    assert dm.Filter(epsilon, 1e-5).admits(cost, needs.steps)
    assert not dm.Filter(epsilon * 0.99, 1e-5).admits(cost, needs.steps)
    assert dm.Filter(0.05, 1e-5).admits(needs.cost(noise), needs.steps)
    assert not dm.Filter(0.05, 1e-5).admits(needs.cost(noise * 0.99), needs.steps)


def test_a_refusal_says_the_very_limit_and_no_less_than_was_spent(tmp_path):
    url = f"sqlite:///{tmp_path / 'budgets.db'}"
    with Ledger.open(url) as ledger:
        ledger.create("p", 0.30000049, 1e-6)
        spent = ledger["p"].spend(dm.Gaussian(20)).epsilon
    budget = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "p"}
    asked = config(budget=budget, training={"noise_multiplier": 2.00000049})
    with (
        opened(asked, None) as purse,
        pytest.raises(ValueError, match=r"budget\.name must") as caught,
    ):
        Needs(asked, records=120).lasts(purse)
    said = str(caught.value)
    assert "noise_multiplier 2.00000049" in said
    assert "got epsilon 0.30000049, of which" in said
    assert spent <= float(said.split("of which ")[1].split()[0]) < 1.01 * spent
    with opened(asked, None) as purse, pytest.raises(StateError) as caught:
        purse.require_spent_from(None, spent)
    assert float(str(caught.value).split("epsilon ")[1].split()[0]) >= spent


def test_epochs_that_no_noise_fits_are_said_to():
    asked = config(budget={"epsilon": 0.01}, training={"noise_multiplier": None, "epochs": 10**9})
    with pytest.raises(ValueError, match=r"budget\.epsilon must pay for 3000000000 steps"):
        _ = Needs(asked, records=120).noise


def test_a_budget_too_small_for_any_noise_says_what_it_takes():
    asked = config(budget={"epsilon": 0.001}, training={"noise_multiplier": None})
    with pytest.raises(ValueError, match=r"budget\.epsilon must leave more signal .* It takes eps"):
        _ = Needs(asked, records=120).noise


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match=r"training\.batch_size must be at most the 30 private"):
        Needs(config(), records=30)


def test_an_odometer_lasts_for_ever():
    asked = config(budget={"kind": "odometer", "epsilon": None})
    needs = Needs(asked, records=120)
    with opened(asked, needs.gate) as purse:
        assert (purse.kind, purse.limit, purse.delta) == ("odometer", None, 1e-5)
        assert needs.lasts(purse) == math.inf


@pytest.mark.parametrize("limit", [1.5, None])
def test_a_ledger_gives_its_budget(tmp_path, limit):
    url = f"sqlite:///{tmp_path / 'budgets.db'}"
    with Ledger.open(url) as ledger:
        if limit:
            ledger.create("p", limit, 1e-6)
        else:
            ledger.create_odometer("p", 1e-6)
    budget = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "p"}
    with opened(config(budget=budget), None) as purse:
        assert (purse.kind, purse.limit, purse.delta) == ("ledger", limit, 1e-6)
        purse.gate.spend(dm.Gaussian(20))
    with Ledger.open(url) as ledger:
        assert ledger["p"].epsilon > 0
        assert ledger["p"].history(1)[0].purpose == "dosimeter train: run"


def test_the_ledger_may_be_named_by_the_environment(tmp_path, monkeypatch):
    asked = config(budget={"kind": "ledger", "epsilon": None, "delta": None, "name": "p"})
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    with pytest.raises(ValueError, match=r"budget\.ledger must be given"), opened(asked, None):
        pass
    monkeypatch.setenv("DOSIMETER_DB", f"sqlite:///{tmp_path / 'budgets.db'}")
    with Ledger.open(f"sqlite:///{tmp_path / 'budgets.db'}") as ledger:
        ledger.create("p", 1.0, 1e-6)
    with opened(asked, None) as purse:
        assert purse.limit == 1.0


def test_a_used_up_ledger_is_refused_by_its_name(tmp_path):
    url = f"sqlite:///{tmp_path / 'budgets.db'}"
    with Ledger.open(url) as ledger:
        ledger.create("p", 1.0, 1e-6)
        ledger["p"].close()
    budget = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "p"}
    asked = config(budget=budget)
    with opened(asked, None) as purse, pytest.raises(ValueError, match=r"budget\.name must pay"):
        Needs(asked, records=120).lasts(purse)


def test_policies_get_what_the_config_says():
    noisy, stop = policies(
        config(
            policy={"kind": "adapt_noise", "step": 0.5, "every": 2, "horizon": 3, "levels": 4},
            stop={"target": 0.9, "patience": 2, "every": 5},
        )
    )
    assert isinstance(noisy, AdaptNoise)
    assert (noisy.step, noisy.every, noisy.horizon, noisy.levels) == (0.5, 2, 3, 4)
    assert isinstance(stop, StopEarly)
    assert (stop.target, stop.patience, stop.every) == (0.9, 2, 5)
    (batch,) = policies(config(policy={"kind": "adapt_batch", "step": 8.0, "minimum": 16}))
    assert isinstance(batch, AdaptBatch)
    assert (batch.step, batch.minimum) == (8, 16)
    lower = config(
        policy={"kind": "lower_noise", "start": 3.0}, training={"noise_multiplier": None}
    )
    assert isinstance(policies(lower)[0], LowerNoise)
    assert Needs(lower, records=120).noise == 3.0


def test_a_policy_that_contradicts_itself_is_named():
    lower = {"kind": "lower_noise", "start": 1.0, "minimum": 2.0}
    with pytest.raises(ValueError, match=r"policy\.minimum must be at most"):
        policies(config(policy=lower, training={"noise_multiplier": None}))
