# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of one run of a mechanism, as a measure on the lattice, per direction.

Each mechanism here has a dominating pair on the line whose loss is monotone in the output, so
the cells of the lattice are intervals of outputs and their probabilities differences of
distribution functions. What has no such pair (a Rényi curve, an event) cannot be on a menu.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsFloat

import numpy as np

from dosimeter.accounting.priced.items import Direction, Finite
from dosimeter.accounting.priced.lattice import (
    FINE,
    UNIT,
    LatticeError,
    Measure,
    spread,
    step_of,
)
from dosimeter.rdp import Cost, Gaussian, Laplace, PureDp, SampledGaussian
from dosimeter.rdp.orders import FloatArray

LEAST_NOISE = 0.2
"""Below it the cells are too narrow for the normal distribution function in doubles."""

_CELL_ERROR = 2e-10
"""Relative error of a cell's probability where a loss is inverted; the largest seen is 6e-11."""

_CLOSED_ERROR = 1e-12
"""The same where it is not: closed forms, and the normal distribution function itself."""

_TAIL = 1e-25
"""Probability beyond which outputs go to infinity or to the lowest cell."""

_FINEST = -8
_POINTS_PER_SCALE = 48
_MANY_CELLS = 200_000
_MOST_CELLS = 2_000_000
LARGEST_LOSS = 600.0
"""Beyond it e^-loss leaves the range of a float."""


def symmetric(cost: Cost) -> bool:
    """Whether the loss is the same in both directions."""
    return isinstance(cost, Gaussian | Laplace | PureDp)


def single_loss(
    cost: Cost, direction: Direction, level: int, reach: float = LARGEST_LOSS
) -> Measure:
    """The loss of one run of `cost` on a lattice no coarser than `level`.

    Args:
        cost: The mechanism.
        direction: Which neighbour has the extra record.
        level: The coarsest lattice to use.
        reach: Losses of a (sampled) Gaussian beyond it are spread between it and infinity. That
            costs nothing where every value is linear in u = e^-loss, far above a budget's
            epsilon, and spares a long thin tail its million cells. Losses below minus it are
            raised to that.

    Raises:
        ValueError: Its loss distribution is not known, or not on a menu's scale.
    """
    measure = _single_loss(cost, direction, level, reach)
    if measure.level > level:
        raise LatticeError(f"loss must be on a level of at most {level}, got {measure.level}")
    return measure


def _single_loss(cost: Cost, direction: Direction, level: int, reach: float) -> Measure:
    match cost:
        case SampledGaussian(sample_rate=rate, noise_multiplier=noise):
            if not rate < 1:
                raise ValueError(
                    f"menu must not sample with rate 1, got {cost}; give Gaussian({noise!r})"
                )
            _require_noise(cost, noise)
            scale = rate * math.sqrt(math.expm1(min(1.0, noise**-2)))
            return _sampled(rate, noise, direction, (_level(scale, level), level), reach)
        case Gaussian(noise_multiplier=noise):
            _require_noise(cost, noise)
            levels = _level(1 / noise, level), level
            return _sampled(1.0, noise, Direction.REMOVE, levels, reach)
        case Laplace():
            return _laplace(cost.pure_epsilon, _level(cost.pure_epsilon, level))
        case PureDp() if cost.delta == 0:
            return _randomised_response(cost.epsilon, _level(cost.epsilon, level))
        case Finite():
            return _finite(cost.worlds(), direction, level)
    raise ValueError(
        f"menu must hold Gaussian, SampledGaussian, Laplace and PureDp costs, got {cost}; "
        "spend others off the menu"
    )


def _require_noise(cost: Cost, noise: float) -> None:
    if not noise >= LEAST_NOISE:
        raise ValueError(f"menu must hold noise of at least {LEAST_NOISE}, got {cost}")


def _level(scale: float, coarsest: int) -> int:
    """A lattice fine enough for losses of this scale."""
    wanted = math.floor(math.log2(scale / (_POINTS_PER_SCALE * FINE)))
    return min(coarsest, max(wanted, _FINEST))


def _between(cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard normal probability between successive cuts, and what the difference may lose."""
    from scipy.special import ndtr

    low, high = cuts[:-1], cuts[1:]
    # From the nearer tail, whose probability is the larger of the two that are subtracted.
    near, far = np.where(low > 0, ndtr(-low), ndtr(high)), np.where(low > 0, ndtr(-high), ndtr(low))
    return np.maximum(near - far, 0.0), 16 * UNIT * near


def _sampled(
    rate: float, noise: float, direction: Direction, levels: tuple[int, int], reach: float
) -> Measure:
    """P = (1-q) N(0,1) + q N(1/s,1), Q = N(0,1) in units of the noise, or the reverse.

    The lattice is that of the first level, or a coarser one up to the second where there would
    be too many cells: a long tail beside a narrow body.
    """
    # scipy takes long to import, and only menus need it.
    from scipy.special import ndtr, ndtri_exp

    shift = 1.0 / noise
    far = -float(ndtri_exp(math.log(_TAIL)))

    def loss(x: float) -> float:
        """Loss of the output x in the REMOVE direction."""
        return math.log1p(rate * math.expm1(shift * (x - shift / 2)))

    def output(value: FloatArray) -> FloatArray:
        """The output with a given loss; -infinity where no output has one so low."""
        inner = np.maximum(np.expm1(value) + rate, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(inner / rate) / shift + shift / 2)

    # The loss of a plain Gaussian has no lower end to cancel towards.
    if rate == 1.0:
        low, high = shift * (-far - shift / 2), shift * (far + shift / 2)
    else:
        low, high = loss(-far), loss(far + shift)
    if direction is Direction.ADD:
        low, high = -high, -low
    low, end = max(low, -reach), min(high, reach)
    level, coarsest = levels
    while level < coarsest and end - low > _MANY_CELLS * step_of(level):
        level += 1
    step = step_of(level)
    cells = _span(low, end, step)
    values: FloatArray = np.arange(cells[0], cells[1] + 1, dtype=np.float64) * step
    if direction is Direction.REMOVE:
        cuts = values / shift + shift / 2 if rate == 1.0 else output(values)
        cuts[0] = -math.inf
        top = -float(cuts[-1])
    else:
        cuts = output(-values)[::-1].copy()
        cuts[-1] = math.inf
        if high <= reach:
            cuts[0] = -math.inf
        top = float(cuts[0])
    plain, lost = _between(cuts)
    moved, lost_too = _between(cuts - shift)
    mixed = (1 - rate) * plain + rate * moved
    tail = float(ndtr(top))
    side = shift if direction is Direction.REMOVE else -shift
    tail_mixed = (1 - rate) * tail + rate * float(ndtr(top + side))
    relative = _CLOSED_ERROR if rate == 1.0 else _CELL_ERROR
    if direction is Direction.REMOVE:
        # A difference lost in the second world weighs e^loss there, as its probability does.
        error = relative * mixed + (1 - rate) * lost + rate * lost_too + lost * np.exp(values[1:])
        beyond = tail_mixed, tail, relative * tail_mixed
        return spread(level, cells[0], mixed, plain, error, beyond)
    error = relative * plain[::-1] + lost[::-1]
    error += ((1 - rate) * lost + rate * lost_too)[::-1] * np.exp(values[1:])
    beyond = tail, tail_mixed, relative * tail
    return spread(level, cells[0], plain[::-1], mixed[::-1], error, beyond)


def _laplace(epsilon: float, level: int) -> Measure:
    """P = Laplace at 0, Q = Laplace at 1: atoms at both ends, an exponential between."""
    step = step_of(level)
    first, last = _span(-epsilon, epsilon, step)
    cuts = np.clip(np.arange(first, last + 1) * step, -epsilon, epsilon)
    p = -0.5 * np.exp((cuts[1:] - epsilon) / 2) * np.expm1(-np.diff(cuts) / 2)
    q = -0.5 * np.exp(-(cuts[:-1] + epsilon) / 2) * np.expm1(-np.diff(cuts) / 2)
    p[-1] += 0.5
    q[-1] += 0.5 * math.exp(-epsilon)
    p[0] += 0.5 * math.exp(-epsilon)
    q[0] += 0.5
    return spread(level, first, p, q, _CLOSED_ERROR * p)


def _randomised_response(epsilon: float, level: int) -> Measure:
    """The worst epsilon-DP mechanism: losses epsilon and -epsilon."""
    _span(-epsilon, epsilon, step_of(level))
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    unlikely = likely * math.exp(-epsilon)
    return _finite([(likely, unlikely), (unlikely, likely)], Direction.REMOVE, level)


def _finite(
    worlds: Iterable[tuple[SupportsFloat, SupportsFloat]], direction: Direction, level: int
) -> Measure:
    """Finitely many outputs; one that only the first world has is an infinite loss."""
    pairs = [(float(p), float(q)) for p, q in worlds]
    if direction is Direction.ADD:
        pairs = [(q, p) for p, q in pairs]
    step = step_of(level)
    finite = [(p, q, math.floor(math.log(p / q) / step)) for p, q in pairs if p > 0 and q > 0]
    first, last = min(cell for *_, cell in finite), max(cell for *_, cell in finite) + 1
    _span(first * step, last * step, step)
    mass_p, mass_q = np.zeros(last - first), np.zeros(last - first)
    for p, q, cell in finite:
        mass_p[cell - first] += p
        mass_q[cell - first] += q
    only_first = sum(p for p, q in pairs if q == 0)
    error = _CLOSED_ERROR * mass_p
    return spread(
        level, first, mass_p, mass_q, error, (only_first, 0.0, _CLOSED_ERROR * only_first)
    )


def _span(low: float, high: float, step: float) -> tuple[int, int]:
    """First and last lattice point around an interval of losses."""
    most = min(LARGEST_LOSS, _MOST_CELLS * step / 2)
    if not max(high, -low) <= most:
        raise ValueError(
            f"menu must hold costs whose losses stay within {most:g}, "
            f"got one that reaches {max(high, -low):g}; spend it off the menu"
        )
    return math.floor(low / step), math.ceil(high / step)
