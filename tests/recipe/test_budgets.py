"""What a config asks of its budget is known before the data are touched."""

import math

import pytest

import dosimeter as dm
from configs import changed
from dosimeter.errors import StateError
from dosimeter.ledger import Ledger
from dosimeter.recipe.accounts import opened
from dosimeter.recipe.budgets import Plan, policies
from dosimeter.recipe.reader import config_from
from dosimeter.training import AdaptBatch, AdaptNoise, LowerNoise, StopEarly


def config(**changes):
    return config_from(changed(**changes))


def test_noise_that_was_left_out_is_the_least_that_lasts():
    asked = config(training={"noise_multiplier": None, "epochs": 50})
    plan = Plan(asked, records=120)
    assert plan.steps == 150
    assert dm.Filter(4.0, 1e-5).admits(plan.cost(plan.noise), 150)
    assert not dm.Filter(4.0, 1e-5).admits(plan.cost(plan.noise * 0.99), 150)
    with opened(asked) as account:
        assert 50 <= plan.lasts(account) < 52


def test_noise_that_was_left_out_leaves_room_for_the_readings():
    signal = {"signal": {"noise_multiplier": 20.0}, "stop": {"patience": 9, "every": 5}}
    plan = Plan(config(training={"noise_multiplier": None, "epochs": 50}, **signal), records=120)
    budget = dm.Filter(4.0, 1e-5)
    budget.spend(dm.Gaussian(20.0), 10)
    budget.spend(plan.cost(plan.noise), 150)
    without = Plan(config(training={"noise_multiplier": None, "epochs": 50}), records=120)
    assert plan.noise > without.noise


def test_readings_that_do_not_fit_are_refused_with_the_noise_that_does():
    signal = {"signal": {"noise_multiplier": 0.5}, "stop": {"patience": 9, "every": 5}}
    plan = Plan(config(training={"noise_multiplier": None, "epochs": 50}, **signal), records=120)
    with pytest.raises(ValueError, match=r"signal\.noise_multiplier must leave") as caught:
        _ = plan.noise
    least = float(str(caught.value).split("fit from ")[1].split()[0])
    assert dm.Filter(4.0, 1e-5).admits(dm.Gaussian(least), 10)
    assert not dm.Filter(4.0, 1e-5).admits(dm.Gaussian(least * 0.99), 10)


def test_a_budget_that_pays_for_nothing_is_refused_with_the_nearest_that_pays_for_all():
    asked = config(budget={"epsilon": 0.05})
    plan = Plan(asked, records=120)
    with opened(asked) as account, pytest.raises(ValueError, match="epsilon must") as caught:
        plan.lasts(account)
    words = str(caught.value).split("fit from ")[1].split()
    noise, epsilon = float(words[1]), float(words[4])
    cost = plan.cost(2.0)
    assert dm.Filter(epsilon, 1e-5).admits(cost, plan.steps)
    assert not dm.Filter(epsilon * 0.99, 1e-5).admits(cost, plan.steps)
    assert dm.Filter(0.05, 1e-5).admits(plan.cost(noise), plan.steps)
    assert not dm.Filter(0.05, 1e-5).admits(plan.cost(noise * 0.99), plan.steps)


def test_a_refusal_says_the_very_limit_and_no_less_than_was_spent(tmp_path):
    url = f"sqlite:///{tmp_path / 'budgets.db'}"
    with Ledger.open(url) as ledger:
        ledger.create("p", 0.30000049, 1e-6)
        spent = ledger["p"].spend(dm.Gaussian(20)).epsilon
    budget = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "p"}
    asked = config(budget=budget, training={"noise_multiplier": 2.00000049})
    with opened(asked) as account, pytest.raises(ValueError, match=r"budget\.name must") as caught:
        Plan(asked, records=120).lasts(account)
    said = str(caught.value)
    assert "noise_multiplier 2.00000049" in said
    assert "got epsilon 0.30000049, of which" in said
    assert spent <= float(said.split("of which ")[1].split()[0]) < 1.01 * spent
    with opened(asked) as account, pytest.raises(StateError) as caught:
        account.require_spent_from(None, spent)
    assert float(str(caught.value).split("epsilon ")[1].split()[0]) >= spent


def test_epochs_that_no_noise_fits_are_said_to():
    asked = config(budget={"epsilon": 0.01}, training={"noise_multiplier": None, "epochs": 10**9})
    with pytest.raises(ValueError, match=r"budget\.epsilon must pay for 3000000000 steps"):
        _ = Plan(asked, records=120).noise


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match=r"training\.batch_size must be at most the 30 private"):
        Plan(config(), records=30)


def test_an_odometer_lasts_for_ever():
    asked = config(budget={"kind": "odometer", "epsilon": None})
    with opened(asked) as account:
        assert (account.kind, account.limit, account.delta) == ("odometer", None, 1e-5)
        assert Plan(asked, records=120).lasts(account) == math.inf


@pytest.mark.parametrize("limit", [1.5, None])
def test_a_ledger_gives_its_budget(tmp_path, limit):
    url = f"sqlite:///{tmp_path / 'budgets.db'}"
    with Ledger.open(url) as ledger:
        if limit:
            ledger.create("p", limit, 1e-6)
        else:
            ledger.create_odometer("p", 1e-6)
    budget = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "p"}
    with opened(config(budget=budget)) as account:
        assert (account.kind, account.limit, account.delta) == ("ledger", limit, 1e-6)
        account.gate.spend(dm.Gaussian(20))
    with Ledger.open(url) as ledger:
        assert ledger["p"].epsilon > 0
        assert ledger["p"].history(1)[0].purpose == "dosimeter train: run"


def test_the_ledger_may_be_named_by_the_environment(tmp_path, monkeypatch):
    asked = config(budget={"kind": "ledger", "epsilon": None, "delta": None, "name": "p"})
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    with pytest.raises(ValueError, match=r"budget\.ledger must be given"), opened(asked):
        pass
    monkeypatch.setenv("DOSIMETER_DB", f"sqlite:///{tmp_path / 'budgets.db'}")
    with Ledger.open(f"sqlite:///{tmp_path / 'budgets.db'}") as ledger:
        ledger.create("p", 1.0, 1e-6)
    with opened(asked) as account:
        assert account.limit == 1.0


def test_a_used_up_ledger_is_refused_by_its_name(tmp_path):
    url = f"sqlite:///{tmp_path / 'budgets.db'}"
    with Ledger.open(url) as ledger:
        ledger.create("p", 1.0, 1e-6)
        ledger["p"].close()
    budget = {"kind": "ledger", "epsilon": None, "delta": None, "ledger": url, "name": "p"}
    asked = config(budget=budget)
    with opened(asked) as account, pytest.raises(ValueError, match=r"budget\.name must pay"):
        Plan(asked, records=120).lasts(account)


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
    assert Plan(lower, records=120).noise == 3.0


def test_a_policy_that_contradicts_itself_is_named():
    lower = {"kind": "lower_noise", "start": 1.0, "minimum": 2.0}
    with pytest.raises(ValueError, match=r"policy\.minimum must be at most"):
        policies(config(policy=lower, training={"noise_multiplier": None}))
