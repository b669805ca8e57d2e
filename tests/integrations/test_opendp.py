"""OpenDP's queries are priced by their own maps and paid before the data are asked."""

import importlib.metadata
import math
import pathlib
import subprocess
import sys
import time

import numpy as np
import opendp.prelude as dp
import polars as pl
import pytest

import dosimeter as dm
from dosimeter.integrations import parts
from dosimeter.integrations.opendp import Context, price
from dosimeter.ledger import Ledger
from integrations.pages import run_example, run_page

dp.enable_features("contrib", "honest-but-curious")

RECORD, SWAP, USER = dm.Neighbours
DATA = [float(x) for x in np.random.default_rng(0).uniform(0, 10, 200)]
DOMAIN = dp.vector_domain(dp.atom_domain(T=float, nan=False))
SPACE = DOMAIN, dp.symmetric_distance()
ONE = dp.unit_of(contributions=1)
FRAME = pl.LazyFrame({"age": [20.0, 30.0, 40.0, 50.0] * 25, "town": ["a", "b"] * 50})
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "integrations" / "with_opendp.py"
MARGINS = [dp.polars.Margin(by=(), max_length=1000)]


def context(gate, unit=ONE, **options):
    return Context.compositor(gate, DATA, unit, domain=DOMAIN, **options)


def framed(gate, loss=None, **options):
    return Context.compositor(gate, FRAME, ONE, loss, margins=MARGINS, **options)


def count(scale, noise=dp.m.then_laplace, space=SPACE):
    return space >> dp.t.then_count() >> noise(scale)


def test_each_measure_has_its_cost():
    assert price(count(4.0), 1) == dm.PureDp(0.25)
    assert price(count(4.0), 2, neighbours=USER) == dm.PureDp(0.5, neighbours=USER)
    gaussian = price(count(4.0, dp.m.then_gaussian), 1)
    assert isinstance(gaussian, dm.Zcdp)
    assert 1 / 32 <= gaussian.rho <= 1 / 32 * (1 + 1e-12)
    assert price(dp.c.make_approximate(count(4.0)), 1) == dm.ApproxDp(0.25, 0.0)
    concentrated = price(dp.c.make_approximate(count(4.0, dp.m.then_gaussian)), 1)
    assert concentrated == dm.ApproxZcdp(gaussian.rho, 0.0)
    profile = dp.c.make_zCDP_to_approxDP(count(4.0, dp.m.then_gaussian))
    fixed = price(dp.c.make_fix_delta(profile, 1e-7), 1)
    assert isinstance(fixed, dm.ApproxDp)
    assert fixed.delta == 1e-7
    with pytest.raises(
        ValueError, match=r"output_measure must be one of.*Smoothed.*make_fix_delta"
    ):
        price(profile, 1)
    with pytest.raises(ValueError, match="epsilon must be finite"):
        price(count(0.0), 1)


def test_what_does_not_depend_on_the_data_is_free():
    for measure in (dp.max_divergence(), dp.zero_concentrated_divergence()):
        free = dp.m.make_user_measurement(
            *SPACE, output_measure=measure, function=lambda _: 1, privacy_map=lambda _: 0.0
        )
        gate = dm.Filter(1.0, 1e-6)
        assert context(gate)(free) == 1
        assert gate.epsilon < 1e-12


@pytest.mark.parametrize(
    ("unit", "fitting"),
    [
        ({"contributions": 1}, {RECORD, USER}),
        ({"contributions": 1, "ordered": True}, {RECORD, USER}),
        ({"contributions": 3}, {USER}),
        ({"changes": 1}, {SWAP}),
        ({"changes": 1, "ordered": True}, {SWAP}),
        ({"changes": 2}, set()),
        ({"contributions": 1, "identifier": "town"}, {USER}),
        ({"contributions": [dp.polars.Bound(per_group=2)]}, {USER}),
        ({"changes": 1, "identifier": "town"}, set()),
        ({"l1": 2.0}, set()),
        ({"local": True}, set()),
    ],
)
def test_a_unit_is_paid_from_a_gate_of_its_relation_only(unit, fitting):
    for relation in dm.Neighbours:
        gate = dm.Filter(1.0, 1e-6, neighbours=relation)
        data, options = (FRAME, {"margins": MARGINS}) if "identifier" in unit else (DATA, {})
        if isinstance(unit.get("contributions"), list):
            data, options = FRAME, {"margins": MARGINS}
        if relation in fitting:
            made = Context.compositor(gate, data, dp.unit_of(**unit), **options)
            assert made.gate is gate
            continue
        with pytest.raises(ValueError, match="privacy unit must be"):
            Context.compositor(gate, data, dp.unit_of(**unit), **options)
    if fitting == {USER}:
        with pytest.raises(ValueError, match=r"neighbours=dosimeter\.Neighbours\.ADD_REMOVE_USER"):
            Context.compositor(dm.Filter(1.0, 1e-6), data, dp.unit_of(**unit), **options)


def test_several_records_of_a_user_cost_more():
    gates = [dm.Odometer(1e-6, neighbours=USER) for _ in range(2)]
    for gate, records in zip(gates, (1, 3), strict=True):
        context(gate, dp.unit_of(contributions=records))(count(50.0))
    assert gates[1].tally.pure_epsilon == pytest.approx(3 * gates[0].tally.pure_epsilon)
    assert gates[1].tally.pure_epsilon >= 3 / 50


class Spy:
    """A gate that notices when it is spent from."""

    def __init__(self, gate, log):
        self.gate, self.log = gate, log

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.log.append("paid")

    def __getattr__(self, name):
        return getattr(self.gate, name)


def watched(log, epsilon=0.1):
    return dp.m.make_user_measurement(
        *SPACE,
        output_measure=dp.max_divergence(),
        function=lambda _: log.append("asked") or 0,
        privacy_map=lambda d: d * epsilon,
    )


def test_it_is_paid_before_the_data_are_asked_and_a_refusal_asks_nothing():
    log = []
    gate = dm.Filter(1.0, 1e-6)
    asking = context(Spy(gate, log))
    asking(watched(log))
    assert log == ["paid", "asked"]
    before = gate.epsilon
    for _ in range(3):
        with pytest.raises(dm.BudgetExceeded):
            asking(watched(log, 5.0))
    assert log == ["paid", "asked"]
    assert gate.epsilon == before
    asking(watched(log))  # unlike OpenDP's own filter it lives on
    assert log == ["paid", "asked"] * 2


def test_a_price_is_no_question():
    log, gate = [], dm.Filter(1.0, 1e-6)
    asking = context(Spy(gate, log), privacy_loss=dp.loss_of(rho=0.1), split_evenly_over=5)
    query = asking.query().clamp((0.0, 10.0)).sum().gaussian()
    first = asking.price(query)
    assert first == asking.price(query)
    assert first.rho <= 0.02
    assert asking.price(watched(log)) == dm.PureDp(0.1)
    assert log == []
    assert gate.epsilon == 0
    query.release()
    alone = dm.Filter(1.0, 1e-6)
    alone.spend(first)
    assert gate.epsilon == alone.epsilon


def test_queries_take_any_loss_or_their_share_for_as_long_as_the_gate_lasts():
    gate = dm.Odometer(1e-6, approx_delta=1e-5)
    asking = context(gate, privacy_loss=dp.loss_of(epsilon=1.0), split_by_weights=[1, 3])
    prices = [asking.price(asking.query().count().laplace()).epsilon]
    for _ in range(3):
        asking.query().count().laplace().release()
        prices.append(asking.price(asking.query().count().laplace()).epsilon)
    assert prices == pytest.approx([0.25, 0.75, 0.75, 0.75])
    assert isinstance(asking.price(asking.query(rho=0.1).count().gaussian()), dm.Zcdp)
    assert isinstance(asking.price(asking.query(epsilon=0.1).count().laplace()), dm.PureDp)
    assert isinstance(asking.query(rho=0.1).count().laplace().release(), int)
    assert asking.query(epsilon=0.1, delta=1e-7).count().laplace().release() is not None
    assert gate.tally.pure_epsilon == math.inf
    assert asking.current_privacy_loss() == gate.epsilon
    assert asking.remaining_privacy_loss() == math.inf


def test_a_nested_compositor_is_paid_in_full_when_it_is_made():
    gate = dm.Filter(3.0, 1e-6)
    inner = context(gate).query(epsilon=0.5).compositor(split_evenly_over=2).release()
    assert gate.tally.pure_epsilon == pytest.approx(0.5)
    for _ in range(2):
        inner.query().count().laplace().release()
    with pytest.raises(ValueError, match="exhausted"):
        inner.query()
    assert gate.tally.pure_epsilon == pytest.approx(0.5)


def test_what_is_not_on_these_data_is_refused_before_it_is_paid():
    gate = dm.Filter(1.0, 1e-6)
    other = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    with pytest.raises(ValueError, match="query must be on the data of this context"):
        context(gate)(count(50.0, space=other))
    swapped = DOMAIN, dp.change_one_distance()
    alone = dp.m.make_user_measurement(
        *swapped, dp.max_divergence(), function=lambda _: 0, privacy_map=lambda _: 0.0
    )
    with pytest.raises(ValueError, match="privacy unit must be"):
        context(gate)(alone)
    for wrong in (SPACE >> dp.t.then_count(), 1.0, None):
        with pytest.raises(TypeError, match="measurement must be an OpenDP Measurement"):
            price(wrong, 1)
    assert gate.epsilon == 0


@pytest.mark.parametrize("gate", [None, 1.0, dm.PureDp(1.0), dm.Filter])
def test_what_is_no_gate_is_refused(gate):
    with pytest.raises(TypeError, match="gate must be a Filter"):
        context(gate)


def test_there_is_no_way_round_the_gate():
    asking = context(dm.Filter(1.0, 1e-6))
    assert asking.queryable is None


def test_polars_queries_too():
    gate = dm.Filter(2.0, 1e-6)
    asking = framed(gate)
    plan = asking.query().select(pl.col("age").fill_null(0.0).dp.sum((0.0, 60.0)))
    measure = dp.zero_concentrated_divergence()
    space = asking.accountant.input_space
    query = dp.m.make_private_lazyframe(*space, measure, plan.polars_plan, global_scale=20.0)
    cost = asking.price(query)
    assert 1 / 800 <= cost.rho <= 1 / 800 * 1.001  # the noise is 20 times the sensitivity
    assert gate.epsilon == 0
    assert asking(query).collect().shape == (1, 1)
    alone = dm.Filter(2.0, 1e-6)
    alone.spend(cost)
    assert gate.epsilon == alone.epsilon
    dear = dp.m.make_private_lazyframe(*space, measure, plan.polars_plan, global_scale=0.2)
    with pytest.raises(dm.BudgetExceeded):
        asking(dear)
    asking(query)


@pytest.mark.slow  # OpenDP looks for the noise of each query by bisection
def test_polars_queries_by_their_loss():
    gate = dm.Filter(2.0, 1e-6, approx_delta=1e-6)
    asking = framed(gate, dp.loss_of(rho=0.1), split_evenly_over=4)
    query = asking.query().select(
        dp.len(signed=True), pl.col("age").fill_null(0.0).dp.sum((0.0, 60.0))
    )
    cost = asking.price(query)
    assert cost.rho <= 0.025
    assert gate.epsilon == 0
    assert query.release().collect().shape == (1, 2)
    alone = dm.Filter(2.0, 1e-6)
    alone.spend(cost)
    assert gate.epsilon == alone.epsilon
    keyed = asking.query(epsilon=0.2, delta=1e-7).group_by("town").agg(dp.len(signed=True))
    assert isinstance(asking.price(keyed), dm.ApproxDp)
    assert set(keyed.release().collect().columns) == {"town", "len"}
    assert 0 < gate.tally.delta <= 1e-7
    with pytest.raises(dm.BudgetExceeded):
        asking.query(epsilon=3.0).select(dp.len(signed=True)).release()
    asking.query(epsilon=0.01).select(dp.len(signed=True)).release()


def test_one_budget_for_several_contexts_and_jobs(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("census", 1.0, 1e-6)
        context(budget)(count(20.0))
        context(ledger["census"])(count(20.0))
        assert budget.epsilon == pytest.approx(0.1)
        with pytest.raises(dm.BudgetExceeded, match="census"):
            context(budget)(count(0.5))
        assert [entry.kind for entry in budget.history()].count("spend") == 2
        assert ledger.verify("census").ok


def test_a_thousand_adaptive_queries_are_decided_as_fast_as_the_first():
    gate = dm.Filter(1.0, 1e-6)
    asking = context(gate)
    took, scale = [], 3000.0
    for _ in range(1000):
        query = count(scale, dp.m.then_gaussian)
        cost = asking.price(query)
        start = time.perf_counter()
        gate.spend(cost)
        took.append(time.perf_counter() - start)
        answer = asking._keeper(query.output_measure)[1](query)
        scale = 3000.0 + answer % 100  # the next question depends on the answer
    assert gate.epsilon < 1
    assert np.median(took[-200:]) < 4 * np.median(took[:200])


def test_versions_and_missing_packages_name_the_line_for_pip(monkeypatch):
    with pytest.raises(ImportError, match=r"no-such must be installed; pip install 'no-such==1\.2"):
        parts.require("no-such", "1.2")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.17.1")
    with pytest.raises(ImportError, match=r"version 0\.16, got 0\.17\.1; pip install 'opendp\[pol"):
        parts.require("opendp", "0.16", install="opendp[polars]==0.16.*")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.160")
    with pytest.raises(ImportError, match="must be version"):
        parts.require("opendp", "0.16")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page():
    run_page("opendp")


@pytest.mark.slow
def test_three_lines_put_a_script_on_a_budget(tmp_path):
    """The example without its marked lines is plain OpenDP, and runs."""
    after = EXAMPLE.read_text().splitlines()
    marked = [line for line in after if line.endswith("# dosimeter")]
    assert len(marked) == 3
    before = [line for line in after if line not in marked[:2]]
    before[before.index(marked[2])] = "context = dp.Context.compositor("
    script = tmp_path / "before.py"
    script.write_text("\n".join(before))
    plain = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "dosimeter" not in script.read_text().split('"""')[2]
    budgeted = run_example("opendp", tmp_path)
    for out in (plain.stdout, budgeted):
        assert "mean age" in out
        assert "visits" in out
