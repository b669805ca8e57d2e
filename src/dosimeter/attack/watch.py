# SPDX-License-Identifier: Apache-2.0
"""Watch: what the steps of a run show at the coordinates of canaries, against what was charged.

Every test is two-sided and takes what was charged as the hypothesis. Tests of one kind share the
probability of a false alarm equally (Bonferroni), however many steps there are; so do the kinds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dosimeter.attack import scores
from dosimeter.attack.bounds import Flags, Floats
from dosimeter.rdp import SampledGaussian

_KEPT = 256
"""Coordinates whose noise is kept for every step, to compare any two steps."""

_ROWS = 1024


@dataclass(frozen=True)
class Finding:
    """One kind of test.

    Attributes:
        name: What was tested.
        measured: What the test that stands out most has measured, in words.
        p: The probability of something as far out or further in any test of the kind.
    """

    name: str
    measured: str
    p: float


@dataclass(frozen=True)
class _Seen:
    """The statistics of one step; one number for each table where it says so.

    Attributes:
        cost: What was charged.
        squares: Of the noise at absent canaries, summed, over its variance; each table.
        mean: Of the present canaries, in units of a full contribution; each table.
        reach: How far the furthest coordinate is beyond what a record may move, in deviations.
        echo: Correlation with the noise of the step before, standard normal; each table.
    """

    cost: SampledGaussian
    squares: Floats
    mean: Floats
    reach: Floats
    echo: Floats


class Watch:
    """Collects what is released and compares it with what was charged.

    Args:
        present: Which canaries are in the data.
        tables: Over how many parameters the gradient of a canary is spread, equally.
    """

    def __init__(self, present: Flags, tables: int) -> None:
        self._present, self._tables = present, tables
        self.scores: Floats = np.zeros(len(present))
        self._out, self._in = scores.Moments(), scores.Moments()
        self._steps: list[_Seen] = []
        self._last: Floats | None = None
        self._rows: list[Floats] = []

    @property
    def costs(self) -> list[SampledGaussian]:
        """What was charged for each step."""
        return [step.cost for step in self._steps]

    def see(self, cost: SampledGaussian, released: Floats) -> None:
        """Takes in one step.

        Args:
            cost: What was charged for it.
            released: The noisy sum over the clipping norm: a row for each table, with a number
                for each canary.
        """
        even = 1 / math.sqrt(self._tables)
        noise = released[:, ~self._present] / cost.noise_multiplier
        over = np.maximum(released.max(axis=1) - even, (-released).max(axis=1))
        echo = np.zeros(self._tables)
        if self._last is not None:
            # Exactly standard normal, given the step before.
            echo = (noise * self._last).sum(axis=1) / _lengths(self._last)
        self._steps.append(
            _Seen(
                cost,
                squares=(noise**2).sum(axis=1),
                mean=released[:, self._present].mean(axis=1) / even,
                reach=over / cost.noise_multiplier,
                echo=echo,
            )
        )
        self._last = noise
        self._rows += list(noise[:, :_KEPT].astype(np.float32))
        self.scores += scores.log_ratio(released.sum(axis=0) * even, cost)
        out, present = scores.expected(cost)
        self._out, self._in = self._out + out, self._in + present

    def findings(self) -> list[Finding]:
        """All tests; none of them is wrong more often than its p says."""
        return [
            self._score_moments(),
            self._noise_variance(),
            self._signal(),
            self._reach(),
            self._repetition(),
        ]

    def score_deviations(self) -> dict[str, float]:
        """How many standard deviations the scores' means and variances are from the charged."""
        found = {}
        for name, who, charged in (
            ("present", self._present, self._in),
            ("absent", ~self._present, self._out),
        ):
            off, count = self.scores[who] - charged.mean, int(who.sum())
            found[f"mean, {name}"] = float(off.mean() / math.sqrt(charged.variance / count))
            spread = 2 + charged.fourth / charged.variance**2
            ratio = (off**2).mean() / charged.variance
            found[f"variance, {name}"] = float((ratio - 1) / math.sqrt(spread / count))
        return found

    def _score_moments(self) -> Finding:
        found = self.score_deviations()
        worst = max(found, key=lambda name: abs(found[name]))
        words = f"{worst}: {found[worst]:+.1f} deviations"
        return Finding("scores", words, _adjusted(_both_tails(found[worst]), len(found)))

    def _noise_variance(self) -> Finding:
        from scipy import stats

        squares = np.array([step.squares for step in self._steps])
        absent = int((~self._present).sum())
        total = squares.sum(axis=0)
        chances = np.concatenate(
            [
                _either(stats.chi2, squares, absent).reshape(-1),
                _either(stats.chi2, total, absent * len(squares)),
            ]
        )
        where = _step_and_table(squares.shape, int(np.argmin(chances)))
        ratio = np.concatenate([squares.reshape(-1) / absent, total / absent / len(squares)])
        words = f"variance {ratio[np.argmin(chances)]:.3f} of the charged {where}"
        return Finding("noise", words, _adjusted(chances.min(), len(chances)))

    def _signal(self) -> Finding:
        rate = np.array([step.cost.sample_rate for step in self._steps])[:, None]
        noise = np.array([step.cost.noise_multiplier for step in self._steps])[:, None]
        mean = np.array([step.mean for step in self._steps])
        count = int(self._present.sum())
        flips = rate * (1 - rate)
        off = (mean - rate) / np.sqrt((flips + self._tables * noise**2) / count)
        # All tables hold the same coins, so over the run their sum is tested.
        spread = np.sqrt((flips + noise**2) / count)[:, 0]
        run = ((mean.mean(axis=1) - rate[:, 0]) / spread).sum() / math.sqrt(len(mean))
        every = np.append(off.reshape(-1), run)
        worst = int(np.argmax(np.abs(every)))
        where = _step_and_table(mean.shape, worst)
        words = f"mean of the present canaries {every[worst]:+.1f} deviations off {where}"
        return Finding("rate and clipping", words, _adjusted(_both_tails(every[worst]), len(every)))

    def _reach(self) -> Finding:
        from scipy import stats

        reach = np.array([step.reach for step in self._steps])
        worst = int(np.argmax(reach))
        where = _step_and_table(reach.shape, worst)
        words = f"furthest coordinate {reach.max():.1f} deviations beyond the norm {where}"
        tests = 2 * reach.size * len(self._present)
        return Finding("reach", words, _adjusted(float(stats.norm.sf(reach.max())), tests))

    def _repetition(self) -> Finding:
        echo = np.array([step.echo for step in self._steps])
        rows = np.array(self._rows)
        lengths = _lengths(rows)
        worst, pair, tests = 0.0, (0, 0), echo.size
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            products = np.abs(some @ rows.T) / lengths
            products[np.arange(len(rows)) >= np.arange(start, start + len(some))[:, None]] = 0.0
            first, second = np.unravel_index(int(np.argmax(products)), products.shape)
            if products[first, second] > worst:
                worst, pair = float(products[first, second]), (start + int(first), int(second))
        tests += len(rows) * (len(rows) - 1) // 2
        if np.abs(echo).max() > worst:
            worst = float(np.abs(echo).max())
            step = int(np.argmax(np.abs(echo))) // self._tables
            words = f"noise of steps {step} and {step + 1} correlated, {worst:.1f} deviations"
        else:
            late, early = (1 + row // self._tables for row in pair)
            words = f"noise of steps {early} and {late} correlated, {worst:.1f} deviations"
        return Finding("repetition", words, _adjusted(_both_tails(worst), tests))


def _lengths(rows: Floats) -> Floats:
    """Norms of rows; a row of zeros, which has no correlation with anything, gets 1."""
    lengths = np.linalg.norm(rows, axis=-1)
    return np.where(lengths > 0, lengths, 1.0)


def _both_tails(deviations: float) -> float:
    from scipy import stats

    return 2 * float(stats.norm.sf(abs(deviations)))


def _either(law: object, values: Floats, freedom: int) -> Floats:
    below, above = law.cdf(values, freedom), law.sf(values, freedom)  # type: ignore[attr-defined]
    return np.asarray(2 * np.minimum(below, above))


def _adjusted(chance: float, tests: int) -> float:
    # What is not a number was never meant to be released.
    return min(1.0, float(chance) * tests) if chance == chance else 0.0


def _step_and_table(shape: tuple[int, ...], index: int) -> str:
    """Where one of the tests of each step and table, or of the run after them, stands."""
    steps, tables = shape
    if index >= steps * tables:
        return "over the run"
    return f"at step {index // tables + 1}, table {index % tables + 1}"
