"""The noise is the rounded normal to the last bit, and sums meet it on a grid within their bound.

Statistical tests draw from the operating system and fail for a correct sampler with a
probability of at most ALARM, shared among their comparisons.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.decisions import StepSettings
from dosimeter.training import gaussian, release
from dosimeter.training.entropy import SystemEntropy
from dosimeter.training.gaussian import RoundedNormals
from dosimeter.training.grid import ARITHMETIC, ROUNDING, Grid
from dosimeter.training.group import Group

ALARM = 1e-6
SCALE = 0.97 * 2.0**23


class Fixed:
    """A keystream with given bits, whose further bits are all zeros or all ones."""

    def __init__(self, bits, more):
        self.bits, self.more, self.asked = bits, more, 0

    def fill(self, words):
        words[:] = self.bits

    def words(self, count):
        self.asked += 1
        return np.full(count, self.more, dtype=np.uint64)


def exact(first, second, more, scale=SCALE):
    """Both draws of a pair, with its further bits, in 100 digits."""
    with mpmath.workdps(100):
        tail = (mpmath.mpf(more * (2**64 + 1)) + 0.5) / 2**128
        uniform = abs(mpmath.mpf(first) + tail) / 2**63
        angle = mpmath.pi * (mpmath.mpf(second) + tail) / 2**63
        radius = scale * mpmath.sqrt(-2 * mpmath.log(uniform))
        values = radius * mpmath.cos(angle), radius * mpmath.sin(angle)
        return [int(mpmath.floor(value + 0.5)) for value in values]


ONES = 2**64 - 1


class TestExactness:
    def test_random_bits(self):
        bits = np.array(SystemEntropy().keystream().words(2000)).view(np.int64).reshape(2, -1)
        drawn = RoundedNormals(2000).draw(Fixed(bits, 0), SCALE, 2000).view(2, -1)
        for index, (first, second) in enumerate(bits.T.tolist()):
            assert drawn[:, index].tolist() == exact(first, second, 0)

    @pytest.mark.parametrize("sine", [False, True])
    def test_near_the_border_of_two_integers(self, sine):
        """From 2**-45 to 2**-15 off the border, where the missing bits decide, or might."""
        random, decided = np.random.default_rng(1), 0
        for _ in range(400):
            first, second = near_a_border(random, sine)
            low, high = exact(first, second, 0), exact(first, second, ONES)
            bits = np.array([[first], [second]], dtype=np.int64)
            for more, expected in ((0, low), (ONES, high)):
                drawn = RoundedNormals(2).draw(Fixed(bits, more), SCALE, 2)
                assert drawn.tolist() == expected
            decided += low != high
        assert decided > 40  # else there was nothing to decide

    @pytest.mark.parametrize("more", [0, ONES])
    def test_the_ends_of_the_radius(self, more):
        """Where a double cannot tell the uniform from 1, or the missing bits are most of it."""
        ends = [0, 1, 2**20, 2**41, 2**43, 2**62, 2**63 - 1]
        ends += [2**63 - 2**power for power in (20, 25, 30, 35, 40, 41, 42, 43)]
        ends += [-end - 1 for end in ends]
        for first, second in itertools.product(ends, [1, -(2**63), 2**61 + 12345]):
            stream = Fixed(np.array([[first], [second]], dtype=np.int64), more)
            drawn = RoundedNormals(2).draw(stream, SCALE, 2)
            assert drawn.tolist() == exact(first, second, more)
            assert abs(drawn).max() <= gaussian.REACH * SCALE

    def test_more_digits_are_needed_rarely(self):
        count, asked = 2**21, 0
        keystream, normals = SystemEntropy().keystream(), RoundedNormals(2**15)
        words = keystream.words

        def counted(size):
            nonlocal asked
            asked += 1
            return words(size)

        keystream.words = counted
        for _ in range(count // 2**15):
            normals.draw(keystream, 2.0**23, 2**15)
        expected = count * (2 * 2.0**23 * gaussian.ERROR + gaussian.TAIL)
        low, high = stats.poisson.ppf([ALARM / 2, 1 - ALARM / 2], expected)
        assert low <= asked <= high

    @pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2 * gaussian.MAX_SCALE])
    def test_scales_out_of_bounds_are_refused(self, scale):
        with pytest.raises(ValueError, match="scale must"):
            RoundedNormals(2).draw(SystemEntropy().keystream(), scale, 2)


def near_a_border(random, sine):
    """Bits of a pair, one of whose draws lies very near to a half."""
    second = int(random.integers(-(2**63), 2**63))
    with mpmath.workdps(60):
        angle = mpmath.pi * second / 2**63
        part = abs(mpmath.sin(angle) if sine else mpmath.cos(angle))
        border = int(random.integers(0, int(3 * SCALE * part) + 1)) + 0.5
        border += random.choice([-1, 1]) * 2.0 ** random.uniform(-45, -15)
        uniform = mpmath.exp(-((border / (SCALE * part)) ** 2) / 2)
        first = min(int(uniform * 2**63), 2**63 - 1)
    return first * int(random.choice([-1, 1])), second


def draws(scale, count):
    """So many draws, in parts that fit into memory."""
    keystream, normals = SystemEntropy().keystream(), RoundedNormals(2**17)
    for start in range(0, count, 2**17):
        yield normals.draw(keystream, scale, min(2**17, count - start)).numpy()


def chi_square(counts, probabilities):
    """The p-value of counts in cells, rare ones put together."""
    expected = counts.sum() * probabilities
    rare = expected < 10
    found = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    found, wanted = found[wanted > 0], wanted[wanted > 0]
    return stats.chi2.sf(((found - wanted) ** 2 / wanted).sum(), len(found) - 1)


MANY = 100_000_000
SLOW = pytest.mark.slow


class TestDistribution:
    @pytest.mark.parametrize(
        ("scale", "count"),
        [
            *((scale, 2_000_000) for scale in (0.4, 1.0, 3.7, 40.0)),
            pytest.param(3.7, MANY, marks=SLOW),
        ],
    )
    def test_every_integer_has_its_probability(self, scale, count):
        reach = math.ceil(15 * scale)
        edges = (np.arange(-reach, reach + 2) - 0.5) / scale
        # Differences in the tail that is small, so that far cells are not lost to rounding.
        probabilities = np.where(
            edges[:-1] > 0,
            stats.norm.sf(edges[:-1]) - stats.norm.sf(edges[1:]),
            stats.norm.cdf(edges[1:]) - stats.norm.cdf(edges[:-1]),
        )
        counts = np.zeros(len(probabilities), dtype=np.int64)
        for part in draws(scale, count):
            counts += np.bincount(part.astype(np.int64) + reach, minlength=len(counts))
        assert chi_square(counts, probabilities) > ALARM / 2
        centre = np.abs(np.arange(-reach, reach + 1))
        for deviations in (3, 4, 5, 5.5, 6):
            beyond = centre >= deviations * scale
            expected = count * probabilities[beyond].sum()
            low, high = stats.poisson.ppf([ALARM / 20, 1 - ALARM / 20], expected)
            assert low <= counts[beyond].sum() <= high

    @pytest.mark.parametrize("count", [2_000_000, pytest.param(MANY, marks=SLOW)])
    def test_moments_and_quantiles_at_full_scale(self, count):
        cells = 1000
        borders = stats.norm.ppf(np.arange(1, cells) / cells)
        counts, sums = np.zeros(cells, dtype=np.int64), np.zeros(4)
        pairs = np.zeros(2)
        for part in draws(SCALE, count):
            values = part / SCALE
            counts += np.bincount(np.searchsorted(borders, values), minlength=cells)
            powers = values, values**2, values**3, values**4
            sums += [power.sum() for power in powers]
            one, other = values.reshape(2, -1)
            pairs += [(one * other).sum(), ((one**2 - 1) * (other**2 - 1)).sum()]
        assert chi_square(counts, np.full(cells, 1 / cells)) > ALARM / 10
        # A mean of n values with variance v is off by more than z sqrt(v / n) once in ALARM.
        limit = stats.norm.isf(ALARM / 20)
        for total, mean, variance in zip(sums, (0, 1, 0, 3), (1, 2, 15, 96), strict=True):
            assert abs(total - count * mean) < 1.1 * limit * math.sqrt(variance * count)
        for total, variance in zip(pairs, (1, 4), strict=True):
            assert abs(total) < 1.1 * limit * math.sqrt(variance * count / 2)

    def test_the_numbers_with_many_digits_have_the_same_law(self, monkeypatch):
        monkeypatch.setattr(gaussian, "ERROR", 1.0)
        drawn = RoundedNormals(3000).draw(SystemEntropy().keystream(), 2.0, 3000).numpy()
        cells = np.arange(-40, 41)
        probabilities = np.diff(stats.norm.cdf((np.arange(-40, 42) - 0.5) / 2.0))
        counts = np.array([(drawn == cell).sum() for cell in cells])
        assert chi_square(counts, probabilities) > ALARM


class TestGrid:
    @given(
        noise=st.floats(1e-3, 1e3),
        norm=st.floats(1e-6, 1e6),
        values=st.integers(1, 10**7),
        records=st.integers(1, 10**5),
    )
    def test_steps_scales_and_what_is_left_to_clip(self, noise, norm, values, records):
        grid = Grid.of(noise, norm, values=values, records=records)
        assert math.frexp(grid.step)[0] == 0.5  # a power of two
        assert 2**22 <= grid.scale <= gaussian.MAX_SCALE
        # Never less noise than was paid for, and no more than a rounding above it.
        paid = Fraction(noise) * Fraction(norm)
        assert paid <= Fraction(grid.scale) * Fraction(grid.step) <= paid * (1 + Fraction(1, 2**51))
        # What rounding and arithmetic may add fits between the clipping norm and the bound.
        left = Fraction(norm) * (1 - Fraction(ARITHMETIC)) - Fraction(grid.norm)
        assert values * Fraction(grid.step) ** 2 <= left**2
        assert grid.norm > 0.999 * norm
        assert records * norm / grid.step < 2**53

    @pytest.mark.parametrize("values", [1, 1000, 2**20])
    def test_rounding_cannot_take_neighbours_apart(self, values):
        """The worst there is: every coordinate of one sum is rounded down, of the other up."""
        grid = Grid.of(64.0, 1.0, values=values, records=100)
        steps = int(grid.norm / math.sqrt(values) / grid.step)
        one = torch.full((values,), 0.5 - 2.0**-30, dtype=torch.float64)
        other = one + steps + 2.0**-29
        assert float((other - one).norm()) * grid.step <= grid.norm * (1 + 1e-12)
        both = torch.stack([one, other]) * grid.step
        grid.round(both)
        assert float((both[1] - both[0]).mean()) == steps + 1
        assert float((both[1] - both[0]).norm()) * grid.step <= 1.0

    @pytest.mark.parametrize(
        ("noise", "norm", "values", "records", "reason"),
        [
            (1e-9, 1.0, 10, 100, "large enough"),
            (1.0, 1.0, 10, 2**31, "large enough"),
            (1e6, 1.0, 10**6, 10, "small enough"),
            (1e10, 1.0, 1, 10, "small enough"),
            (1.0, 1e-300, 10, 10, "must lie in"),
            (1e200, 1e200, 10, 10, "must lie in"),
        ],
    )
    def test_what_has_no_grid_is_refused(self, noise, norm, values, records, reason):
        with pytest.raises(ValueError, match=reason):
            Grid.of(noise, norm, values=values, records=records)


class Others(Group):
    """A first rank among several, whose partners' sums are given."""

    def __init__(self, partners):
        super().__init__(0, 1 + len(partners))
        self.partners = partners

    def summed(self, tensor):
        for partner in self.partners:
            tensor += partner[: len(tensor)]
        return tensor


class TestRelease:
    @pytest.mark.parametrize("sizes", [(1,), (5, 1, 7), (40_000, 3, 70_001), (2**15, 2**15, 1)])
    @pytest.mark.parametrize("noise", [0.5, 3.0])
    def test_every_value_has_its_own_noise_on_the_grid(self, sizes, noise):
        count = sum(sizes)
        grid = Grid.of(noise, 2.0, values=count, records=1000)
        noisy = release.Release(count, entropy=SystemEntropy(), group=Group.alone())
        steps = []
        for _ in range(2):
            sums = [torch.full((size,), 7.3, dtype=torch.float64) for size in sizes]
            noisy(sums, grid, divisor=8)
            steps.append(torch.cat(sums) * 8 / grid.step)
        values = torch.stack(steps)
        assert torch.equal(values, values.round())
        drawn = (values - round(7.3 / grid.step)).numpy() * grid.step / (noise * 2.0)
        for part in np.split(drawn, np.cumsum(sizes)[:-1], axis=1):
            assert np.abs(part).max() > 0
            low, high = stats.chi2.ppf([ALARM / 12, 1 - ALARM / 12], part.size)
            assert low < (part**2).sum() < high
        if count > 100:
            assert len(np.unique(drawn)) > 0.99 * drawn.size

    def test_the_order_of_ranks_does_not_matter(self):
        grid = Grid.of(1.0, 1.0, values=1000, records=10**6)
        random = torch.Generator().manual_seed(0)
        partners = [torch.randn(1000, generator=random).double() * 1e5 for _ in range(5)]
        for partner in partners:
            grid.round(partner)

        class Same(SystemEntropy):
            def keystream(self):
                return Fixed(np.int64(2**62), 0)

        found = []
        for order in itertools.islice(itertools.permutations(partners), 20):
            sums = [torch.full((1000,), 0.1)]
            release.Release(1000, entropy=Same(), group=Others(order))(sums, grid, divisor=1)
            found.append(sums[0])
        assert all(torch.equal(each, found[0]) for each in found)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_the_engine_releases_multiples_of_the_step(self, build, train, dtype, points):
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).to(dtype)
        x, y = points().tensors
        parts = build(dataset=TensorDataset(x.to(dtype), y), model=model, seed=None, batch_size=32)
        train(parts)
        step = parts.optimizer.grid(settings_of(parts.engine)).step
        for parameter in model.parameters():
            assert parameter.grad.dtype == dtype
            multiples = parameter.grad.double() * 32 / step
            # Single precision has 24 bits: beyond them it rounds what is already private.
            exactly = multiples.abs() < 2.0 ** (24 if dtype == torch.float32 else 53)
            assert exactly.any()
            assert torch.equal(multiples[exactly], multiples[exactly].round())

    def test_weights_that_lie_otherwise_in_memory(self, build, train):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        model = model.to(memory_format=torch.channels_last)
        data = TensorDataset(torch.randn(40, 3, 4, 4), torch.zeros(40).long())
        parts = build(dataset=data, model=model, batch_size=10)
        loss_fn = parts.engine.private_loss(nn.CrossEntropyLoss())
        train(parts, loss_fn=loss_fn)
        assert parts.engine.steps == 4


def settings_of(engine):
    return StepSettings(engine.noise_multiplier, engine.batch_size, engine.records)


class TestSensitivity:
    @pytest.mark.parametrize("physical", [None, 7])
    def test_one_record_moves_the_sum_by_no_more_than_the_bound(self, build, physical):
        """In single precision, with other batch sizes and pieces on both sides."""
        torch.manual_seed(0)
        x, y = torch.randn(97, 1, 12, 12), torch.randint(0, 3, (97,))
        sums = []
        for left_out in (None, 0, 40, 96):
            kept = [index for index in range(97) if index != left_out]
            torch.manual_seed(1)
            model = nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 3), nn.Linear(3, 3)
            )
            data = TensorDataset(50 * x[kept], y[kept])  # far beyond the clipping norm
            options = {"noise_multiplier": 1e-6, "batch_size": len(kept), "max_grad_norm": 1.5}
            gate = dm.Odometer(delta=1e-6)
            parts = build(gate, data, model, physical_batch_size=physical, **options)
            loss_fn = parts.engine.private_loss(nn.CrossEntropyLoss())
            for a, b in parts.loader:
                parts.optimizer.zero_grad()
                loss_fn(parts.model(a), b).backward()
                parts.optimizer.step()
            grads = [p.grad.double().flatten() for p in model.parameters()]
            sums.append(torch.cat(grads) * len(kept))
        noise = 2e-6 * 1.5 * math.sqrt(len(sums[0]))
        moves = [float((each - sums[0]).norm()) for each in sums[1:]]
        # What is kept for rounding is left, and half of what is kept for arithmetic.
        assert max(moves) <= 1.5 * (1 - ROUNDING - ARITHMETIC / 2) + noise
        assert max(moves) > 1.5 * 0.99  # it was clipped, so the bound was reached for
