"""A query of SmartNoise is paid for, whole, before the data are read, by the code of the page."""

import copy
import sqlite3

import pandas as pd
import pytest
import snsql
from snsql.sql.private_reader import PrivateReader
from snsql.sql.reader.pandas import PandasReader

import dosimeter as dm
from dosimeter.ledger import Ledger
from integrations.pages import run_page

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


@pytest.fixture(scope="module")
def ask():
    """The function of the page, which runs as it stands."""
    return run_page("smartnoise")["ask"]


@pytest.fixture
def reads(monkeypatch):
    """The queries that read the data, in which nothing is noisy yet."""
    found, execute = [], PandasReader.execute
    monkeypatch.setattr(
        PandasReader, "execute", lambda *a, **o: found.append(a[1]) or execute(*a, **o)
    )
    return found


def reader(table=TABLE, epsilon=0.1, delta=1e-6):
    privacy = snsql.Privacy(epsilon=epsilon, delta=delta)
    metadata = {"": {"db": {"visits": copy.deepcopy(table)}}}
    return snsql.from_df(DATA, privacy=privacy, metadata=metadata)


def gate(epsilon=1.0, relation=dm.Neighbours.ADD_REMOVE_RECORD):
    return dm.Filter(epsilon, 1e-6, approx_delta=1e-5, neighbours=relation)


def test_a_query_is_paid_whole_under_a_budget_of_a_ledger(ask, tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("visits", 0.55, 1e-6, approx_delta=1e-5)
        asking = reader()
        found = {row[0]: row[1] for row in ask(asking, budget, TOWNS)[1:]}
        assert all(abs(found[town] - 500) < 200 for town in "ab")
        assert budget.epsilon == pytest.approx(0.2)
        ask(asking, budget, TOWNS)
        before = budget.epsilon
        with pytest.raises(dm.BudgetExceeded, match="visits"):
            ask(asking, budget, TOWNS)
        assert budget.epsilon == before
        ask(asking, budget, COUNT)  # it lives on
        assert [entry.kind for entry in budget.history()].count("spend") == 3


def test_it_is_paid_before_the_data_are_read_and_a_refusal_reads_nothing(ask, reads, monkeypatch):
    budget, log = gate(), []
    execute = PrivateReader.execute
    monkeypatch.setattr(
        PrivateReader, "execute", lambda *a: log.append(budget.epsilon) or execute(*a)
    )
    ask(reader(), budget, COUNT)
    assert log == [pytest.approx(0.1)]
    assert len(reads) == 1
    with pytest.raises(dm.BudgetExceeded):
        ask(reader(epsilon=5.0), budget, COUNT)
    assert len(log) == len(reads) == 1
    assert budget.epsilon == pytest.approx(0.1)


@pytest.mark.parametrize("delta", [1e-6, 1e-12])
@pytest.mark.parametrize("more", [{}, {"censor_dims": False}, {"clamp_counts": True}])
@pytest.mark.parametrize(
    ("query", "mechanisms"),
    [
        (COUNT, 1),
        (TOWNS, 2),
        ("SELECT AVG(age) AS a FROM db.visits", 2),
        ("SELECT VAR(age) AS v, STDDEV(age) AS s FROM db.visits", 3),
        ("SELECT SUM(age) + COUNT(*) AS s FROM db.visits", 2),
    ],
)
def test_what_is_paid_is_what_the_mechanisms_of_the_query_use(ask, query, mechanisms, more, delta):
    """SmartNoise's own odometer notes each mechanism that ran."""
    budget, asking = gate(3.0), reader({**TABLE, **more}, delta=delta)
    paid = Spy(budget)
    for _ in range(2):  # its options are those of the last query
        asking.odometer.reset()
        ask(asking, paid, query)
        ran = asking.odometer.steps
        assert len(ran) >= mechanisms
        assert paid.last.epsilon >= sum(epsilon for epsilon, _ in ran)
        assert paid.last.epsilon == pytest.approx(0.1 * len(ran))
        assert paid.last.delta >= sum(delta for _, delta in ran)


class Spy:
    """A gate that keeps its last cost."""

    def __init__(self, gate):
        self.gate, self.last = gate, None

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.last = cost


def test_a_cost_among_several_tables_is_too_small_and_refused(ask):
    database = sqlite3.connect(":memory:")
    for name in ("visits", "other"):
        database.execute(f"CREATE TABLE {name} (age INTEGER, town TEXT)")
    rows = [(20 + user % 60, "ns"[user % 2]) for user in range(2000)]
    database.executemany("INSERT INTO visits VALUES (?, ?)", rows)
    table = {name: said for name, said in TABLE.items() if name != "height"}
    asking = snsql.from_connection(
        database, engine="sqlite", privacy=snsql.Privacy(epsilon=0.1, delta=1e-6),
        metadata={"": {"main": {"visits": table, "other": {**table, "censor_dims": False}}}},
    )  # fmt: skip
    query, budget = "SELECT town, SUM(age) AS n FROM main.visits GROUP BY town", gate()
    with pytest.raises(ValueError, match="reader must have one table"):
        ask(asking, budget, query)
    assert (budget.epsilon, asking.odometer.steps) == (0, [])
    said = asking.get_privacy_cost(query)[0]
    asking.execute(query)
    assert asking.odometer.spent[0] > said


def test_what_is_not_charged_or_not_bounded_is_not_answered(ask, reads, monkeypatch):
    budget = gate(3.0)
    with pytest.raises(ValueError, match="without use_dpsu"):
        ask(reader({**TABLE, "use_dpsu": True}), budget, TOWNS)
    asking = reader()
    for wrong in ("SELECT age FROM db.visits", "SELECT COUNT(*) FROM db.nowhere", "nonsense",
                  f"{COUNT}; {COUNT}", "SELECT SUM(age * 2) AS s FROM db.visits"):  # fmt: skip
        with pytest.raises(Exception):  # noqa: B017, PT011  SmartNoise's own
            ask(asking, budget, wrong)
    for epsilon in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(Exception):  # noqa: B017, PT011
            ask(reader(epsilon=epsilon), budget, COUNT)
    with pytest.raises(ValueError, match="epsilon must be finite and > 0"):
        ask(reader({**TABLE, "censor_dims": False}), budget,
            "SELECT town FROM db.visits GROUP BY town")  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(PrivateReader, "engine", "spark")
        with pytest.raises(ValueError, match="must not be on Spark"):
            ask(reader(), budget, COUNT)
    assert (budget.epsilon, reads) == (0, [])
    with pytest.raises(ValueError, match="unbounded"):
        ask(asking, budget, "SELECT SUM(height) AS h FROM db.visits")
    assert budget.epsilon > 0


@pytest.mark.parametrize("relation", list(dm.Neighbours))
@pytest.mark.parametrize("rows", [True, False])
def test_a_relation_that_does_not_fit_is_refused(ask, reads, relation, rows):
    table = {**TABLE, "row_privacy": rows, "max_ids": 3}
    if not rows:
        table["user"] = {"type": "int", "private_id": True}
    budget = gate(3.0, relation)
    if relation is (dm.Neighbours.ADD_REMOVE_RECORD if rows else USER):
        ask(reader(table), budget, COUNT)
        assert budget.epsilon > 0
    else:
        with pytest.raises(ValueError, match="cost must be for neighbours that"):
            ask(reader(table), budget, COUNT)
        assert (budget.epsilon, reads) == (0, [])
