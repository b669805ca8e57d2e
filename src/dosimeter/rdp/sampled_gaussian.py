# SPDX-License-Identifier: Apache-2.0
"""The Poisson-subsampled Gaussian mechanism, the step of DP-SGD.

Its cost at order a is log(A_a) / (a - 1) with A_a the a-th moment of the likelihood ratio
under the smaller data set; the other direction costs no more (Mironov, Talwar and Zhang
2019, Theorem 5). A_a - 1 is evaluated as a sum of positive terms, so small costs keep
their relative accuracy: a finite sum at whole orders, the trapezoidal rule at others,
which converges geometrically for this analytic integrand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dosimeter import arguments
from dosimeter.neighbours import Neighbours
from dosimeter.rdp.cost import Cost, Cut, Option, interpolate
from dosimeter.rdp.gaussian import Gaussian
from dosimeter.rdp.loss import (
    Cells,
    Direction,
    Loss,
    normal_between,
    normal_reach,
    normal_tail,
    require_noise,
)
from dosimeter.rdp.moments import BinomialTerms, log_excess, log_expm1, log_of_one_plus
from dosimeter.rdp.orders import FloatArray, Orders
from dosimeter.rdp.sampled_cut import cut_sampled

if TYPE_CHECKING:
    import dp_accounting

_CELL_ERROR = 2e-10
"""Relative error of a cell's probability between cuts that may be some units in the last place off;
the largest seen is 6e-11."""

_QUADRATURE_SLACK = 1.0 + 1e-9
_MAX_NODES = 200_000
_HALF_WIDTH = 10.0


@dataclass(frozen=True, repr=False)
class SampledGaussian(Cost):
    """One step on a Poisson sample: every record joins independently with `sample_rate`.

    With neighbours that differ in one user, every user joins with all records or none.

    `noise_multiplier` is the standard deviation of the noise on the *sum* over its
    sensitivity (for DP-SGD, the clipping norm). Batches of fixed size, shuffled batches
    and sampling without replacement cost more than this curve says.

    Gates leave its rarest outputs out (`cut`), so the mechanism must be this one: of another one
    that has merely its curve, spend the `Curve`.
    """

    sample_rate: float
    noise_multiplier: float

    kind: ClassVar[str] = "sampled_gaussian"
    option: ClassVar[Option] = Option("sampled_gaussian", "RATE,NOISE", "A step of DP-SGD.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours is Neighbours.REPLACE_ONE_RECORD:
            raise ValueError(
                f"neighbours must be add/remove for a Poisson sample, got {self.neighbours!r}. "
                "Give Gaussian(noise_multiplier, neighbours=...), without the gain from sampling, "
                "or a Curve of your own bound."
            )
        rate = arguments.real("sample_rate", self.sample_rate)
        if not 0 < rate <= 1:
            raise ValueError(f"sample_rate must lie in (0, 1], got {self.sample_rate!r}")
        object.__setattr__(self, "sample_rate", rate)
        object.__setattr__(
            self, "noise_multiplier", arguments.positive("noise_multiplier", self.noise_multiplier)
        )

    @property
    def _rate(self) -> float:
        """The rate, raised where its logarithm or its inverse would leave the range of a float."""
        return max(self.sample_rate, 1e-290)

    def _curve(self, orders: Orders) -> FloatArray:
        if self.sample_rate == 1.0:
            return Gaussian(self.noise_multiplier)._curve(orders)
        inverse_variance = 1.0 / self.noise_multiplier / self.noise_multiplier
        if not inverse_variance < 1e290:
            return np.full(len(orders), math.inf)
        if not inverse_variance > 1e-290:
            # Beyond the reach of the sums below; sampling never costs more than no sampling.
            return Gaussian(self.noise_multiplier)._curve(orders)
        whole = orders.array == np.floor(orders.array)
        curve = np.empty(len(orders))
        if whole.any():
            curve[whole] = self._at_whole(tuple(int(a) for a in orders.array[whole]))
        if not whole.all():
            curve[~whole] = self._between(orders.array[~whole])
        return curve

    def loss(self, direction: Direction) -> SampledLoss:
        """That of the mixture against the noise alone, or the reverse."""
        rate, noise = self.sample_rate, self.noise_multiplier
        low, high = (self._loss_of(x) for x in (-normal_reach(), normal_reach() + 1.0 / noise))
        if direction is Direction.ADD:
            low, high = -high, -low
        # About its standard deviation.
        scale = rate * math.sqrt(math.expm1(min(1.0, 1.0 / noise / noise)))
        return SampledLoss(low, high, scale, rate, noise, direction)

    def _loss_of(self, output: float) -> float:
        """Loss of an output where the first neighbour has the extra record."""
        rate, shift = self.sample_rate, 1.0 / self.noise_multiplier
        exponent = shift * (output - shift / 2)
        if exponent > 30 or rate == 1.0:
            others = (1 - rate) / rate * math.exp(-max(exponent, 30.0))
            return math.log(rate) + exponent + math.log1p(others)
        if exponent < 0 and rate > 0.5:  # 1 - rate stays whole
            return math.log((1 - rate) + rate * math.exp(exponent))
        return math.log1p(rate * math.expm1(exponent))

    def cut(self, orders: Orders, chance: float) -> Cut | None:
        """The step without its largest outputs, where a rate below 1 makes them rare."""
        # Below this order outputs that hardly ever occur do not carry the moment.
        noise = self.noise_multiplier
        first = 1.0 - 2.0 * noise * noise * math.log(self._rate)
        if not (self.sample_rate < 1 and orders[-1] >= first):
            return None
        return cut_sampled(self._rate, self.noise_multiplier, orders, chance)

    def dp_event(self) -> dp_accounting.DpEvent:
        """A PoissonSampledDpEvent of a GaussianDpEvent."""
        import dp_accounting

        inner = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        return dp_accounting.PoissonSampledDpEvent(self.sample_rate, inner)

    def _at_whole(self, orders: tuple[int, ...]) -> FloatArray:
        """log1p of sum over k >= 2 of C(a,k) (1-q)^(a-k) q^k (e^{k(k-1)/2s^2} - 1), over a - 1."""
        terms = BinomialTerms.of(orders)
        growth = terms.pairs / self.noise_multiplier / self.noise_multiplier
        return terms.rdp(self._rate, log_expm1(growth))

    def _between(self, orders: FloatArray) -> FloatArray:
        """The trapezoidal rule, or the chord between whole orders where it needs many nodes."""
        s = self.noise_multiplier
        step = min(0.35, 0.3 * s)
        low, high = -_HALF_WIDTH, _HALF_WIDTH + float(orders[-1]) / s
        nodes = (high - low) / step
        if not nodes * len(orders) <= _MAX_NODES:
            edges = sorted({int(a) + i for a in orders for i in (0, 1)} - {1})
            at_edges = np.maximum.accumulate(self._at_whole(tuple(edges)))
            return interpolate(np.array(edges, dtype=np.float64), at_edges, orders)
        t = low + step * np.arange(math.ceil(nodes) + 1, dtype=np.float64)
        log_ratio = self._log_ratio(t)
        exponents = log_excess(orders[:, None], log_ratio[None, :]) - t * t / 2.0
        peak = exponents.max(axis=1)
        log_moment = peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))
        log_moment += math.log(step) - 0.5 * math.log(2 * math.pi)
        value = log_of_one_plus(log_moment)
        return np.asarray(value / (orders - 1.0) * _QUADRATURE_SLACK + 5e-324)

    def _log_ratio(self, t: FloatArray) -> FloatArray:
        """log(1 - q + q e^{t/s - 1/2s^2}), the loss at noise t standard deviations."""
        q, s = self._rate, self.noise_multiplier
        shift = t / s - 0.5 / s / s
        total = math.log(q) + shift
        # Each form where it neither cancels nor overflows: a tiny rate needs the middle one.
        far = total + np.log1p((1 - q) * np.exp(-np.maximum(total, 30.0)))
        near = np.where(shift < 1, q * np.expm1(np.minimum(shift, 1.0)), np.exp(total) - q)
        return np.where(total > 30, far, np.log1p(np.where(total > 30, 0.0, near)))


@dataclass(frozen=True)
class SampledLoss(Loss):
    """P = (1-q) N(0,1) + q N(1/s,1), Q = N(0,1) in units of the noise s, or the reverse."""

    rate: float
    noise: float
    direction: Direction

    def _outputs(self, losses: FloatArray) -> FloatArray:
        """The outputs with given losses; -infinity where no output has one so low."""
        shift = 1.0 / self.noise
        # Either sum cancels at one end; a rate near 1 needs the first.
        low = losses < -0.5
        sums = np.where(low, np.exp(losses) - (1 - self.rate), np.expm1(losses) + self.rate)
        inner = np.maximum(sums, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(inner / self.rate) / shift + shift / 2)

    def cells(self, cuts: FloatArray) -> Cells:
        """Differences of normal distribution functions at the outputs with these losses."""
        if not self.rate < 1:
            raise ValueError(
                f"menu must not sample with rate 1, got {self}; give Gaussian({self.noise!r})"
            )
        require_noise(self.noise)
        removed = self.direction is Direction.REMOVE
        if removed:
            outputs = self._outputs(cuts)
            outputs[0] = -math.inf
        else:
            # The largest loss belongs to the lowest output.
            outputs = self._outputs(-cuts)[::-1].copy()
            outputs[-1] = math.inf
            if self.high <= cuts[-1]:
                outputs[0] = -math.inf
        rate, shift = self.rate, 1.0 / self.noise
        plain, lost = normal_between(outputs)
        moved, lost_too = normal_between(outputs - shift)
        mixed = (1 - rate) * plain + rate * moved
        top, side = (-float(outputs[-1]), shift) if removed else (float(outputs[0]), -shift)
        tail = normal_tail(top)
        tail_mixed = (1 - rate) * tail + rate * normal_tail(top + side)
        # A difference lost in the second world weighs e^loss there, as its probability does.
        if removed:
            error = _CELL_ERROR * mixed + (1 - rate) * lost + rate * lost_too
            error += lost * np.exp(cuts[1:])
            return Cells(mixed, plain, error, (tail_mixed, tail, _CELL_ERROR * tail_mixed))
        plain, mixed, lost, lost_too = (x[::-1] for x in (plain, mixed, lost, lost_too))
        error = _CELL_ERROR * plain + lost
        error += ((1 - rate) * lost + rate * lost_too) * np.exp(cuts[1:])
        return Cells(plain, mixed, error, (tail, tail_mixed, _CELL_ERROR * tail))
