"""The noise and the samples are what the accounting believes.

Every test draws from the operating system's entropy, without a seed, and fails for a correct
engine with a probability of at most 1e-6, stated as ALARM and shared among its comparisons.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm

ALARM = 1e-6


def released_noise(build, *, noise_multiplier, max_grad_norm, steps, size=4000):
    """The noise on the sum, in units of its claimed deviation, one row a step."""
    model = nn.Linear(size, 1, bias=False)
    parts = build(
        dm.Odometer(delta=1e-6),
        TensorDataset(torch.zeros(4, size), torch.zeros(4)),
        model,
        seed=None,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        batch_size=2,
        physical_batch_size=1,
    )
    rows = []
    parts.engine.after_step(
        lambda: rows.append(model.weight.grad.flatten().double() * parts.engine.batch_size)
    )
    while len(rows) < steps:
        for x, _ in parts.loader:
            parts.optimizer.zero_grad()
            parts.model(x).mean().backward()
            parts.optimizer.step()
    return torch.stack(rows[:steps]).numpy() / (noise_multiplier * max_grad_norm)


@pytest.mark.parametrize(("noise", "norm"), [(1.0, 1.0), (0.7, 3.0)])
def test_noise_is_gaussian_of_the_right_size(build, noise, norm):
    rows = released_noise(build, noise_multiplier=noise, max_grad_norm=norm, steps=50)
    values, share = rows.ravel(), ALARM / 4
    assert abs(values.mean()) * math.sqrt(values.size) < stats.norm.isf(share / 2)
    low, high = stats.chi2.ppf([share / 2, 1 - share / 2], values.size) / values.size
    assert low < (values**2).mean() < high
    assert stats.kstest(values, "norm").pvalue > share
    # Noise of one step says nothing about the next: the sum of products is near normal.
    products = (rows[1:] * rows[:-1]).sum() / math.sqrt(rows[1:].size)
    assert abs(products) < stats.norm.isf(share / 2)


def test_the_first_noise_differs_between_engines(build):
    """32 bits of seed would repeat; here not even one value in 100 starts is shared."""
    starts = [
        released_noise(build, noise_multiplier=1.0, max_grad_norm=1.0, steps=1, size=4)[0]
        for _ in range(100)
    ]
    assert len({tuple(start) for start in starts}) == 100


RECORDS, DRAWS = 500, 400


def memberships(build, sizes):
    """Which records were in which batch, as the loop saw them, with each batch size in turn."""
    ids = torch.arange(RECORDS, dtype=torch.float32).reshape(-1, 1)
    model = nn.Linear(1, 1, bias=False)
    parts = build(
        dm.Odometer(delta=1e-6),
        TensorDataset(ids, ids),
        model,
        seed=None,
        batch_size=sizes[0],
        physical_batch_size=64,
        noise_multiplier=10.0,
    )
    rows = [np.zeros(RECORDS, dtype=bool)]

    def turn():
        rows.append(np.zeros(RECORDS, dtype=bool))
        parts.engine.batch_size = sizes[(len(rows) - 1) % len(sizes)]

    parts.engine.after_step(turn)
    while len(rows) <= DRAWS:
        for x, _ in parts.loader:
            rows[-1][x.flatten().long().numpy()] = True
            parts.optimizer.zero_grad()
            parts.model(x).mean().backward()
            parts.optimizer.step()
            if len(rows) > DRAWS:
                break
    return np.array(rows[:DRAWS])


@pytest.mark.parametrize("sizes", [(50,), (20, 100)])
def test_poisson_sampling(build, sizes):
    members = memberships(build, sizes)
    rates = np.array([sizes[t % len(sizes)] / RECORDS for t in range(DRAWS)])
    share = ALARM / 5

    # Inclusion: all records together, then each one alone.
    for index, size in enumerate(sizes):
        drawn = members[index :: len(sizes)]
        low, high = stats.binom.ppf([share / 4, 1 - share / 4], drawn.size, size / RECORDS)
        assert low <= drawn.sum() <= high
    deviation = math.sqrt((rates * (1 - rates)).sum())
    scores = (members.sum(axis=0) - rates.sum()) / deviation
    # By Chernoff 8 deviations have a probability below 1e-10 for one record, so 1e-7 for all.
    assert np.abs(scores).max() < 8

    # Independence of records: batch sizes have the variance of independent coins.
    variances = RECORDS * rates * (1 - rates)
    spread = (((members.sum(axis=1) - RECORDS * rates) ** 2) / variances).sum()
    # Sums of hundreds of coins are near normal; the fourth moment is widened by a tenth.
    low, high = stats.chi2.ppf([share / 2, 1 - share / 2], DRAWS)
    assert low / 1.1 < spread < high * 1.1

    # Independence of steps: products of centred memberships of one record in two steps.
    centred = (members - rates[:, None]) / np.sqrt(rates * (1 - rates))[:, None]
    for lag in (1, 2):
        pairs = centred[lag:] * centred[:-lag]
        assert abs(pairs.sum()) / math.sqrt(pairs.size) < stats.norm.isf(share / 4)
