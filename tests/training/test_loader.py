"""An epoch has as many batches as `len` says; workers read ahead what is paid ahead."""

import math
import os

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import Dataset

import dosimeter as dm
from dosimeter.errors import BudgetExceeded
from dosimeter.training.pieces import SHORT, Division, pieces

torch.set_num_threads(1)


def odometer():
    return dm.Odometer(delta=1e-6)


class TestLength:
    @pytest.mark.parametrize(
        ("records", "batch_size", "physical"),
        [(200, 64, 8), (200, 64, 64), (50, 16, 1), (60, 12, 5), (40, 2, 1), (30, 1, None),
         (64, 64, 10), (50, 7, 49)],
    )  # fmt: skip
    def test_an_epoch_has_so_many_batches_and_all_its_steps(
        self, build, points, train, records, batch_size, physical
    ):
        parts = build(odometer(), points(records), batch_size=batch_size, noise_multiplier=3.0,
                      physical_batch_size=physical)  # fmt: skip
        steps = -(-records // batch_size)
        for epoch in range(1, 4):
            assert train(parts) == len(parts.loader)
            assert parts.engine.steps == parts.engine.spends == epoch * steps
        assert len(parts.loader) >= steps

    def test_a_batch_that_is_whole_is_one_batch(self, build):
        assert len(build(batch_size=40).loader) == 5
        assert len(build(batch_size=64, physical_batch_size=150).loader) == 4

    def test_no_batch_is_larger_than_it_may_be(self, build):
        parts = build(odometer(), batch_size=64, physical_batch_size=9)
        for x, y in parts.loader:
            assert 1 <= len(x) <= 9
            parts.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(parts.model(x), y).backward()
            parts.optimizer.step()

    @pytest.mark.parametrize("physical", [1, 5])
    def test_dividing_and_standing_in_change_no_step(self, build, points, train, physical):
        """The same coins and noise, whole and in pieces: records that come again are dropped."""
        whole, divided = (
            build(dataset=points(100), batch_size=20, physical_batch_size=size)
            for size in (None, physical)
        )
        for parts in (whole, divided):
            train(parts, epochs=2)
        for one, two in zip(whole.base.parameters(), divided.base.parameters(), strict=True):
            assert torch.allclose(one, two, atol=1e-5)

    @pytest.mark.parametrize("law", [(1000, 64, 8), (200, 16, 2), (60, 12, 3), (1000, 2, 4)])
    def test_what_is_foreseen_is_hardly_ever_exceeded(self, law):
        """Exactly, by folding the law of one step with itself; the bound is not far off either."""
        records, batch_size, physical = law
        rate, steps = batch_size / records, 6
        cdf = stats.binom.cdf(np.arange(0, records + physical, physical), records, rate)
        one = np.diff(cdf, prepend=0.0)
        law = np.ones(1)
        for _ in range(steps):
            law = np.convolve(law, one)
        foreseen = Division(records, rate, physical).needed(steps)
        assert law[foreseen + 1 :].sum() <= SHORT
        assert law[max(foreseen - pieces(4 * batch_size, physical), 0) :].sum() > SHORT

    def test_a_batch_size_of_its_own_makes_a_length_of_its_own(self, build, train):
        parts = build(odometer(), batch_size=20, physical_batch_size=8)
        before = len(parts.loader)
        parts.engine.batch_size = 100
        assert len(parts.loader) < before
        assert train(parts) == len(parts.loader)


class Recorded(Dataset):
    """Records that tell in which process they were read."""

    def __init__(self, count=200):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 6, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.x[index].sum() > 0), os.getpid()


def loop(parts, limit=math.inf):
    seen, readers = 0, set()
    for x, y, pids in parts.loader:
        seen += 1
        readers |= set(pids.tolist())
        parts.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()
        if seen >= limit:
            break
    return seen, readers


class TestWorkers:
    def test_workers_read_and_the_model_is_the_same(self, build):
        alone = build(odometer(), Recorded(), physical_batch_size=16)
        helped = build(odometer(), Recorded(), physical_batch_size=16, num_workers=2)
        assert loop(alone) == (len(alone.loader), {os.getpid()})
        seen, readers = loop(helped)
        assert seen == len(helped.loader)
        assert len(readers) == 2
        assert os.getpid() not in readers
        assert helped.engine.steps == helped.engine.spends == 5
        for one, two in zip(alone.base.parameters(), helped.base.parameters(), strict=True):
            assert torch.equal(one, two)

    def test_nothing_is_read_that_is_not_paid_for(self, build, counting_gate):
        gate = counting_gate(odometer())
        parts = build(gate, Recorded(), batch_size=10, num_workers=1)
        stream = iter(parts.loader)
        assert gate.spends == []
        next(stream)
        # One at hand and two ahead for the worker, each a whole step here.
        assert 1 <= len(gate.spends) <= 3
        assert parts.engine.spends == len(gate.spends)

    def test_what_was_paid_ahead_and_not_used_stays_spent(self, build):
        parts = build(odometer(), Recorded(), batch_size=10, num_workers=1)
        loop(parts, limit=2)
        paid = parts.engine.spends
        assert parts.engine.steps == 2 < paid
        loop(parts)
        assert parts.engine.steps == 2 + 20
        assert parts.engine.spends == paid + 20

    @pytest.mark.parametrize("strict", [False, True])
    def test_what_is_paid_for_is_trained_on_before_the_end(self, build, strict):
        cost = dm.SampledGaussian(0.05, 2.0)
        gate = dm.Filter(epsilon=0.75, delta=1e-6)
        affordable = 0
        while dm.Filter(epsilon=0.75, delta=1e-6).admits(cost, affordable + 1):
            affordable += 1
        assert 0 < affordable < 20
        parts = build(gate, Recorded(), batch_size=10, num_workers=2, strict=strict)
        if strict:
            with pytest.raises(BudgetExceeded):
                loop(parts)
        else:
            loop(parts)
        assert parts.engine.exhausted
        assert parts.engine.steps == parts.engine.spends == affordable

    def test_batches_without_records_are_stepped_on_in_their_turn(self, build):
        parts = build(odometer(), Recorded(20), batch_size=1, num_workers=1)
        seen, _ = loop(parts)
        assert seen == len(parts.loader)
        assert parts.engine.steps == parts.engine.spends == 20

    @pytest.mark.parametrize("workers", [-1, 1.5, True, math.nan, "2"])
    def test_a_number_of_workers_is_a_whole_number(self, build, workers):
        with pytest.raises((TypeError, ValueError), match="num_workers"):
            build(num_workers=workers)
