"""A query of Tumult is paid for before Spark is asked, by the code of the page."""

import pytest
from tmlt.analytics import (
    AddOneRow,
    KeySet,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)

import dosimeter as dm
from dosimeter.ledger import Ledger
from integrations.pages import run_page

pytestmark = pytest.mark.filterwarnings("ignore")
INFINITE = float("inf")
COUNT = QueryBuilder("visits").count()


@pytest.fixture(scope="module")
def ask(spark):
    """The function of the page, which runs as it stands."""
    return run_page("tmlt")["ask"]


@pytest.fixture(scope="module")
def visits(spark):
    rows = [(town, age) for age in range(300) for town in "ab"]
    return spark.createDataFrame(rows, ["town", "age"])


@pytest.fixture
def session(visits):
    return Session.from_dataframe(RhoZCDPBudget(INFINITE), "visits", visits, AddOneRow())


def test_a_group_by_under_a_budget_of_a_ledger(ask, session, tmp_path):
    towns = QueryBuilder("visits").groupby(KeySet.from_dict({"town": ["a", "b"]})).count()
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("visits", 1.0, 1e-6)
        rows = ask(session, budget, towns, 0.01).collect()
        found = {row["town"]: row["count"] for row in rows}
        assert all(abs(found[town] - 300) < 100 for town in "ab")
        alone = dm.Filter(1.0, 1e-6)
        alone.spend(dm.Zcdp(0.01))
        assert budget.epsilon == alone.epsilon
        with pytest.raises(dm.BudgetExceeded, match="visits"):
            ask(session, budget, towns, 0.5)
        ask(session, budget, towns, 0.001)
        assert [entry.kind for entry in budget.history()].count("spend") == 2


def test_it_is_paid_before_spark_is_asked_and_a_refusal_asks_nothing(ask, session, monkeypatch):
    log, gate = [], dm.Filter(1.0, 1e-6)
    monkeypatch.setattr(
        Session, "evaluate", lambda _, query, budget: log.append((gate.epsilon, budget))
    )
    ask(session, gate, COUNT, 0.01)
    paid = gate.epsilon
    assert log == [(paid, RhoZCDPBudget(0.01))]
    assert paid > 0
    with pytest.raises(dm.BudgetExceeded):
        ask(session, gate, COUNT, 0.5)
    assert len(log) == 1
    assert gate.epsilon == paid


@pytest.mark.parametrize("rho", [0.1, 0.3, 0.7, 1e-9, 1 / 3])
def test_what_is_paid_is_no_less_than_what_tumult_uses(rho):
    assert RhoZCDPBudget(rho).value.to_float(round_up=True) == dm.Zcdp(rho).rho
    assert PureDPBudget(rho).value.to_float(round_up=True) == dm.PureDp(rho).pure_epsilon


@pytest.mark.parametrize("rho", [-1.0, INFINITE, float("nan"), "much"])
def test_a_budget_that_is_none_asks_nothing(ask, session, rho, monkeypatch):
    log, gate = [], dm.Filter(3.0, 1e-6)
    monkeypatch.setattr(Session, "evaluate", lambda *_: log.append(1))
    with pytest.raises(ValueError):  # noqa: PT011  of numbers of any kind
        ask(session, gate, COUNT, rho)
    assert (gate.epsilon, log) == (0, [])


@pytest.mark.parametrize(
    "relation",
    [each for each in dm.Neighbours if each is not dm.Neighbours.ADD_REMOVE_RECORD],
)
def test_a_gate_of_another_relation_asks_nothing(ask, session, relation):
    gate = dm.Filter(1.0, 1e-6, neighbours=relation)
    with pytest.raises(ValueError, match="cost must be for neighbours that"):
        ask(session, gate, COUNT, 0.01)
    assert gate.epsilon == 0


def test_what_tumult_refuses_stays_paid(ask, session):
    gate = dm.Filter(3.0, 1e-6)
    with pytest.raises((ValueError, KeyError)):
        ask(session, gate, QueryBuilder("visits").sum("nothing", 0, 1), 0.01)
    assert gate.epsilon > 0


def test_a_budget_of_nothing_is_refused_by_tumult(ask, session):
    with pytest.raises(ValueError, match="non-zero privacy budget"):
        ask(session, dm.Filter(3.0, 1e-6), COUNT, 0.0)


def test_a_partition_has_what_was_paid(session):
    parts = session.partition_and_create("visits", RhoZCDPBudget(0.5), "town", {"n": "a", "s": "b"})
    for name, part in parts.items():
        part.evaluate(QueryBuilder(name).count(), RhoZCDPBudget(0.5))
        with pytest.raises(RuntimeError, match="exceeding the Session"):
            part.evaluate(QueryBuilder(name).count(), RhoZCDPBudget(0.5))
        part.stop()
