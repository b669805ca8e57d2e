"""Batches of an execution plan are paid for before they are drawn."""

import dp_accounting
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy.batch_selection import PartitionType, pad_to_multiple_of
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

import dosimeter as dm
from dosimeter.integrations.jax_privacy import paid
from dosimeter.ledger import Ledger
from integrations.pages import run_example, run_page

THEIRS = dp_accounting.NeighboringRelation
RECORDS = 400
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")


def configured(relation=THEIRS.ADD_OR_REMOVE_ONE, bands=1, **options):
    settings = {
        "iterations": 12, "strategy": np.linspace(1, 0.2, bands), "epsilon": None, "delta": None,
        "noise_multiplier": 2.0, "sampling_prob": 0.1,
        "accountant": dp_accounting.pld.PLDAccountant(relation)}  # fmt: skip
    if relation is THEIRS.ADD_OR_REMOVE_ONE:
        settings["partition_type"] = PartitionType.INDEPENDENT
    return BandMFExecutionPlanConfig(**{**settings, **options})


class Spy:
    """A gate that notices when it is spent from."""

    def __init__(self, gate):
        self.gate, self.log = gate, []

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.log.append((cost, count))

    def __getattr__(self, name):
        return getattr(self.gate, name)


def test_every_batch_is_paid_for_before_it_is_drawn():
    gate = Spy(dm.Odometer(1e-6))
    plan = paid(configured(), gate)
    batches = plan.batch_selection_strategy.batch_iterator(RECORDS)
    assert gate.log == []
    for number, batch in enumerate(batches, 1):
        assert gate.log == [(dm.SampledGaussian(0.1, 2.0), 1)] * number
        assert set(batch) <= set(range(RECORDS))
    assert number == 12
    assert plan.batch_selection_strategy.refusal is None
    whole = dm.Odometer(1e-6)
    whole.spend(dm.Event(plan.dp_event))
    # Not the same curve: a step by itself is charged without its rarest outputs.
    assert gate.epsilon <= whole.epsilon * (1 + 1e-9)
    pld = dp_accounting.pld.PLDAccountant(THEIRS.ADD_OR_REMOVE_ONE)
    assert gate.epsilon >= pld.compose(plan.dp_event).get_epsilon(1e-6)


def test_batches_are_those_of_the_plan():
    config = configured()
    ours, theirs = (
        plan.batch_selection_strategy.batch_iterator(RECORDS, 7)
        for plan in (paid(config, dm.Odometer(1e-6)), config.plan)
    )
    for one, two in zip(ours, theirs, strict=True):
        assert np.array_equal(one, two)


def test_a_filter_ends_training_and_says_why():
    gate = dm.Filter(1.5, 1e-6)
    strategy = paid(configured(iterations=1000), gate).batch_selection_strategy
    taken = sum(1 for _ in strategy.batch_iterator(RECORDS))
    assert 0 < taken < 1000
    assert isinstance(strategy.refusal, dm.BudgetExceeded)
    assert not gate.admits(dm.SampledGaussian(0.1, 2.0))
    plain = dm.Filter(1.5, 1e-6)
    assert plain.affordable(dm.SampledGaussian(0.1, 2.0)) == taken
    spent = gate.epsilon
    with pytest.raises(dm.BudgetExceeded):
        next(strategy.batch_iterator(RECORDS))
    assert gate.epsilon == spent


def test_a_loop_that_is_left_has_paid_for_what_it_drew():
    gate = Spy(dm.Odometer(1e-6))
    batches = paid(configured(), gate).batch_selection_strategy.batch_iterator(RECORDS)
    for _ in range(3):
        next(batches)
    batches.close()
    assert len(gate.log) == 3


def test_several_bands_are_paid_for_whole():
    gate = Spy(dm.Odometer(1e-6))
    plan = paid(configured(bands=3), gate)
    strategy = plan.batch_selection_strategy
    next(strategy.batch_iterator(RECORDS))
    assert gate.log == [(dm.Event(plan.dp_event), 1)]
    assert plan.dp_event.count == 4
    assert sum(1 for _ in strategy.batch_iterator(RECORDS)) == 12
    assert len(gate.log) == 2  # begun anew, paid anew
    small = dm.Filter(0.1, 1e-6)
    with pytest.raises(dm.BudgetExceeded):
        next(paid(configured(bands=3), small).batch_selection_strategy.batch_iterator(RECORDS))
    assert small.epsilon == 0


def test_noise_is_never_the_same_twice_unless_it_is_asked_for():
    model = jnp.zeros(1000)

    def drawn(plan):
        state = plan.noise_addition_transform.init(model)
        first, state = plan.noise_addition_transform.update(model, state)
        second, _ = plan.noise_addition_transform.update(model, state)
        return np.asarray(first), np.asarray(second)

    theirs = configured().plan
    assert np.array_equal(drawn(theirs)[0], drawn(theirs)[0])  # what is mended here
    plan = paid(configured(), dm.Odometer(1e-6))
    noises = [*drawn(plan), *drawn(plan)]
    for one in noises:
        assert sum(np.array_equal(one, other) for other in noises) == 1
        # 1000 draws of deviation 2: five standard errors either way.
        assert abs(one.std() - 2.0) < 5 * 2.0 / np.sqrt(2000)
    seeded = paid(configured(noise_seed=3), dm.Odometer(1e-6))
    assert np.array_equal(drawn(seeded)[0], drawn(configured(noise_seed=3).plan)[0])


def test_correlated_noise_is_that_of_the_plan():
    """The rows of the inverse strategy, whatever the key: a variance below that of one band's."""
    model, config = jnp.zeros(4000), configured(bands=3)
    state = (noise := paid(config, dm.Odometer(1e-6)).noise_addition_transform).init(model)
    rows = []
    for _ in range(3):
        row, state = noise.update(model, state)
        rows.append(np.asarray(row))
    inverse = np.linalg.inv(
        sum(np.eye(3, k=-k) * c for k, c in enumerate(np.asarray(config.strategy)))
    )
    scale = 2.0 * np.linalg.norm(config.strategy)
    for row, coefficients in zip(rows, inverse, strict=True):
        expected = scale * np.linalg.norm(coefficients)
        assert abs(row.std() - expected) < 5 * expected / np.sqrt(8000)


@pytest.mark.parametrize("relation", [THEIRS.REPLACE_SPECIAL, THEIRS.REPLACE_ONE])
def test_a_config_of_another_relation_is_refused(relation):
    gate = dm.Filter(3.0, 1e-6)
    with pytest.raises(ValueError, match=rf"ADD_OR_REMOVE_ONE.*got {relation.name}"):
        paid(configured(relation), gate)
    assert gate.epsilon == 0


@pytest.mark.parametrize(
    "relation", [dm.Neighbours.REPLACE_ONE_RECORD, dm.Neighbours.ADD_REMOVE_USER]
)
def test_a_gate_of_another_relation_is_refused(relation):
    gate = dm.Filter(3.0, 1e-6, neighbours=relation)
    with pytest.raises(ValueError, match="gate must be for neighbours that add/remove one record"):
        paid(configured(), gate)
    assert gate.epsilon == 0


def test_bad_input_is_refused_and_nothing_spent():
    gate = dm.Filter(3.0, 1e-6)
    with pytest.raises(ValueError, match="noise_multiplier must be finite"):
        paid(configured(noise_multiplier=0.0), gate)
    with pytest.raises(ValueError, match="sample_rate must"):
        paid(configured(sampling_prob=0.0), gate)
    with pytest.raises(TypeError, match="config must be a BandMFExecutionPlanConfig"):
        paid(configured().plan, gate)
    with pytest.raises(TypeError, match="gate must be a Filter"):
        paid(configured(), None)
    assert gate.epsilon == 0


def test_training_under_a_ledger_learns_and_ends_with_the_budget(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((RECORDS, 3)).astype(np.float32)
    y = np.sign(x.sum(axis=1))

    def loss(weights, record):
        return jnp.mean(jnp.logaddexp(0.0, -record[1] * (record[0] @ weights)))

    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("digits", 4.0, 1e-5)
        plan = paid(configured(iterations=500, sampling_prob=0.25, normalize_by=100), budget)
        weights = jnp.zeros(3)
        noise = plan.noise_addition_transform.init(weights)
        gradient = plan.clipped_grad(loss, batch_argnums=1)
        steps = 0
        for batch in plan.batch_selection_strategy.batch_iterator(RECORDS):
            batch = pad_to_multiple_of(batch, 200)
            clipped = gradient(weights, (x[batch], y[batch]), is_padding_example=batch == -1)
            released, noise = plan.noise_addition_transform.update(clipped, noise)
            weights -= released
            steps += 1
        assert 0 < steps < 500
        assert [entry.kind for entry in budget.history()].count("spend") == steps
        assert budget.epsilon <= 4.0
    assert float(jnp.mean(jnp.sign(x @ weights) == y)) > 0.8


def test_the_page():
    run_page("jax_privacy")


def test_the_example(tmp_path):
    out = run_example("jax_privacy", tmp_path)
    assert "(2.0, 1e-05)-DP" in out
    assert "refused" in out
