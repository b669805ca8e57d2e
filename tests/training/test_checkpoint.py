"""Resuming goes on exactly where a seeded run was, and never lowers what a gate has spent."""

import copy
import io

import pytest
import torch

import dosimeter as dm


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer)  # weights_only: nothing but plain values and tensors


def test_a_resumed_run_equals_one_that_never_stopped(build, train, snapshot):
    whole = build(physical_batch_size=16)
    train(whole, epochs=2)
    whole.engine.noise_multiplier, whole.engine.batch_size = 3.0, 25
    train(whole, epochs=2)

    first = build(physical_batch_size=16)
    train(first, epochs=2)
    first.engine.noise_multiplier, first.engine.batch_size = 3.0, 25
    state = through_a_file(first.engine.state_dict())
    second = build(physical_batch_size=16)
    second.engine.load_state_dict(state)
    assert (second.engine.noise_multiplier, second.engine.batch_size) == (3.0, 25)
    train(second, epochs=2)

    for one, other in zip(snapshot(whole)[0], snapshot(second)[0], strict=True):
        assert torch.equal(one, other)
    assert second.engine.epsilon == pytest.approx(whole.engine.epsilon, rel=1e-12)
    assert second.engine.steps == whole.engine.steps
    assert second.engine.spends == whole.engine.spends


def test_a_fresh_gate_is_charged_with_what_was_spent(build, train):
    old = build()
    train(old, epochs=3)
    old.engine.spend(dm.Gaussian(50.0))
    new = build()
    new.engine.load_state_dict(old.engine.state_dict())
    assert new.engine.epsilon >= old.engine.epsilon * (1 - 1e-12)
    assert new.engine.spends == old.engine.spends


def test_a_gate_restored_to_the_saved_state_is_not_charged_twice(build, train):
    old = build()
    train(old)
    state = old.engine.state_dict()
    new = build(dm.Filter.from_state(old.gate.state()))
    new.engine.load_state_dict(state)
    assert new.engine.epsilon == old.engine.epsilon
    assert new.engine.state_dict()["spends"]["costs"] == state["spends"]["costs"]


def test_equal_spends_of_another_run_are_not_taken_for_its_own(build, train):
    """Two runs alike spend alike; the gate of one does not hold what the other spent."""
    one, other = build(), build()
    train(one)
    train(other)
    assert one.gate.tally.rdp.tolist() == other.gate.tally.rdp.tolist()
    state, before = one.engine.state_dict(), other.gate.epsilon
    for gate in (other.gate, dm.Filter.from_state(other.gate.state())):
        build(gate).engine.load_state_dict(state)
        assert gate.epsilon > before
    # Nor does a gate that went back to its beginning and was spent from again.
    start = dm.Filter(epsilon=8, delta=1e-6).state()
    first, again = (build(dm.Filter.from_state(start)) for _ in range(2))
    train(first)
    train(again)
    build(again.gate).engine.load_state_dict(first.engine.state_dict())
    assert again.gate.epsilon > before


def test_a_gate_that_moved_on_is_charged_in_full(build, train):
    """Nothing shows that its spends are those of the checkpoint."""
    old = build()
    train(old)
    gate = dm.Filter(epsilon=8, delta=1e-6)
    gate.spend(dm.Gaussian(1.0))
    before = gate.epsilon
    new = build(gate)
    new.engine.load_state_dict(old.engine.state_dict())
    assert gate.epsilon > max(before, old.engine.epsilon)


def test_going_back_in_the_same_run_keeps_the_spends(build, train, snapshot):
    parts = build()
    train(parts)
    state, parameters = copy.deepcopy(parts.engine.state_dict()), snapshot(parts)[0]
    train(parts, epochs=2)
    spent, spends = parts.engine.epsilon, parts.engine.spends
    parts.engine.load_state_dict(state)
    assert parts.engine.epsilon == spent
    assert parts.engine.spends == spends
    assert parts.engine.steps == 5
    assert all(torch.equal(a, b) for a, b in zip(parameters, snapshot(parts)[0], strict=True))


def test_spends_kept_is_believed(build, train):
    old = build()
    train(old)
    gate = dm.Filter(epsilon=8, delta=1e-6)
    new = build(gate)
    new.engine.load_state_dict(old.engine.state_dict(), spends_kept=True)
    assert gate.epsilon == 0.0
    assert new.engine.spends == 5


def test_a_gate_too_small_refuses_and_the_model_stays(build, train, snapshot):
    old = build()
    train(old, epochs=3)
    new = build(dm.Filter(epsilon=2.5, delta=1e-6))
    before = snapshot(new)[0]
    with pytest.raises(dm.BudgetExceeded):
        new.engine.load_state_dict(old.engine.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(new)[0], strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": 2},
        {"records": 7},
        {"extra": 1},
        {"spends": {"run": "x", "costs": [[{"kind": "Gift", "value": 1}, 1]]}},
        {"spends": {"run": "x", "costs": [[{"kind": "Gaussian", "noise_multiplier": -1.0}, 1]]}},
    ],
)
def test_a_strange_state_is_refused(build, change):
    parts = build()
    with pytest.raises(dm.StateError):
        parts.engine.load_state_dict({**parts.engine.state_dict(), **change})
