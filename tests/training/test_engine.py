"""The engine spends first, steps once per ticket, stops when refused, and agrees with Opacus."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.errors import TicketError
from dosimeter.training import PrivateEngine
from dosimeter.training.entropy import SeededEntropy
from dosimeter.training.gaussian import RoundedNormals
from dosimeter.training.grid import Grid


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left[0], right[0], strict=True)) and all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        for a, b in zip(left[1], right[1], strict=True)
    )


class TestAgreementWithOpacus:
    """Same model, batches and noise: the same parameters after 20 steps.

    Opacus clips, sums and averages without noise of its own; the noise is drawn beside the
    engine from the same seed, as integers on the grid.
    """

    @pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # by Opacus' hooks
    @pytest.mark.parametrize("physical", [None, 7])
    def test_twenty_steps(self, build, classifier, points, physical):
        seed, dataset = 11, points()
        ours = build(seed=seed, dataset=dataset, physical_batch_size=physical)
        loss_fn = ours.engine.private_loss(nn.CrossEntropyLoss())
        steps, batch = [], []
        while len(steps) < 20:
            for x, y in ours.loader:
                batch.append((x, y))
                before = ours.engine.steps
                ours.optimizer.zero_grad()
                loss_fn(ours.model(x), y).backward()
                ours.optimizer.step()
                if ours.engine.steps > before:
                    steps.append([torch.cat(parts) for parts in zip(*batch, strict=True)])
                    batch = []
                if len(steps) == 20:
                    break

        plain = GradSampleModule(classifier())
        base = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
        count = sum(p.numel() for p in plain.parameters())
        grid = Grid.of(2.0, 1.0, values=count, records=len(dataset))
        optimizer = DPOptimizer(
            base, noise_multiplier=0.0, max_grad_norm=grid.norm, expected_batch_size=40
        )
        entropy = SeededEntropy("noise", seed)
        for x, y in steps:
            optimizer.zero_grad()
            cross_entropy(plain(x), y).backward()
            assert optimizer.pre_step()
            drawn = RoundedNormals(count).draw(entropy.keystream(), grid.scale, count)
            sizes = [p.numel() for p in plain.parameters()]
            for parameter, part in zip(plain.parameters(), drawn.split(sizes), strict=True):
                parameter.grad += part.view_as(parameter) * grid.step / 40
            base.step()

        for mine, theirs in zip(ours.base.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


class TestSpending:
    def test_a_spend_for_every_step_and_the_same_epsilon_as_the_core(
        self, build, train, counting_gate
    ):
        gate = counting_gate(dm.Odometer(delta=1e-6))
        parts = build(gate)
        recorded = []
        for epoch in range(8):
            parts.engine.noise_multiplier = 1.5 + 0.1 * epoch
            parts.engine.batch_size = 20 + 5 * epoch
            before = parts.engine.steps
            train(parts)
            recorded.append((20 + 5 * epoch, 1.5 + 0.1 * epoch, parts.engine.steps - before))

        core = dm.Odometer(delta=1e-6)
        for size, noise, steps in recorded:
            for _ in range(steps):
                core.spend(dm.SampledGaussian(size / 200, noise))
        assert parts.engine.epsilon == core.epsilon
        assert len(gate.spends) == parts.engine.steps == parts.engine.spends
        assert [n for _, _, n in recorded] == [math.ceil(200 / size) for size, _, _ in recorded]

    def test_the_spend_comes_before_any_record_is_read(self, build, points, classifier):
        events = []

        class Watched(torch.utils.data.Dataset):
            inner = points()

            def __len__(self):
                return len(self.inner)

            def __getitem__(self, index):
                events.append("read")
                return self.inner[index]

        class Gate:
            epsilon = 0.0

            def admits(self, cost, count=1):
                return True

            def spend(self, cost, count=1):
                events.append("spend")

        parts = build(Gate(), Watched())
        assert events == []
        next(iter(parts.loader))
        assert events[0] == "spend"
        assert events.count("spend") == 1

    def test_refusal_ends_the_loader_and_changes_nothing(self, build, train, snapshot):
        parts = build(dm.Filter(epsilon=4.0, delta=1e-6))
        train(parts, epochs=50)
        assert parts.engine.exhausted
        assert 0 < parts.engine.steps < 250
        assert parts.engine.epsilon <= 4.0
        assert not parts.gate.admits(parts.engine.step_cost())
        before, spent = snapshot(parts), parts.gate.epsilon
        assert train(parts, epochs=3) == 0
        assert same(before, snapshot(parts))
        assert parts.gate.epsilon == spent

    def test_strict_raises_instead(self, build, train, snapshot):
        parts = build(dm.Filter(epsilon=3.0, delta=1e-6), strict=True)
        with pytest.raises(dm.BudgetExceeded):
            train(parts, epochs=1000)
        before = snapshot(parts)
        with pytest.raises(dm.BudgetExceeded):
            train(parts)
        assert same(before, snapshot(parts))

    def test_a_cheaper_step_may_follow_a_refusal(self, build, train):
        parts = build(dm.Filter(epsilon=3.0, delta=1e-6))
        train(parts, epochs=1000)
        steps = parts.engine.steps
        parts.engine.noise_multiplier = 50.0
        train(parts)
        assert parts.engine.steps == steps + 5
        assert not parts.engine.exhausted

    def test_a_change_within_a_step_waits_for_the_next(self, build, counting_gate):
        gate = counting_gate(dm.Odometer(delta=1e-6))
        parts = build(gate, physical_batch_size=10)
        for number, (x, y) in enumerate(parts.loader):
            if number == 0:
                parts.engine.noise_multiplier, parts.engine.batch_size = 3.0, 50
            parts.optimizer.zero_grad()
            cross_entropy(parts.model(x), y).backward()
            parts.optimizer.step()
        costs = [cost for cost, _ in gate.spends]
        assert costs[0] == dm.SampledGaussian(40 / 200, 2.0)
        assert set(costs[1:]) == {dm.SampledGaussian(50 / 200, 3.0)}


class TestTickets:
    def test_no_step_without_a_batch(self, build, snapshot):
        parts = build()
        before = snapshot(parts)
        with pytest.raises(TicketError, match="drawn from the loader"):
            parts.optimizer.step()
        assert same(before, snapshot(parts))

    def test_no_second_step_on_one_batch(self, build, snapshot):
        parts = build()
        x, y = next(iter(parts.loader))
        cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()
        before = snapshot(parts)
        parts.optimizer.zero_grad()
        cross_entropy(parts.model(x), y).backward()
        with pytest.raises(TicketError, match="without an unused one"):
            parts.optimizer.step()
        assert same(before, snapshot(parts))

    def test_the_optimizer_underneath_is_guarded(self, build, snapshot):
        parts = build()
        x, y = next(iter(parts.loader))
        cross_entropy(parts.model(x), y).backward()
        before = snapshot(parts)
        with pytest.raises(TicketError, match="no noise"):
            parts.plain.step()
        assert same(before, snapshot(parts))

    def test_skipping_a_batch_is_refused(self, build):
        parts = build()
        with pytest.raises(TicketError, match="skipped"):
            for _ in parts.loader:
                pass
        assert parts.engine.spends == 1

    def test_skipping_a_physical_batch_is_refused(self, build):
        parts = build(physical_batch_size=5)
        with pytest.raises(TicketError, match="skipped"):
            for _ in parts.loader:
                pass
        assert parts.engine.steps == 0

    def test_two_loops_at_once_are_refused(self, build):
        parts = build(physical_batch_size=5)
        first, second = iter(parts.loader), iter(parts.loader)
        next(first)
        next(second)
        with pytest.raises(TicketError, match="only one"):
            next(first)

    def test_records_counted_twice_are_refused(self, build):
        parts = build()
        x, y = next(iter(parts.loader))
        cross_entropy(parts.model(torch.cat([x, x])), torch.cat([y, y])).backward()
        with pytest.raises(TicketError, match="got gradients of"):
            parts.optimizer.step()

    def test_a_second_backward_cannot_count_records_twice(self, build, snapshot):
        parts = build()
        loss_fn = parts.engine.private_loss(nn.CrossEntropyLoss())
        x, y = next(iter(parts.loader))
        before = snapshot(parts)
        for _ in range(2):
            loss_fn(parts.model(x), y).backward()
        with pytest.raises(TicketError, match="must be run once"):
            parts.optimizer.step()
        assert same(before, snapshot(parts))

    def test_backward_must_have_been_called(self, build):
        parts = build()
        next(iter(parts.loader))
        with pytest.raises(TicketError, match="got gradients of 0"):
            parts.optimizer.step()


class TestCopies:
    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_an_optimizer_is_not_copied_and_others_go_on(self, build, train, copied):
        parts, other = build(), build()
        with pytest.raises(TypeError, match="must not be copied"):
            copied(parts.optimizer)
        for each in (parts, other):
            assert train(each) == 5
            assert each.engine.steps == 5


class TestBatches:
    def test_physical_batches_are_bounded_and_change_nothing(self, build, train, snapshot):
        whole, split = build(seed=3), build(seed=3, physical_batch_size=9)
        sizes = []
        loss = lambda out, y: sizes.append(len(y)) or cross_entropy(out, y)  # noqa: E731
        train(whole, epochs=2)
        train(split, epochs=2, loss_fn=loss)
        assert max(sizes) <= 9
        for one, other in zip(snapshot(whole)[0], snapshot(split)[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("order", ["zero first", "zero between", "zero last"])
    def test_any_order_of_zero_grad(self, build, order):
        parts = build(physical_batch_size=9)
        for x, y in parts.loader:
            if order == "zero first":
                parts.optimizer.zero_grad()
            loss = cross_entropy(parts.model(x), y)
            if order == "zero between":
                parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            if order == "zero last":
                parts.optimizer.zero_grad()
        reference = build()
        for x, y in reference.loader:
            reference.optimizer.zero_grad()
            cross_entropy(reference.model(x), y).backward()
            reference.optimizer.step()
        for one, other in zip(parts.base.parameters(), reference.base.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
    @pytest.mark.parametrize("physical", [None, 16])
    def test_a_record_without_a_finite_gradient_adds_nothing(
        self, build, points, train, physical, bad
    ):
        """Its influence stays bounded, and every other record keeps its own."""
        sums = []
        for spoilt in (True, False):
            dataset = points()
            if spoilt:
                dataset.tensors[0][17] = bad
            options = {"batch_size": 200, "noise_multiplier": 1e-6}
            gate = dm.Odometer(delta=1e-6)
            parts = build(gate, dataset, physical_batch_size=physical, **options)
            train(parts, loss_fn=parts.engine.private_loss(nn.CrossEntropyLoss()))
            assert parts.engine.steps == 1
            grads = [p.grad.flatten() for p in parts.base.parameters()]
            sums.append(torch.cat(grads) * 200)
        assert sums[0].isfinite().all()
        # With and without the record's own clipped gradient: at most 1 each.
        assert (sums[0] - sums[1]).norm() <= 2.0 + 1e-4

    def test_an_empty_batch_still_adds_noise(self, build, snapshot):
        parts = build(batch_size=1, records=10**9, noise_multiplier=1.0)
        before = snapshot(parts)
        stream = iter(parts.loader)
        # The rate is one in a billion: the loader takes noise-only steps until a record comes.
        parts.engine.after_step(lambda: parts.engine.steps == 3 and parts.engine.stop("enough"))
        assert list(stream) == []
        assert parts.engine.steps == parts.engine.spends == 3
        assert not same(before, snapshot(parts))
        assert parts.engine.stopped == "enough"

    def test_a_dataset_of_one_record(self, build, train):
        parts = build(dm.Odometer(delta=1e-5), TensorDataset(torch.ones(1, 6), torch.tensor([1])),
                      batch_size=1)  # fmt: skip
        assert train(parts, epochs=3) == 3
        assert parts.engine.steps == 3
        assert parts.engine.sample_rate == 1.0

    def test_epochs_draw_each_record_once_on_average(self, build):
        parts = build(batch_size=60)
        assert len(parts.loader) == parts.engine.steps_per_epoch == 4

    def test_dictionaries_and_own_collation(self, build, points):
        inner = points()
        data = [{"input": x, "label": y} for x, y in inner]
        parts = build(dataset=data)
        batch = next(iter(parts.loader))
        assert set(batch) == {"input", "label"}
        parts = build(dataset=data, collate_fn=lambda records: len(records))
        assert next(iter(parts.loader)) > 0

    def test_a_seed_repeats_the_run(self, build, train, snapshot):
        one, two, other = build(seed=5), build(seed=5), build(seed=6)
        for parts in (one, two, other):
            train(parts, epochs=2)
        assert same(snapshot(one), snapshot(two))
        assert not same(snapshot(one), snapshot(other))

    def test_learning_rate_schedulers_work(self, build, train):
        parts = build()
        scheduler = torch.optim.lr_scheduler.StepLR(parts.optimizer, step_size=1, gamma=0.5)
        train(parts)
        scheduler.step()
        assert parts.plain.param_groups[0]["lr"] == 0.05


class TestRandomness:
    def test_the_guarantee_says_when_a_seed_makes_noise_predictable(self, build):
        assert "predictable" in str(build(seed=1).engine.guarantee())
        assert "predictable" not in str(build(seed=None).engine.guarantee())

    def test_runs_without_a_seed_differ(self, build, train, snapshot):
        one, two = build(seed=None), build(seed=None)
        train(one)
        train(two)
        assert not same(snapshot(one), snapshot(two))

    def test_the_global_generator_neither_steers_nor_is_touched(self, build, train, snapshot):
        runs = []
        for _ in range(2):
            parts = build(seed=None)
            torch.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            state = torch.get_rng_state()
            train(parts)
            assert torch.equal(state, torch.get_rng_state())
            runs.append(snapshot(parts))
        assert not same(*runs)

    def test_without_a_seed_no_randomness_is_saved(self, build):
        state = build(seed=None).engine.state_dict()
        assert state["noise"] is None
        assert state["sampler"] is None


class TestArguments:
    @pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None, True])
    @pytest.mark.parametrize("name", ["noise_multiplier", "max_grad_norm"])
    def test_hostile_numbers(self, build, name, value):
        with pytest.raises((ValueError, TypeError), match=f"{name} must"):
            build(**{name: value})

    @pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, 201])
    def test_batch_size(self, build, value):
        with pytest.raises((ValueError, TypeError), match="batch_size must"):
            build(batch_size=value)
        parts = build()
        with pytest.raises((ValueError, TypeError), match="batch_size must"):
            parts.engine.batch_size = value
        assert parts.engine.batch_size == 40

    @pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
    def test_noise_set_later(self, build, value):
        parts = build()
        with pytest.raises(ValueError, match="noise_multiplier must"):
            parts.engine.noise_multiplier = value
        assert parts.engine.noise_multiplier == 2.0

    @pytest.mark.parametrize("value", [-1, 1.5, True, "3"])
    def test_seed(self, value):
        with pytest.raises(ValueError, match="seed must"):
            PrivateEngine(dm.Odometer(delta=1e-6), seed=value)

    def test_gate(self):
        with pytest.raises(TypeError, match="gate must"):
            PrivateEngine(8.0)

    def test_dataset(self, build):
        with pytest.raises(ValueError, match="at least one record"):
            build(dataset=TensorDataset(torch.zeros(0, 6)))
        with pytest.raises(TypeError, match="map-style"):
            build(dataset=iter([1, 2]))

    def test_a_second_model_needs_its_own_engine(self, build, classifier, points):
        parts, model = build(), classifier()
        with pytest.raises(ValueError, match="one model"):
            parts.engine.make_private(
                model, torch.optim.SGD(model.parameters(), lr=0.1), points(),
                noise_multiplier=1.0, max_grad_norm=1.0, batch_size=10)  # fmt: skip

    def test_reading_before_make_private(self):
        engine = PrivateEngine(dm.Odometer(delta=1e-6))
        assert engine.epsilon == 0.0
        with pytest.raises(ValueError, match="make_private first"):
            _ = engine.noise_multiplier

    def test_engine_is_a_gate(self, build):
        engine = build().engine
        assert isinstance(engine, dm.Gate)
        engine.spend(dm.Gaussian(100.0))
        assert engine.spends == 1

        class Unwritten(dm.Gaussian):
            """A cost that a checkpoint could not hold."""

        with pytest.raises(TypeError, match="to be written down"):
            engine.spend(Unwritten(100.0))
        assert engine.spends == 1
        assert dataclasses.is_dataclass(engine.guarantee())


class TestAGateOfItsOwn:
    """An engine that is given (epsilon, delta) has one budget, whoever holds its gate."""

    @staticmethod
    def trained(engine):
        model, data = nn.Linear(3, 1), TensorDataset(torch.randn(64, 3), torch.randn(64, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        settings = {"noise_multiplier": 4.0, "max_grad_norm": 1.0, "batch_size": 16}
        engine.make_private(model, optimizer, data, **settings)

    def test_spends_on_it_before_training_count(self):
        engine = PrivateEngine((2.0, 1e-5))
        gate = engine.gate
        gate.spend(dm.Gaussian(4.0), 3)
        spent = engine.epsilon
        self.trained(engine)
        assert engine.gate is gate
        assert engine.epsilon == spent > 1

    def test_two_engines_over_it_share_it(self):
        one = PrivateEngine((2.0, 1e-5))
        two = PrivateEngine(one.gate)
        self.trained(one)
        self.trained(two)
        assert one.gate is two.gate

    def test_it_has_a_menu_if_nobody_held_it(self):
        engine = PrivateEngine((2.0, 1e-5))
        self.trained(engine)
        assert engine.gate.menu is not None
