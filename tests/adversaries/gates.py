"""Gates drawn at random, over all budgets and mechanisms that the documentation speaks of."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import dosimeter as dm


@dataclass(frozen=True)
class Drawn:
    """A gate as it is made, the costs that adversaries spend on it, and a stranger to its menu."""

    kind: str
    epsilon: float
    delta: float
    costs: tuple
    menu: bool
    plan: tuple | None = None
    stranger: object = field(default=None, compare=False)

    def make(self):
        """The gate; ValueError where the library refuses it."""
        menu = list(self.costs) if self.menu else None
        if self.kind == "filter":
            return dm.Filter(self.epsilon, self.delta, menu=menu)
        return dm.Odometer(self.delta, menu=menu, plan=self.plan)

    def __str__(self):
        told = [f"epsilon={self.epsilon!r}"] if self.kind == "filter" else []
        told.append(f"delta={self.delta!r}")
        if self.menu:
            told.append(f"menu=[{', '.join(map(spelled, self.costs))}]")
        if self.plan:
            told.append(f"plan=({spelled(self.plan[0])}, {self.plan[1]})")
        return f"dm.{self.kind.title()}({', '.join(told)})"


def spelled(cost):
    return f"dm.{cost!r}"


def draw(seed, *, small=False):
    """The gate of a seed; small ones are made in a tenth of a second, but for a few pairs."""
    rng = random.Random(seed)
    kind, menu = rng.choices(_KINDS, _SMALL if small else _LARGE)[0]
    jumpy = menu and not small and rng.random() < 0.3
    epsilon = _between(rng, 0.005, 0.3 if jumpy else 30.0)
    delta = _between(rng, 1e-12, 0.1)
    size = rng.choice([1] * 26 + [2] if small else [1, 2, 2, 3, 4, 5, 6])
    ruler = dm.Filter(epsilon, delta)
    most = (100 if size == 1 else 10**4) if small else 10**8
    costs = [_fitting(rng, ruler, _jumpy if jumpy else _any, most)]
    while len(costs) < size:
        near = jumpy or rng.random() < 0.5
        costs.append(_sibling(rng, ruler, costs[0]) if near else _fitting(rng, ruler, _any, most))
    plan = None
    if kind == "odometer" and menu and (small or rng.random() < 0.5):
        plan = (costs[0], max(1, ruler.affordable(costs[0])))
    stranger = _fitting(rng, ruler, _any, most)
    return Drawn(kind, epsilon, delta, tuple(dict.fromkeys(costs)), menu, plan, stranger)


_KINDS = [("filter", True), ("odometer", True), ("filter", False), ("odometer", False)]
_LARGE, _SMALL = [60, 20, 12, 8], [40, 5, 30, 25]


def _between(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _fitting(rng, ruler, drawn, most):
    """A cost of which the budget has some runs; after many tries whatever was drawn."""
    for _ in range(100):
        cost = drawn(rng)
        if 1 <= ruler.affordable(cost) <= most:
            return cost
    return cost


def _any(rng):
    kind = rng.random()
    if kind < 0.55:
        # Half of them with the noise that people use.
        most = 10.0 if rng.random() < 0.5 else 1e4
        return dm.SampledGaussian(_between(rng, 1e-6, 1.0), _between(rng, 0.3, most))
    if kind < 0.75:
        return dm.Gaussian(_between(rng, 0.3, 1e4))
    if kind < 0.88:
        return dm.Laplace(_between(rng, 0.3, 1e4))
    return dm.PureDp(_between(rng, 1e-4, 3.0))


def _jumpy(rng):
    """Small losses, but for a rare large one: a long tail beside a narrow body."""
    return dm.SampledGaussian(_between(rng, 1e-6, 1e-2), _between(rng, 0.3, 1.5))


def _sibling(rng, ruler, cost):
    """The same mechanism with a little more or less noise, or another rate."""
    for _ in range(20):
        factor = _between(rng, 0.5, 2.0)
        match cost:
            case dm.SampledGaussian(sample_rate=rate, noise_multiplier=noise):
                if rng.random() < 0.3:
                    made = dm.SampledGaussian(min(rate * factor, 1.0), noise)
                else:
                    made = dm.SampledGaussian(rate, max(noise * factor, 0.3))
            case dm.Gaussian(noise_multiplier=noise):
                made = dm.Gaussian(max(noise * factor, 0.3))
            case dm.Laplace(scale=scale):
                made = dm.Laplace(scale * factor)
            case dm.PureDp(epsilon=epsilon):
                made = dm.PureDp(epsilon * factor)
        if ruler.affordable(made):
            return made
    return made


@dataclass(frozen=True)
class Priced:
    """Bundles [(cost, runs, price), ...] of some quanta, at whatever delta V says they cost."""

    epsilon: float
    delta: float
    bundles: tuple
    quanta: int
    readings: tuple

    def __str__(self):
        told = ", ".join(f"({spelled(c)}, {runs}, {price})" for c, runs, price in self.bundles)
        given = f"{self.epsilon!r}, {self.delta!r}, ({told},), {self.quanta}, {self.readings}"
        return f"Priced({given})"


def draw_priced(seed):
    """A small menu with prices of its own, and readings after each of its quanta."""
    rng = random.Random(seed)
    jumpy = rng.random() < 0.5
    epsilon = _between(rng, 0.005, 0.3 if jumpy else 30.0)
    delta = _between(rng, 1e-12, 0.1)
    ruler = dm.Filter(epsilon, delta)
    quanta = rng.randint(1, 6)
    costs = [_fitting(rng, ruler, _jumpy if jumpy else _any, 10**5)]
    for _ in range(rng.randint(0, 2)):
        near = rng.random() < 0.6
        costs.append(_sibling(rng, ruler, costs[0]) if near else _fitting(rng, ruler, _any, 10**5))
    bundles = []
    for cost in dict.fromkeys(costs):
        price = rng.choice([1, 1, 2, 3]) if bundles else 1
        # About what an exact accountant would sell for the whole budget, or some more.
        runs = math.floor(1.2 * ruler.affordable(cost) * price / quanta)
        runs = max(runs, rng.choice([1, 1, 2, 7]))
        bundles.append((cost, runs, price))
    rises = sorted(rng.random() for _ in range(quanta))
    readings = (0.0, *(epsilon * (0.3 + 0.7 * rise) for rise in rises))
    return Priced(epsilon, delta, tuple(bundles), quanta, readings)
