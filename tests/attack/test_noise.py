"""Taking the noise off: it works against torch's generator, and not against ours."""

import multiprocessing

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import dosimeter as dm
from dosimeter.attack import gf2, noise, steps, twister
from dosimeter.cli.app import app
from dosimeter.training import PrivateEngine

torch.set_num_threads(1)


# -- equations -------------------------------------------------------------------------------


def packed(matrix, right):
    unknowns = matrix.shape[1]
    bits = np.zeros((len(matrix), 64 * gf2.width(unknowns)), np.uint8)
    bits[:, :unknowns], bits[:, unknowns] = matrix, right
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


@pytest.mark.parametrize("unknowns", [1, 7, 8, 63, 64, 65, 200])
@pytest.mark.parametrize("density", [0.5, 0.02])
def test_equations_are_solved(unknowns, density):
    rng = np.random.default_rng(unknowns)
    matrix = (rng.random((2 * unknowns + 40, unknowns)) < density).astype(np.uint8)
    truth = rng.integers(0, 2, unknowns, dtype=np.uint8)
    solution = gf2.solve(packed(matrix, matrix @ truth % 2), unknowns)
    assert (matrix @ solution.values % 2 == matrix @ truth % 2).all()
    assert solution.contradictions == 0
    assert solution.checks == len(matrix) - solution.rank
    assert solution.rank == rank_of(matrix)


def rank_of(matrix):
    rows, rank = [int("".join(map(str, row)), 2) for row in matrix], 0
    while rows:
        pivot = rows.pop()
        if pivot:
            rank += 1
            low = pivot & -pivot
            rows = [row ^ pivot if row & low else row for row in rows]
    return rank


def test_contradictions_are_counted():
    matrix = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 0, 1]], np.uint8)
    solution = gf2.solve(packed(matrix, [1, 0, 0, 1]), 3)
    assert (solution.rank, solution.checks, solution.contradictions) == (2, 2, 1)


# -- the twister -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "first", "last"),
    [(0xFFFFFFFF, 0, 700), (0xFFFFFFFF, 1700, 2400), (0x00FFFFE0, 1500, 3300)],
)
def test_the_state_gives_all_outputs_before_and_after(mask, first, last):
    """numpy's own twister says what they are."""
    truth = np.random.MT19937(11).random_raw(5000).astype(np.uint32)
    masks = np.zeros(5000, np.uint32)
    masks[first:last] = mask
    values = np.where(masks > 0, truth, 0).astype(np.uint32)
    found = twister.recover(values, masks)
    assert (found.rank, found.contradictions) == (found.unknowns, 0)
    assert (found.outputs(5000) == truth).all()


def test_too_few_bits_are_refused():
    masks = np.full(700, 0xFF, np.uint32)
    with pytest.raises(ValueError, match=r"at least 19968 bits, got 5600\. Look at more"):
        twister.recover(np.zeros(700, np.uint32), masks)


# -- the attack ------------------------------------------------------------------------------


def test_torchs_noise_is_taken_off_one_step():
    step = steps.plain_step()
    attempt = noise.attack(step.view)
    assert attempt.succeeded
    assert attempt.correlation > 1 - 1e-9
    assert attempt.recovered.contradictions == 0
    # Released, the secret is lost in noise; without the noise it is there to five digits.
    assert step.error(np.zeros_like(attempt.noise)) > 10
    assert step.error(attempt.noise) < 1e-4
    assert step.words_told(attempt.noise) == 1.0


def test_our_noise_stays_on():
    """The same step of the engine: half of the checks fail, and nothing is predicted."""
    step = steps.engine_step()
    attempt = noise.attack(step.view)
    assert not attempt.succeeded
    # 512 coordinates held out: 6 deviations are 0.27.
    assert abs(attempt.correlation) < 0.27
    found = attempt.recovered
    share = found.contradictions / found.checks
    assert abs(share - 0.5) < 6 * 0.5 / np.sqrt(found.checks)
    assert step.error(attempt.noise) > step.error(np.zeros_like(attempt.noise))


@pytest.mark.slow
@pytest.mark.parametrize("draw", [torch.normal, None], ids=["torch", "ours"])
def test_images_with_a_black_margin(draw):
    """A layer on 28 x 28 pixels, of which the four at each side are always black."""
    mask = np.ones((28, 28), bool)
    mask[4:24, 4:24] = False
    silent = np.tile(mask.flatten(), 64)
    before = torch.nn.Linear(784, 64).weight.detach().flatten()
    if draw is None:
        released = first_noises(1, size=len(before))[0]
    else:
        released = draw(0.0, 1.0, before.shape)
    secret = torch.randn(len(before)) * ~torch.from_numpy(silent)
    after = before - 0.03 * (released + secret)
    held_out = silent & (np.arange(len(silent)) >= 45_000)
    view = noise.View(before.numpy(), after.numpy(), 0.03, silent, held_out)
    attempt = noise.attack(view)
    assert attempt.succeeded == (draw is not None)
    if draw is None:
        assert abs(attempt.correlation) < 0.1
    else:
        assert np.abs(attempt.noise - released.numpy()).max() < 1e-4


@pytest.mark.slow
def test_the_command_shows_both():
    done = CliRunner().invoke(app, ["attack", "noise"])
    assert done.exit_code == 0, done.output
    torchs, ours = done.output.split("A private step with the noise of Dosimeter")
    assert "BROKEN" in torchs
    assert "BROKEN" not in ours
    assert "stands" in ours


# -- no state to share -----------------------------------------------------------------------


def first_noises(count, size=4096, children=0):
    """The noise of some steps of one engine; children fork before the first of them."""
    model = nn.Embedding(size, 1)
    data = TensorDataset(torch.zeros(8, 1, dtype=torch.long), torch.zeros(8))
    engine = PrivateEngine(dm.Odometer(1e-5))
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        data,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        batch_size=8,
    )

    def run():
        seen = []
        engine.after_step(lambda: seen.append(8 * model.weight.grad.flatten().clone()))
        while len(seen) < count:
            for x, _ in loader:
                optimizer.zero_grad()
                (0 * private(x).flatten(1).sum(dim=1)).mean().backward()
                optimizer.step()
        return seen[:count]

    rows = []
    fork = multiprocessing.get_context("fork")
    for _ in range(children):
        ours, theirs = fork.Pipe()
        child = fork.Process(target=lambda end: end.send([r.numpy() for r in run()]), args=[theirs])
        child.start()
        rows += [torch.from_numpy(row) for row in ours.recv()]
        child.join()
    return rows + run()


def test_noises_share_nothing_after_a_fork_either():
    """Nine noises of 4096 numbers, any two of them; wrong one time in 10,000."""
    rows = torch.stack(first_noises(3, children=2)).double().numpy()
    assert len(rows) == 9
    together = np.corrcoef(rows)[np.triu_indices(9, 1)] * np.sqrt(rows.shape[1])
    assert np.abs(together).max() < 4.7
    assert len(np.unique(rows.round(12))) > 0.99 * rows.size
