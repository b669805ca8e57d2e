"""A pipeline of PipelineDP is paid for whole before any of it can run."""

import pipeline_dp as pdp
import pytest

import dosimeter as dm
from dosimeter.integrations.pipeline_dp import Accountant
from dosimeter.ledger import Ledger
from integrations.pages import run_example, run_page

USER = dm.Neighbours.ADD_REMOVE_USER
COUNT = pdp.AggregateParams(
    metrics=[pdp.Metrics.COUNT],
    noise_kind=pdp.NoiseKind.GAUSSIAN,
    max_partitions_contributed=1,
    max_contributions_per_partition=1,
)
EXTRACT = pdp.DataExtractors(
    privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1],
    value_extractor=lambda row: 1,
)


class Rows:
    """Rows that notice when the first of them is read."""

    def __init__(self, log):
        self.log = log

    def __iter__(self):
        self.log.append("read")
        yield from ((user, user % 3) for user in range(3000))


def gate(epsilon=3.0, relation=USER):
    return dm.Filter(epsilon, 1e-6, approx_delta=1e-5, neighbours=relation)


def counted(accountant, log):
    return pdp.DPEngine(accountant, pdp.LocalBackend()).aggregate(Rows(log), COUNT, EXTRACT)


def test_it_is_paid_before_the_rows_are_read():
    log, budget = [], gate()
    accountant = Accountant(budget, total_epsilon=1, total_delta=1e-6)
    result = counted(accountant, log)
    assert log == []
    accountant.compute_budgets()
    assert (log, budget.tally.pure_epsilon, budget.tally.delta) == ([], 1.0, 1e-6)
    assert len(list(result)) == 3
    assert log == ["read"]


def test_a_refused_pipeline_never_runs_and_costs_nothing():
    log, budget = [], gate(0.5)
    accountant = Accountant(budget, total_epsilon=2, total_delta=1e-6)
    result = counted(accountant, log)
    with pytest.raises(dm.BudgetExceeded):
        accountant.compute_budgets()
    with pytest.raises(AssertionError, match="not calculated yet"):
        list(result)
    assert budget.epsilon == 0
    smaller = Accountant(budget, total_epsilon=0.4, total_delta=1e-6)
    result = counted(smaller, log)
    smaller.compute_budgets()
    assert len(list(result)) == 3


def test_what_pipeline_dp_refuses_is_not_paid():
    budget = gate()
    accountant = Accountant(budget, 1, 1e-6, num_aggregations=2)
    counted(accountant, [])
    with pytest.raises(ValueError, match="num_aggregations"):
        accountant.compute_budgets()
    Accountant(budget, 1, 1e-6).compute_budgets()  # nothing was asked for
    assert budget.epsilon == 0
    twice = Accountant(budget, 1, 1e-6)
    counted(twice, [])
    twice.compute_budgets()
    with pytest.raises(Exception, match="twice"):
        twice.compute_budgets()
    assert budget.tally.pure_epsilon == 1.0


@pytest.mark.parametrize("relation", [each for each in dm.Neighbours if each is not USER])
def test_a_relation_that_does_not_fit_is_refused(relation):
    with pytest.raises(ValueError, match=r"gate must be for.*Neighbours\.ADD_REMOVE_USER"):
        Accountant(gate(relation=relation), 1, 1e-6)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 0.0])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="epsilon"):
        Accountant(gate(), wrong, 1e-6)
    with pytest.raises(TypeError, match="gate must be a Filter"):
        Accountant(None, 1, 1e-6)


def test_pipelines_share_a_budget_of_a_ledger(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("visits", 1.0, 1e-6, approx_delta=1e-5, neighbours=USER)
        for epsilon in (0.4, 0.4):
            accountant = Accountant(budget, epsilon, 1e-6)
            result = counted(accountant, [])
            accountant.compute_budgets()
            assert len(list(result)) == 3
        third = Accountant(budget, 0.4, 1e-6)
        counted(third, [])
        with pytest.raises(dm.BudgetExceeded, match="visits"):
            third.compute_budgets()
        assert [entry.kind for entry in budget.history()].count("spend") == 2


def test_the_page():
    run_page("pipeline_dp")


def test_the_example(tmp_path):
    assert "refused" in run_example("pipeline_dp", tmp_path)
