"""A query of Tumult is paid for before Spark is asked."""

import pytest
from tmlt.analytics import (
    AddMaxRows,
    AddOneRow,
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)

import dosimeter as dm
from dosimeter.integrations.tmlt import PaidSession
from dosimeter.ledger import Ledger
from integrations.pages import run_example, run_page

pytestmark = pytest.mark.filterwarnings("ignore")
INFINITE = float("inf")
USER = dm.Neighbours.ADD_REMOVE_USER
COUNT = QueryBuilder("visits").count()


@pytest.fixture(scope="module")
def visits(spark):
    rows = [(town, age, str(user)) for user, age in enumerate(range(300)) for town in "ab"]
    return spark.createDataFrame(rows, ["town", "age", "user"])


@pytest.fixture
def session(visits):
    def make(gate, budget=None, change=None):
        budget = PureDPBudget(INFINITE) if budget is None else budget
        made = Session.from_dataframe(budget, "visits", visits, change or AddOneRow())
        return PaidSession(made, gate)

    return make


def test_a_group_by_under_a_budget_of_a_ledger(session, tmp_path):
    towns = QueryBuilder("visits").groupby(KeySet.from_dict({"town": ["a", "b"]})).count()
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("visits", 1.0, 1e-6)
        asking = session(budget)
        found = {
            row["town"]: row["count"] for row in asking.evaluate(towns, PureDPBudget(0.8)).collect()
        }
        assert budget.epsilon == 0.8
        assert all(abs(found[town] - 300) < 100 for town in "ab")
        with pytest.raises(dm.BudgetExceeded, match="visits"):
            asking.evaluate(towns, PureDPBudget(0.8))
        asking.evaluate(towns, PureDPBudget(0.1))
        assert [entry.kind for entry in budget.history()].count("spend") == 2


def test_it_is_paid_before_spark_is_asked_and_a_refusal_asks_nothing(session, monkeypatch):
    log, gate = [], dm.Filter(1.0, 1e-6)
    asking = session(gate)
    monkeypatch.setattr(Session, "evaluate", lambda *_: log.append(gate.epsilon))
    asking.evaluate(COUNT, PureDPBudget(0.5))
    assert log == [0.5]
    with pytest.raises(dm.BudgetExceeded):
        asking.evaluate(COUNT, PureDPBudget(0.8))
    assert (log, gate.epsilon) == ([0.5], 0.5)


def test_every_measure_has_its_cost(session):
    gate = dm.Odometer(1e-6, approx_delta=1e-5)
    rho = session(gate, RhoZCDPBudget(INFINITE))
    assert rho.price(RhoZCDPBudget(0.01)) == dm.Zcdp(0.01)
    rho.evaluate(COUNT, RhoZCDPBudget(0.01))
    approx = session(gate, ApproxDPBudget(INFINITE, 1))
    assert approx.price(ApproxDPBudget(0.1, 1e-7)) == dm.ApproxDp(0.1, 1e-7)
    approx.evaluate(COUNT, ApproxDPBudget(0.1, 1e-7))
    approx.evaluate(COUNT, PureDPBudget(0.1))
    alone = dm.Odometer(1e-6, approx_delta=1e-5)
    for cost in (dm.Zcdp(0.01), dm.ApproxDp(0.1, 1e-7), dm.PureDp(0.1)):
        alone.spend(cost)
    assert gate.epsilon == pytest.approx(alone.epsilon, rel=1e-9)


def test_what_tumult_refuses_is_not_paid(session):
    gate = dm.Filter(3.0, 1e-6)
    asking = session(gate)
    for query, budget in [
        (QueryBuilder("nowhere").count(), PureDPBudget(0.5)),
        (QueryBuilder("visits").sum("nothing", 0, 1), PureDPBudget(0.5)),
        (COUNT, RhoZCDPBudget(0.5)),
        (COUNT, PureDPBudget(0)),
        (COUNT, PureDPBudget(INFINITE)),
        (COUNT, 0.5),
        ("a count", PureDPBudget(0.5)),
    ]:
        with pytest.raises((ValueError, TypeError, KeyError)):
            asking.evaluate(query, budget)
    with pytest.raises((ValueError, KeyError)):
        asking.partition_and_create("visits", PureDPBudget(0.5), "nothing", {"north": "a"})
    assert gate.epsilon == 0


def test_a_partition_is_paid_in_full_when_it_is_made(session):
    gate = dm.Filter(1.0, 1e-6)
    asking = session(gate)
    parts = asking.partition_and_create("visits", PureDPBudget(0.5), "town", {"n": "a", "s": "b"})
    assert gate.epsilon == 0.5
    for name, part in parts.items():
        part.evaluate(QueryBuilder(name).count(), PureDPBudget(0.5))
        with pytest.raises(RuntimeError, match="exceeding the Session"):
            part.evaluate(QueryBuilder(name).count(), PureDPBudget(0.5))
        part.stop()
    assert gate.epsilon == 0.5
    with pytest.raises(dm.BudgetExceeded):
        asking.partition_and_create("visits", PureDPBudget(0.8), "town", {"n": "a", "s": "b"})


@pytest.mark.parametrize(
    ("change", "fitting"),
    [
        (AddOneRow(), {dm.Neighbours.ADD_REMOVE_RECORD, USER}),
        (AddMaxRows(3), {USER}),
        (AddRowsWithID("user"), {USER}),
    ],
)
def test_a_relation_that_does_not_fit_is_refused(session, change, fitting):
    for relation in dm.Neighbours:
        gate = dm.Filter(1.0, 1e-6, neighbours=relation)
        if relation in fitting:
            session(gate, change=change)
        else:
            with pytest.raises(ValueError, match="gate must be for neighbours that"):
                session(gate, change=change)


def test_a_limit_of_its_own_and_bad_arguments_are_refused(session):
    gate = dm.Filter(1.0, 1e-6)
    with pytest.raises(ValueError, match=r"infinite budget.*PureDPBudget\(float\('inf'\)\)"):
        session(gate, PureDPBudget(3))
    with pytest.raises(TypeError, match="session must be a Session"):
        PaidSession(None, gate)
    with pytest.raises(TypeError, match="gate must be a Filter"):
        session(None)
    assert session(gate).private_sources == ["visits"]
    with pytest.raises(AttributeError):
        session(gate)._accountant  # noqa: B018


def test_the_page(spark):
    run_page("tmlt")


def test_the_example(tmp_path):
    out = run_example("tmlt", tmp_path)
    assert "refused" in out
    assert "(1.0, 1e-06)-DP" in out
