"""Randomness comes from keys of the operating system, is never repeated, and is never kept."""

import multiprocessing
import os
import pickle
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import PrivateEngine
from dosimeter.training.entropy import (
    Keystream,
    PoissonSampler,
    SeededEntropy,
    SystemEntropy,
)


class Unread:
    """Records that say when one is read."""

    def __init__(self):
        self.reads = 0

    def __len__(self):
        return 200

    def __getitem__(self, index):
        self.reads += 1
        return torch.zeros(6), 0


class TestKeystream:
    def test_it_is_aes_256_in_counter_mode(self):
        """The blocks 0, 1 and 2 under a zero key, as in the GCM specification's cases 13 and 14."""
        known = (
            "dc95c078a2408989ad48a21492842087"
            "530f8afbc74536b9a963b4f1c4cb738b"
            "cea7403d4d606b6e074ec5d3baf39d18"
        )
        assert Keystream(bytes(32)).words(6).tobytes().hex() == known

    @pytest.mark.parametrize("sizes", [(3, 70_000, 1), (65_536, 65_536), (200_000,)])
    def test_parts_go_on_where_the_last_one_ended(self, sizes):
        whole = Keystream(b"k" * 32).words(sum(sizes))
        stream = Keystream(b"k" * 32)
        assert np.array_equal(np.concatenate([stream.words(size) for size in sizes]), whole)
        assert len(set(whole.tolist())) == len(whole)

    def test_what_it_overwrites_does_not_matter(self):
        full = np.full(9, 7, dtype=np.int64)
        Keystream(b"k" * 32).fill(full)
        assert np.array_equal(full.view(np.uint64), Keystream(b"k" * 32).words(9))

    def test_it_cannot_be_written_down(self):
        with pytest.raises(TypeError):
            pickle.dumps(SystemEntropy().keystream())

    @pytest.mark.parametrize("size", [0, 16, 31, 33])
    def test_keys_of_another_length_are_refused(self, size):
        with pytest.raises(ValueError, match="key must have 32 bytes"):
            Keystream(bytes(size))


class TestSources:
    def test_no_keystream_comes_twice(self):
        entropy, found = SystemEntropy(), []
        threads = [
            threading.Thread(
                target=lambda: found.extend(entropy.keystream().words(1)[0] for _ in range(100))
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 800
        assert vars(entropy) == {}

    def test_a_seed_repeats_and_tells_purposes_and_ranks_apart(self):
        streams = [("noise", 1), ("noise", 2), ("batches", 1), ("batches", 1, 0), ("batches", 1, 1)]
        first = [SeededEntropy(*names).keystream().words(4).tolist() for names in streams]
        again = [SeededEntropy(*names).keystream().words(4).tolist() for names in streams]
        assert first == again
        assert len({tuple(words) for words in first}) == len(streams)
        entropy = SeededEntropy("noise", 1)
        assert entropy.keystream().words(4).tolist() != entropy.keystream().words(4).tolist()

    def test_a_state_is_only_for_its_own_seed(self):
        one, other = SeededEntropy("batches", 1, 0), SeededEntropy("batches", 1, 1)
        one.keystream()
        before = other.state()
        other.restore(one.state())
        assert other.state() == before
        with pytest.raises(dm.StateError, match="drawn must"):
            one.restore({**one.state(), "drawn": -1})

    @pytest.mark.parametrize("rate", [1.0, 0.5, 1e-3, 2.0**-64, 1e-300])
    def test_rates_at_both_ends(self, rate):
        drawn = PoissonSampler(100_000, SystemEntropy()).draw(rate)
        # Eight deviations: a false alarm is rarer than one in a million by Chernoff's bound.
        expected = 100_000 * rate
        assert abs(len(drawn) - expected) <= 8 * (expected * (1 - rate)) ** 0.5 + 8 * (rate < 1)
        assert np.array_equal(drawn, np.unique(drawn))


class TestRefusals:
    @pytest.mark.parametrize("error", [NotImplementedError("none"), OSError("closed")])
    def test_no_source_of_entropy(self, build, counting_gate, monkeypatch, error):
        def fails(_size):
            raise error

        dataset, gate = Unread(), counting_gate(dm.Odometer(delta=1e-6))
        monkeypatch.setattr(os, "urandom", fails)
        with pytest.raises(RuntimeError, match="operating system must give random bytes"):
            build(gate, dataset, seed=None)
        assert (dataset.reads, gate.spends) == (0, [])

    def test_a_source_that_fails_later(self, build, monkeypatch):
        dataset = Unread()
        parts = build(dataset=dataset, seed=None)

        def fails(_size):
            raise OSError("closed")

        monkeypatch.setattr(os, "urandom", fails)
        with pytest.raises(RuntimeError, match="random bytes"):
            next(iter(parts.loader))
        assert (dataset.reads, parts.engine.steps, parts.engine.spends) == (0, 0, 1)

    @pytest.mark.parametrize("seed", [None, 1])
    def test_no_cryptography(self, build, classifier, counting_gate, monkeypatch, seed):
        dataset, gate = Unread(), counting_gate(dm.Odometer(delta=1e-6))
        model = classifier()
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
        with pytest.raises(ImportError, match=r"cryptography must be installed.*'\.\[torch\]'"):
            build(gate, dataset, model, seed=seed)
        assert (dataset.reads, gate.spends) == (0, [])
        monkeypatch.undo()
        build(gate, dataset, model, seed=seed)  # nothing was put around the model

    def test_a_grid_that_overflows(self, build, counting_gate):
        dataset, gate = Unread(), counting_gate(dm.Odometer(delta=1e-6))
        with pytest.raises(ValueError, match="noise_multiplier must be large enough"):
            build(gate, dataset, noise_multiplier=1e-9)
        parts = build(gate, dataset)
        parts.engine.noise_multiplier = 1e-9
        with pytest.raises(ValueError, match="noise_multiplier must be large enough"):
            next(iter(parts.loader))
        parts.engine.noise_multiplier = 1e12
        with pytest.raises(ValueError, match="noise_multiplier must be small enough"):
            next(iter(parts.loader))
        assert (dataset.reads, gate.spends) == (0, [])


def noise_of_a_step(parts, released):
    """What the next step released, on data whose gradient is zero."""
    for x, _ in parts.loader:
        parts.optimizer.zero_grad()
        parts.model(x).mean().backward()
        parts.optimizer.step()
        break
    return released[-1]


@pytest.fixture
def bare(build):
    """An engine on zeros, without a seed, and the list of what it releases."""

    def make():
        model, released = nn.Linear(500, 1, bias=False), []
        data = TensorDataset(torch.zeros(4, 500), torch.zeros(4))
        parts = build(dm.Odometer(delta=1e-6), data, model, seed=None, batch_size=4)
        parts.engine.after_step(lambda: released.append(model.weight.grad.flatten().tolist()))
        return parts, released

    return make


def apart(left, right):
    """Whether two releases of 500 numbers are not the same noise.

    On a grid of millions of points two of them meet by chance once in a hundred times, five once
    in 10**13.
    """
    return len(set(left) & set(right)) < 5


@pytest.mark.parametrize("steps", [0, 1])
def test_after_a_fork_parent_and_child_share_no_noise(bare, steps):
    """A child that kept its parent's key would draw the very same numbers."""
    parts, released = bare()
    for _ in range(steps):
        noise_of_a_step(parts, released)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, repr(noise_of_a_step(parts, released)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    mine = noise_of_a_step(parts, released)
    assert theirs.startswith("[")
    assert apart(mine, [float(number) for number in theirs.strip("[]").split(",")])


def test_a_resumed_run_never_repeats_noise(bare):
    first, released = bare()
    noise_of_a_step(first, released)
    state = first.engine.state_dict()
    going_on = noise_of_a_step(first, released)
    for _ in range(2):
        second, again = bare()
        second.engine.load_state_dict(state)
        assert apart(noise_of_a_step(second, again), going_on)
    first.engine.load_state_dict(state)
    assert apart(noise_of_a_step(first, released), going_on)


def test_a_checkpoint_holds_no_randomness(build, train):
    parts = build(seed=None)
    train(parts)
    state = parts.engine.state_dict()
    assert state["noise"] is state["sampler"] is None


def test_batches_of_two_engines_differ(build):
    def seen():
        parts, batches = build(seed=None), []
        for x, y in parts.loader:
            batches.append(x.sum().item())
            parts.optimizer.zero_grad()
            cross_entropy(parts.model(x), y).backward()
            parts.optimizer.step()
        return batches

    assert not set(seen()) & set(seen())


def noises_of_parent_and_children(steps, children):
    """The noise of some steps of one engine, and of children that fork before the first of them."""
    model = nn.Embedding(4096, 1)
    private, optimizer, loader = PrivateEngine(dm.Odometer(1e-5)).make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        TensorDataset(torch.zeros(8, 1, dtype=torch.long), torch.zeros(8)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        batch_size=8,
    )

    def run():
        seen = []
        while len(seen) < steps:
            for x, _ in loader:
                optimizer.zero_grad()
                (0 * private(x).flatten(1).sum(dim=1)).mean().backward()
                optimizer.step()
                seen.append(8 * model.weight.grad.flatten().numpy())
        return seen[:steps]

    rows = []
    fork = multiprocessing.get_context("fork")
    for _ in range(children):
        ours, theirs = fork.Pipe()
        child = fork.Process(target=lambda end: end.send(run()), args=[theirs])
        child.start()
        rows += ours.recv()
        child.join()
    return np.array(rows + run(), np.float64)


def test_noises_are_uncorrelated_after_a_fork_too():
    """Nine noises of 4096 numbers, any two of them; wrong one time in 10,000."""
    rows = noises_of_parent_and_children(3, children=2)
    assert len(rows) == 9
    together = np.corrcoef(rows)[np.triu_indices(9, 1)] * np.sqrt(rows.shape[1])
    assert np.abs(together).max() < 4.7
    assert len(np.unique(rows.round(12))) > 0.99 * rows.size
