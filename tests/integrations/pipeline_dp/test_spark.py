"""A group-by on Spark is paid from a budget of a ledger before Spark reads a row."""

import operator
import os
import sys

import pipeline_dp as pdp
import pytest
from pyspark import SparkConf, SparkContext

import dosimeter as dm
from dosimeter.integrations.pipeline_dp import Accountant
from dosimeter.ledger import Ledger

USER = dm.Neighbours.ADD_REMOVE_USER
pytestmark = pytest.mark.filterwarnings("ignore")
EXTRACT = pdp.DataExtractors(
    privacy_id_extractor=operator.itemgetter(0),
    partition_extractor=operator.itemgetter(1),
    value_extractor=operator.itemgetter(2),
)
PARAMS = pdp.AggregateParams(
    metrics=[pdp.Metrics.COUNT, pdp.Metrics.SUM],
    noise_kind=pdp.NoiseKind.GAUSSIAN,
    max_partitions_contributed=1,
    max_contributions_per_partition=1,
    min_value=0,
    max_value=1,
)


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false")
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    yield context
    context.stop()


def grouped(spark, accountant, read):
    """Counts and sums of three towns, none of which is read before somebody collects them."""

    def row(user):
        read.add(1)
        return user, user % 3, 1

    rows = spark.parallelize(range(3000), 2).map(row)
    engine = pdp.DPEngine(accountant, pdp.SparkRDDBackend(spark))
    return engine.aggregate(rows, PARAMS, EXTRACT)


def test_a_group_by_under_a_budget_of_a_ledger(spark, tmp_path):
    read = spark.accumulator(0)
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("visits", 4.0, 1e-6, approx_delta=1e-5, neighbours=USER)
        accountant = Accountant(budget, total_epsilon=3, total_delta=1e-6)
        towns = grouped(spark, accountant, read)
        accountant.compute_budgets()
        assert (read.value, budget.epsilon) == (0, 3.0)
        found = dict(towns.collect())
        assert read.value >= 3000
        assert set(found) == {0, 1, 2}
        assert all(abs(metrics.count - 1000) < 100 for metrics in found.values())
        assert all(abs(metrics.sum - 1000) < 100 for metrics in found.values())

        before = read.value
        second = Accountant(budget, total_epsilon=3, total_delta=1e-6)
        towns = grouped(spark, second, read)
        with pytest.raises(dm.BudgetExceeded, match="visits"):
            second.compute_budgets()
        assert read.value == before
        # Whoever collects it all the same gets no noise, and so no answer.
        with pytest.raises(Exception, match="not calculated yet"):
            towns.collect()
        assert [entry.kind for entry in budget.history()].count("spend") == 1
