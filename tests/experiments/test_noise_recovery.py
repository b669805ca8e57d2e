"""Taking the noise off: it works against torch's generator, and not against ours."""

import numpy as np
import pytest
import torch

from dosimeter.training.entropy import SystemEntropy
from dosimeter.training.gaussian import RoundedNormals
from experiments.noise_recovery import __main__ as command
from experiments.noise_recovery import gf2, mt19937, noise, steps

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
    found = mt19937.recover(values, masks)
    assert (found.rank, found.contradictions) == (found.unknowns, 0)
    assert (found.outputs(5000) == truth).all()


def test_too_few_bits_are_refused():
    masks = np.full(700, 0xFF, np.uint32)
    with pytest.raises(ValueError, match=r"at least 19968 bits, got 5600\. Look at more"):
        mt19937.recover(np.zeros(700, np.uint32), masks)


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
        count, grid = len(before), 2.0**20
        drawn = RoundedNormals(count).draw(SystemEntropy().keystream(), grid, count)
        released = (drawn / grid).float()
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
def test_the_command_shows_both(capsys):
    command.main()
    torchs, ours = capsys.readouterr().out.split("A private step with the noise of Dosimeter")
    assert "BROKEN" in torchs
    assert "BROKEN" not in ours
    assert "stands" in ours
