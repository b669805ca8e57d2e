"""A query of SmartNoise is paid for, whole, before the data are read."""

import copy

import pandas as pd
import pytest
import snsql
from snsql.sql.reader.pandas import PandasReader

import dosimeter as dm
from dosimeter.integrations.smartnoise import PaidReader
from dosimeter.ledger import Ledger
from integrations.pages import run_example, run_page

pytestmark = pytest.mark.filterwarnings("ignore")
USER = dm.Neighbours.ADD_REMOVE_USER
TABLE = {
    "row_privacy": True,
    "age": {"type": "int", "lower": 0, "upper": 100},
    "height": {"type": "float"},
    "town": {"type": "string"},
}
DATA = pd.DataFrame({
    "age": [20, 40, 60, 80] * 250, "height": [1.7] * 1000, "town": ["a", "b"] * 500,
    "user": range(1000)})  # fmt: skip
COUNT = "SELECT COUNT(*) AS n FROM db.visits"
TOWNS = "SELECT town, COUNT(*) AS n, SUM(age) AS years FROM db.visits GROUP BY town"


def reader(gate, table=TABLE, epsilon=0.1, delta=1e-6):
    privacy = snsql.Privacy(epsilon=epsilon, delta=delta)
    metadata = {"": {"db": {"visits": copy.deepcopy(table)}}}
    return PaidReader(snsql.from_df(DATA, privacy=privacy, metadata=metadata), gate)


def gate(epsilon=1.0, relation=dm.Neighbours.ADD_REMOVE_RECORD):
    return dm.Filter(epsilon, 1e-6, approx_delta=1e-5, neighbours=relation)


def test_a_query_is_paid_whole_under_a_budget_of_a_ledger(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("visits", 0.55, 1e-6, approx_delta=1e-5)
        asking = reader(budget)
        found = {row[0]: row[1] for row in asking.execute(TOWNS)[1:]}
        assert all(abs(found[town] - 500) < 200 for town in "ab")
        assert budget.epsilon == pytest.approx(0.2)
        asking.execute_df(TOWNS)
        before = budget.epsilon
        with pytest.raises(dm.BudgetExceeded, match="visits"):
            asking.execute(TOWNS)
        assert budget.epsilon == before
        asking.execute(COUNT)  # it lives on
        assert [entry.kind for entry in budget.history()].count("spend") == 3


def test_it_is_paid_before_the_data_are_read_and_a_refusal_reads_nothing(monkeypatch):
    budget, log = gate(), []
    asking = reader(budget)
    execute = PandasReader.execute
    monkeypatch.setattr(
        PandasReader, "execute", lambda *a, **o: log.append(budget.epsilon) or execute(*a, **o)
    )
    asking.execute(COUNT)
    assert log == [pytest.approx(0.1)]
    expensive = reader(budget, epsilon=5.0)
    for ask in (expensive.execute, expensive.execute_df):
        with pytest.raises(dm.BudgetExceeded):
            ask(COUNT)
    assert len(log) == 1
    assert budget.epsilon == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("query", "mechanisms"),
    [(COUNT, 1), ("SELECT AVG(age) AS a FROM db.visits", 3), (TOWNS, 2),
     ("SELECT VAR(age) AS v FROM db.visits", 4)],
)  # fmt: skip
def test_a_price_is_what_is_paid_and_what_smartnoise_counts(query, mechanisms):
    budget = gate(3.0)
    asking = reader(budget)
    price = asking.price(query)
    assert len(price.parts) == mechanisms
    assert price.delta == 1e-6
    assert budget.epsilon == 0
    asking.execute(query)
    alone = gate(3.0)
    alone.spend(price)
    assert budget.epsilon == alone.epsilon
    assert asking.odometer.spent[0] == pytest.approx(0.1 * mechanisms)


def test_what_is_not_charged_or_not_bounded_is_refused():
    budget = gate(3.0)
    with pytest.raises(ValueError, match="use_dpsu must be off"):
        reader(budget, {**TABLE, "use_dpsu": True}).execute(TOWNS)
    asking = reader(budget)
    with pytest.raises(ValueError, match="pre_aggregated must be left out"):
        asking.execute(COUNT, pre_aggregated=[("keycount",), (1000,)])
    with pytest.raises(ValueError, match=r"bounds|unbounded"):
        asking.execute("SELECT SUM(height) AS h FROM db.visits")
    for wrong in ("SELECT age FROM db.visits", "SELECT COUNT(*) FROM db.nowhere", "nonsense"):
        with pytest.raises(Exception):  # noqa: B017, PT011  SmartNoise's own
            asking.execute(wrong)
    for epsilon in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(Exception):  # noqa: B017, PT011
            reader(budget, epsilon=epsilon).execute(COUNT)
    assert budget.epsilon == 0


@pytest.mark.parametrize("relation", list(dm.Neighbours))
@pytest.mark.parametrize("rows", [True, False])
def test_a_relation_that_does_not_fit_is_refused(relation, rows):
    table = {**TABLE, "row_privacy": rows, "max_ids": 3}
    if not rows:
        table["user"] = {"type": "int", "private_id": True}
    budget = gate(3.0, relation)
    asking = reader(budget, table)
    if relation is USER or (rows and relation is dm.Neighbours.ADD_REMOVE_RECORD):
        asking.execute(COUNT)
        assert budget.epsilon > 0
    else:
        with pytest.raises(ValueError, match="gate must be for neighbours that"):
            asking.execute(COUNT)
        assert budget.epsilon == 0


def test_bad_arguments_and_spark_are_refused(monkeypatch):
    with pytest.raises(TypeError, match="reader must be a PrivateReader"):
        PaidReader(DATA, gate())
    with pytest.raises(TypeError, match="gate must be a Filter"):
        reader(None)
    monkeypatch.setattr(snsql.sql.PrivateReader, "engine", "spark")
    with pytest.raises(ValueError, match="new noise"):
        reader(gate())


def test_the_page():
    run_page("smartnoise")


def test_the_example(tmp_path):
    out = run_example("smartnoise", tmp_path)
    assert "refused" in out
    assert "-DP, add/remove one record" in out
