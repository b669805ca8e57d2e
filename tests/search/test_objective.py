"""Whatever Optuna's samplers and pruners choose, the gate holds every step and score of it."""

import dp_accounting
import numpy as np
import optuna
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.ledger import Kind, Ledger
from dosimeter.search import PrivateObjective
from dosimeter.training import PrivateEngine

optuna.logging.set_verbosity(optuna.logging.WARNING)
STEP, SCORE = dm.SampledGaussian(0.02, 2.0), dm.Gaussian(60.0)


@pytest.fixture
def budget(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        yield ledger.create("search", epsilon=2.0, delta=1e-6)


def spends(budget):
    """What the journal says was spent, replayed without the budget's own sums."""
    return [(e.priced(), e.count) for e in budget.history(10_000) if e.kind is Kind.SPEND]


def replayed(spent):
    gate = dm.Filter(epsilon=2.0, delta=1e-6)
    for cost, count in spent:
        gate.spend(cost, count)
    return gate.epsilon


def objective(trial, gate):
    """Three rungs of a training with a best rate at 0.3, scored privately after each."""
    rate = trial.suggest_float("rate", 1e-3, 1, log=True)
    score = 0.0
    for rung in range(3):
        gate.spend(STEP, 4)
        gate.spend(SCORE)
        score = -abs(np.log(rate / 0.3)) + 0.1 * rung + np.random.default_rng().normal(0, 0.1)
        trial.report(score, rung)
        if trial.should_prune():
            raise optuna.TrialPruned
    return score


@pytest.mark.parametrize("sampler", [optuna.samplers.TPESampler, optuna.samplers.RandomSampler])
def test_costs_of_all_trials_add_up_to_what_the_gate_holds(budget, sampler):
    study = optuna.create_study(
        direction="maximize", sampler=sampler(), pruner=optuna.pruners.SuccessiveHalvingPruner(1, 3)
    )
    study.optimize(PrivateObjective(objective, budget, trials=16), n_trials=16)
    states = [trial.state.name for trial in study.trials]
    assert "PRUNED" in states
    charged = [trial.user_attrs["charged"] for trial in study.trials]
    assert all(paid for paid in charged)  # pruned ones as well
    spent = spends(budget)
    for cost in (STEP, SCORE):
        total = sum(paid.get(str(cost), 0) for paid in charged)
        assert total == sum(count for one, count in spent if one == cost) > 0
    assert replayed(spent) == budget.epsilon <= 2.0


class Greedy(optuna.samplers.BaseSampler):
    """Proposes next to the best score so far: everything that it does hangs on the scores."""

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, name, distribution):
        done = [t for t in study.get_trials(deepcopy=False) if t.value is not None]
        if not done:
            return distribution.high
        best = max(done, key=lambda t: t.value).params[name]
        return min(max(best * np.random.default_rng().choice([0.5, 0.9, 2.0]), 1e-3), 1.0)


def test_a_search_that_chooses_costs_by_scores_stays_within_the_filter():
    """Noise, rate and length follow the scores; the realised path is bounded by an exact road."""
    budget = dm.Filter(epsilon=2.0, delta=1e-6)
    spent = []

    def greedy(trial, gate):
        best = max((t.value for t in trial.study.trials if t.value is not None), default=0.0)
        rate = trial.suggest_float("rate", 1e-3, 1.0)
        noise = 1.0 + abs(best) * rate
        step = dm.SampledGaussian(min(0.3, 0.01 + rate / 10), noise)
        while gate.admits(step):
            gate.spend(step)
            spent.append(step)
        gate.spend(SCORE)
        spent.append(SCORE)
        return -rate + np.random.default_rng().normal()

    study = optuna.create_study(direction="maximize", sampler=Greedy())
    study.optimize(PrivateObjective(greedy, budget, trials=10), n_trials=40)
    assert {trial.state.name for trial in study.trials} <= {"COMPLETE", "PRUNED"}
    exact = PLDAccountant(value_discretization_interval=1e-3)
    for cost in set(spent):
        exact.compose(cost.dp_event(), spent.count(cost))
    assert isinstance(cost.dp_event(), dp_accounting.DpEvent)
    assert exact.get_epsilon(1e-6) <= budget.epsilon <= 2.0


def test_a_trial_that_asks_for_all_is_pruned_and_leaves_the_others_theirs():
    def greedy(trial, gate):
        while trial.number == 0 or gate.admits(STEP):
            gate.spend(STEP)
        return float(trial.number)

    study = optuna.create_study(direction="maximize")
    study.optimize(PrivateObjective(greedy, dm.Filter(2.0, 1e-6), trials=4), n_trials=4)
    assert [t.state.name for t in study.trials] == ["PRUNED", *["COMPLETE"] * 3]
    counts = [t.user_attrs["charged"][str(STEP)] for t in study.trials]
    assert len(set(counts)) == 1


def test_a_trial_that_fails_stays_paid_for(budget):
    def failing(trial, gate):
        gate.spend(STEP)
        raise RuntimeError("no more memory")

    study = optuna.create_study()
    study.optimize(PrivateObjective(failing, budget, trials=2), 1, catch=RuntimeError)
    assert spends(budget) == [(STEP, 1)]
    assert study.trials[0].user_attrs["charged"] == {str(STEP): 1}


def impossible(trial, gate):
    """A real engine refuses a batch that is larger than the data, before anything is charged."""
    batch = 64 if trial.number % 2 else 8
    model, data = torch.nn.Linear(2, 2), TensorDataset(torch.zeros(16, 2), torch.arange(16) % 2)
    engine = PrivateEngine(gate)
    engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        data,
        noise_multiplier=4.0,
        max_grad_norm=1.0,
        batch_size=batch,
    )
    gate.spend(STEP)
    return float(batch)


def test_an_impossible_setting_ends_a_study_unless_it_is_named_and_costs_nothing(budget):
    study = optuna.create_study()
    objective = PrivateObjective(impossible, budget, trials=4)
    with pytest.raises(ValueError, match="batch_size"):
        study.optimize(objective, 4)
    study.optimize(objective, 2, catch=ValueError)
    assert [t.state.name for t in study.trials] == ["COMPLETE", "FAIL", "COMPLETE", "FAIL"]
    assert [t.user_attrs["charged"] for t in study.trials] == [{str(STEP): 1}, {}] * 2
    assert spends(budget) == [(STEP, 1)] * 2


def test_a_study_goes_on_after_its_process_ended(budget, tmp_path):
    """Optuna's journal keeps the scores and the ledger the spends: nothing is paid again."""
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    named = {"storage": optuna.storages.JournalStorage(backend), "study_name": "search"}
    for trials in (3, 5):
        study = optuna.create_study(direction="maximize", load_if_exists=True, **named)
        study.optimize(PrivateObjective(objective, budget, trials=16), n_trials=trials)
    assert len(study.trials) == 8
    total = sum(t.user_attrs["charged"][str(STEP)] for t in study.trials)
    assert total == sum(count for cost, count in spends(budget) if cost == STEP)
