"""Policies follow the paper's rules, depend on readings alone, and can be replayed."""

import pathlib
import re

import numpy as np
import pytest

import dosimeter as dm
from dosimeter.decisions import Rehearsal, StepSettings
from dosimeter.training import AdaptBatch, AdaptNoise, LowerNoise, Reading, StopEarly


def engine(gate=None, noise=1.0, batch=512, records=50_000):
    gate = dm.Odometer(delta=1e-6) if gate is None else gate
    return Rehearsal(gate, StepSettings(noise, batch, records))


def count(value, deviation=100.0):
    return Reading("correct count", value, deviation, 50_000, True, deviation)


def stopped_by(rise, patience, readings, runs=2000):
    """Whether runs whose signal rises by so many deviations a reading are stopped."""
    rng = np.random.default_rng(0)
    stopped = np.zeros(runs, bool)
    best, misses = np.zeros(runs), np.zeros(runs)
    for reading in range(readings):
        value = 100 + rise * reading + rng.standard_normal(runs)
        rose = value >= best + 3
        best, misses = np.where(rose, value, best), np.where(rose, 0, misses + 1)
        stopped |= misses >= patience
    return stopped


def test_the_simulated_rule_is_the_policys():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        target, policy = engine(), StopEarly(patience=3)
        best = misses = 0
        for reading in range(20):
            value = 100.0 + 0.8 * reading + rng.standard_normal()
            best, misses = (value, 0) if value >= best + 3 else (best, misses + 1)
            policy.update(target, count(value, deviation=1.0))
            assert (target.stopped is not None) == (misses >= 3)
            if target.stopped:
                break


class TestAdaptNoise:
    def test_the_papers_rule(self):
        """Three deviations over the best so far: more noise; otherwise back, not past 1."""
        target, policy = engine(), AdaptNoise(step=0.1)
        noises = []
        for value in (10_000, 15_000, 15_299, 15_300, 20_000, 20_299, 20_000, 20_000, 20_000):
            policy.update(target, count(value))
            noises.append(round(target.noise_multiplier, 10))
        # 15,299 is one short of a rise over 15,000, and 15,300 is one; and so on.
        assert noises == [1.1, 1.2, 1.1, 1.2, 1.3, 1.2, 1.1, 1.0, 1.0]

    def test_no_drift_in_the_levels(self):
        target, policy = engine(), AdaptNoise(step=0.1, levels=3)
        for value in range(10_000, 50_000, 1000):
            policy.update(target, count(value))
        assert target.noise_multiplier == 1.0 + 3 * 0.1
        for _ in range(10):
            policy.update(target, count(0))
        assert target.noise_multiplier == 1.0

    def test_only_with_more_than_the_horizon_ahead(self):
        gate = dm.Filter(epsilon=8, delta=1e-6)
        target = engine(gate)
        ahead = gate.affordable(target.step_cost()) // target.steps_per_epoch
        for horizon, expected in ((ahead - 1, 1.1), (ahead + 1, 1.0)):
            policy = AdaptNoise(horizon=horizon)
            policy.update(target, count(10_000))
            assert target.noise_multiplier == pytest.approx(expected)
            target.noise_multiplier = 1.0

    def test_a_rise_with_no_time_left_stays_where_it_is(self):
        gate = dm.Filter(epsilon=8, delta=1e-6)
        target, policy = engine(gate), AdaptNoise(horizon=50)
        policy.update(target, count(10_000))
        assert target.noise_multiplier == 1.1
        gate.spend(target.step_cost(), gate.affordable(target.step_cost()) - 10)
        policy.update(target, count(20_000))
        assert target.noise_multiplier == 1.1
        policy.update(target, count(20_000))
        assert target.noise_multiplier == 1.0

    def test_costs_hold_every_step_it_can_ask_for(self):
        target, policy = engine(), AdaptNoise(levels=4)
        menu = policy.costs(target)
        assert len(menu) == 5
        for value in range(10_000, 50_000, 1000):
            policy.update(target, count(value))
            assert target.step_cost() in menu


class TestAdaptBatch:
    def test_the_papers_rule(self):
        target, policy = engine(), AdaptBatch(step=128, minimum=256)
        sizes = []
        for value in (10_000, 20_000, 30_000, 30_000, 30_000, 30_000):
            policy.update(target, count(value))
            sizes.append(target.batch_size)
        assert sizes == [384, 256, 256, 384, 512, 512]

    def test_costs(self):
        target, policy = engine(), AdaptBatch()
        assert {cost.sample_rate for cost in policy.costs(target)} == {
            512 / 50_000, 384 / 50_000, 256 / 50_000}  # fmt: skip


class TestLowerNoise:
    def test_the_papers_rule(self):
        target, policy = engine(), LowerNoise(start=2.0, step=0.1, minimum=1.8)
        policy.begin(target)
        noises = [target.noise_multiplier]
        for value in (10_000, 10_000, 10_100, 20_000, 20_000, 20_000):
            policy.update(target, count(value))
            noises.append(round(target.noise_multiplier, 10))
        assert noises == [2.0, 2.0, 1.9, 1.8, 1.8, 1.8, 1.8]
        assert [round(c.noise_multiplier, 10) for c in policy.costs(target)] == [2.0, 1.9, 1.8]

    def test_minimum_below_start(self):
        with pytest.raises(ValueError, match="minimum must"):
            LowerNoise(start=1.0, minimum=2.0)


class TestStopEarly:
    def test_target(self):
        target, policy = engine(), StopEarly(target=0.5)
        policy.update(target, count(24_999))
        assert target.stopped is None
        policy.update(target, count(25_000))
        assert "target 0.5" in target.stopped

    def test_target_of_a_loss(self):
        target, policy = engine(), StopEarly(target=0.5)
        policy.update(target, Reading("mean loss", 0.6, 0.01, 50_000, False, 100.0))
        assert target.stopped is None
        policy.update(target, Reading("mean loss", 0.4, 0.01, 50_000, False, 100.0))
        assert target.stopped is not None

    def test_patience(self):
        target, policy = engine(), StopEarly(patience=2)
        for value in (10_000, 10_299, 10_299):
            assert target.stopped is None
            policy.update(target, count(value))
        assert "did not rise by 3 deviations in 2 readings" in target.stopped

    def test_small_rises_add_up(self):
        target, policy = engine(), StopEarly(patience=2)
        for value in range(10_000, 15_000, 250):
            policy.update(target, count(value))
        assert target.stopped is None

    def test_a_falling_signal_stops_at_once(self):
        target, policy = engine(), StopEarly(patience=2)
        for value in (10_000, 9_000, 8_000):
            policy.update(target, count(value))
        assert target.stopped is not None

    def test_the_table_of_the_documentation(self):
        """How often a rising run is stopped within 20 readings, and how long a flat one goes on."""
        text = pathlib.Path("docs/training.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| ([\d.]+) deviations a reading ((?:\| \d+ % ){4})\|$", text, re.M)
        for rise, shares in rows:
            found = [stopped_by(float(rise), patience, 20).mean() for patience in (2, 3, 5, 10)]
            assert [round(100 * share) for share in found] == pytest.approx(
                [int(share) for share in re.findall(r"\d+", shares)], abs=2
            )
        assert len(rows) == 5

    def test_public_readings_need_no_margin(self):
        target, policy = engine(), StopEarly(patience=2)
        for value in (100, 101, 102):
            policy.update(target, count(value, deviation=0.0))
        assert target.stopped is None

    def test_needs_a_reason(self):
        with pytest.raises(ValueError, match="target or patience"):
            StopEarly()


@pytest.mark.parametrize(
    "make", [AdaptNoise, AdaptBatch, LowerNoise, lambda: StopEarly(patience=50)]
)
def test_what_a_policy_remembers_can_be_saved(make):
    whole, first, second = make(), make(), make()
    targets = engine(), engine(), engine()
    values = [10_000, 20_000, 20_000, 30_000, 30_000, 20_000]
    for value in values:
        whole.update(targets[0], count(value))
    for value in values[:3]:
        first.update(targets[1], count(value))
    second.restore(first.state())
    targets[2].noise_multiplier = targets[1].noise_multiplier
    targets[2].batch_size = targets[1].batch_size
    for value in values[3:]:
        second.update(targets[2], count(value))
    assert targets[2].noise_multiplier == targets[0].noise_multiplier
    assert targets[2].batch_size == targets[0].batch_size
    assert second.state() == whole.state()
    with pytest.raises(ValueError, match="state must"):
        second.restore({"odd": 1})


@pytest.mark.parametrize("policy", [AdaptNoise, AdaptBatch])
@pytest.mark.parametrize("name", ["step", "every", "horizon"])
def test_arguments(policy, name):
    with pytest.raises(ValueError, match=f"{name} must"):
        policy(**{name: 0})
