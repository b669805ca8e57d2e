"""Rényi curves, losses, truncations, conversions, calibration and published rules, in hex.

Every bit counts on processors that compute as the recorder's, and nine digits elsewhere
(`goldens.compare`). What dp-accounting composes by Fourier transforms is compared to six digits
there.
"""

import itertools
import math
import warnings
from collections.abc import Iterable

import dp_accounting as dp
import numpy as np
import pytest

import goldens
from dosimeter import (
    ApproxDp,
    ApproxZcdp,
    BestOf,
    BudgetExceeded,
    Cost,
    Curve,
    Event,
    Gaussian,
    Laplace,
    Neighbours,
    PureDp,
    SampledGaussian,
    Together,
    UnsoundRuleWarning,
    Zcdp,
    epsilon_for,
    noise_for,
    refine,
)
from dosimeter.accounting import Mixture
from dosimeter.accounting.classic import (
    AdvancedComposition,
    BasicComposition,
    Conversion,
    CurveFilter,
    FixedOrderFilter,
    LecuyerOdometer,
    PldComposition,
    RdpComposition,
    RogersFilter,
    SingleOrderFilter,
    StackedOdometer,
)
from dosimeter.compare import compare, plan
from dosimeter.rdp import Orders
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.plain import from_plain, to_plain

NEAR = 1e-9
REPLACE = Neighbours.REPLACE_ONE_RECORD

GRID = Orders([1.01, 1.1, 1.25, 1.5, 2, 2.5, 3, 5, 8.75, 16, 33, 64, 100.5, 256, 1024, 65536])
SHORT = Orders([1.25, 2, 4, 8, 16, 32, 64, 200])

NOISES = (1e-160, 1e-3, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 3.0, 10.0, 100.0, 1e5, 1e160)
RATES = (5e-324, 1e-300, 1e-9, 1e-5, 1e-3, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999999, 1.0)
EPSILONS = (5e-324, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 35.0, 700.0, 1e5)

KNOWN: list[Cost] = [
    *(Gaussian(noise) for noise in NOISES),
    *(Laplace(scale) for scale in (1e-301, 1e-2, 0.1, 0.5, 1.0, 3.0, 50.0, 1e4, 1e9, 1e300)),
    *(PureDp(epsilon) for epsilon in EPSILONS),
    *(SampledGaussian(rate, noise) for rate in RATES for noise in NOISES),
]
"""Costs whose exact loss is known."""

COSTS: list[Cost] = [
    *KNOWN,
    *(ApproxDp(epsilon, 1e-6) for epsilon in (0.1, 3.0)),
    *(Zcdp(rho, xi) for rho in (0.0, 1e-9, 0.5, 1e300) for xi in (0.0, 1e-3, 1e300)),
    ApproxZcdp(0.25, 1e-6),
    Curve([2, 8, 64], [0.01, 0.05, 0.8]),
    Curve([1.01, 3.0, 10.0, 65536.0], [0.3, 0.2, 0.4, math.inf]),
    Curve([4], [1.0]),
    *(
        BestOf(trial, steps, mean, eta)
        for trial in (Gaussian(20.0), PureDp(0.01), SampledGaussian(0.01, 1.5))
        for steps, mean in ((1, 1), (10, 3.5), (500, 100))
        for eta in (-0.5, 0.0, 1e-3, 1.0, 10.0)
    ),
    Together([Gaussian(3.0), Laplace(4.0), ApproxDp(0.1, 1e-7)]),
    Together([SampledGaussian(0.01, 1.0)] * 7),
    Event(dp.GaussianDpEvent(2.0)),
    Event(dp.PoissonSampledDpEvent(0.01, dp.ComposedDpEvent([dp.GaussianDpEvent(2.0)] * 3))),
    Event(dp.SelfComposedDpEvent(dp.LaplaceDpEvent(9.0), 2**30)),
    Event(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 0)),
    Event(dp.ComposedDpEvent([dp.ZCDpEvent(0.1, 0.01), dp.NonPrivateDpEvent()])),
    Event(dp.dp_event.RepeatAndSelectDpEvent(dp.GaussianDpEvent(9.0), 10.0, 1.0)),
    Event(dp.GaussianDpEvent(2.0), neighbours=dp.NeighboringRelation.REPLACE_ONE),
    refine(Gaussian(10.0), Gaussian(3.0)).cost,
]


def hexes(values: Iterable[float]) -> list[str]:
    return [float(value).hex() for value in values]


def test_curves():
    found = {}
    for cost in COSTS:
        numbers = hexes([cost.pure_epsilon, cost.delta])
        found[repr(cost)] = [str(cost), to_plain(cost), numbers, hexes(cost.rdp(GRID))]
        assert from_plain(to_plain(cost)) == cost
    goldens.compare("curves", found, near=NEAR)


def losses(cost: Cost) -> object:
    """Return the ends of a loss and its probabilities between cuts, in both directions."""
    found = {}
    for way in Direction:
        loss = cost.loss(way)
        reach = 3 * min(loss.scale, loss.high, 40.0)
        cells = loss.cells(np.linspace(max(loss.low, -reach), reach, 5))
        numbers = [loss.low, loss.high, loss.scale, *cells.p, *cells.q, *cells.error, *cells.beyond]
        found[way.name] = hexes(numbers)
    return found


def test_losses():
    found = {}
    with np.errstate(over="ignore"):
        for cost in [*KNOWN, ApproxDp(0.5, 0.0)]:
            found[str(cost)] = goldens.outcome(lambda cost=cost: losses(cost))
    goldens.compare("losses", found, near=NEAR)


def test_truncations():
    found = {}
    for rate, noise in itertools.product(RATES, (0.3, 0.8, 1.0, 3.0, 100.0)):
        cost = SampledGaussian(rate, noise)
        for chance in (1e-300, 1e-12, 1e-7, 1e-3):
            cut = cost.cut(SHORT, chance)
            found[f"{cost} at {chance}"] = None if cut is None else hexes([*cut.rdp, cut.chance])
    goldens.compare("truncations", found, near=NEAR)


def test_conversions():
    found = {}
    for delta in (1e-300, 1e-20, 1e-6, 1e-2, 0.5, 0.999):
        for rho in (0.0, 1e-12, 1e-3, 0.1, 1.0, 30.0, 1e4, 1e300):
            curve = SHORT.array * rho
            for orders, weights in (
                (SHORT, [1 / 8] * 8),
                (SHORT, [2.0**-k for k in (1, 2, 3, 4, 5, 6, 7, 7)]),
            ):
                mixture = Mixture(orders, weights, delta)
                numbers = [mixture.epsilon(curve), mixture.loss_bound(curve)]
                numbers += [mixture.two_sided().loss_bound(curve), *mixture.tangent(curve)[:1]]
                found[f"mixture {weights[0]} {rho} {delta}"] = hexes(numbers)
            for rule in Conversion:
                epsilons = rule.epsilon(SHORT.array, curve, delta)
                found[f"{rule.name.lower()} {rho} {delta}"] = hexes(epsilons)
    goldens.compare("conversions", found, near=NEAR)


# -- published rules -------------------------------------------------------------------------

SEQUENCES: dict[str, list[tuple[Cost, int]]] = {
    "gaussians": [
        (Gaussian(30.0), 1),
        (Gaussian(20.0), 7),
        (Gaussian(10.0), 100),
        (Gaussian(9.0), 1),
    ],
    "pure": [(PureDp(0.01), 3), (Laplace(50.0), 20), (PureDp(0.2), 1), (PureDp(800.0), 1)],
    "steps": [(SampledGaussian(0.01, 1.1), 10), (SampledGaussian(0.02, 1.0), 500)],
    "failing": [(ApproxDp(0.1, 1e-7), 2), (PureDp(0.01), 2**30), (ApproxZcdp(0.1, 1e-9), 1)],
    "zcdp": [(Zcdp(1e-4), 1), (Zcdp(1e-3, 1e-4), 12), (Zcdp(0.0), 2**53)],
    "mixed": [(Laplace(40.0), 4), (SampledGaussian(0.1, 2.0), 3), (Curve([2, 9], [1e-3, 0.02]), 5)],
}


def rules(epsilon: float, delta: float) -> Iterable[object]:
    yield BasicComposition(epsilon, delta=delta)
    yield BasicComposition(delta=delta)
    yield AdvancedComposition(delta=delta)
    yield RogersFilter(epsilon, delta)
    yield LecuyerOdometer(delta)
    yield LecuyerOdometer(delta, orders=SHORT, first_filter=0.1)
    for order in (1.5, 8, 33.5):
        yield SingleOrderFilter(epsilon, delta, order=order)
        yield StackedOdometer(delta, order=order, size=epsilon / 7)
    for conversion in Conversion:
        yield RdpComposition(delta=delta, conversion=conversion)
        yield FixedOrderFilter(epsilon, delta, order=12, conversion=conversion)
        yield CurveFilter(epsilon, delta, orders=SHORT, conversion=conversion)
        yield StackedOdometer(delta, order=4, size=0.01, conversion=conversion)


def answers(rule: object, sequence: list[tuple[Cost, int]]) -> list[object]:
    found = []
    for cost, count in sequence:
        answer: object = "admitted" if rule.admits(cost, count) else "refused"
        try:
            rule.spend(cost, count)
        except BudgetExceeded as refusal:
            answer = str(refusal)
        found.append([answer, float(rule.epsilon).hex()])
    return found


def test_published_rules():
    found = {}
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-6), (20.0, 1e-2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsoundRuleWarning)
            made = [list(rules(epsilon, delta)) for _ in SEQUENCES]
        for (name, sequence), ours in zip(SEQUENCES.items(), made, strict=True):
            for number, rule in enumerate(ours):
                label = f"{epsilon} {delta} {number} {type(rule).__name__} {name}"
                found[label] = [rule.validity.value, *answers(rule, sequence)]
    goldens.compare("published_rules", found, near=NEAR)


# -- calibration, planning and comparison ----------------------------------------------------

SMALL = [(3.0, 1e-6, 10, 1.0)]
LARGE = [
    (1.0, 1e-5, 1, 1.0),
    (8.0, 1e-3, 3, 1.0),
    (0.1, 1e-9, 1, 1.0),
    (1.0, 1e-5, 1000, 0.01),
    (3.0, 1e-6, 400, 0.05),
    (0.5, 1e-8, 50, 0.2),
    (10.0, 1e-5, 20000, 0.001),
    (1.0, 1e-6, 100000, 1.0),
    (30.0, 1e-5, 5, 0.5),
]


def calibrated(asked: list[tuple[float, float, int, float]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for epsilon, delta, steps, rate in asked:
        noise = noise_for(epsilon, delta, steps=steps, sample_rate=rate)
        back = epsilon_for(noise, delta, steps=steps, sample_rate=rate)
        found[f"{epsilon} {delta} {steps} {rate}"] = hexes([noise, back])
    return found


def planned(epsilon: float, delta: float, **asked: object) -> object:
    made = plan(epsilon, delta, **asked)
    return [str(made), [[row.rule, str(row.cost), row.steps] for row in made.rows]]


def compared(schedule: list[tuple[Cost, int]], delta: float, **how: object) -> object:
    made = compare(schedule, delta, points=3, **how)
    lines = {f"{line.name}: {line.validity.value}": hexes(line.epsilons) for line in made.lines}
    return [made.steps, lines]


def test_calibration():
    goldens.compare("calibration", calibrated(SMALL), near=NEAR)


@pytest.mark.slow
def test_more_calibration():
    goldens.compare("calibration_more", calibrated(LARGE), near=NEAR)


@pytest.mark.slow
def test_plans_and_comparisons():
    steps = [(SampledGaussian(0.01, 1.0), 200), (SampledGaussian(0.02, 1.5), 300)]
    found = {
        "plan gaussian": planned(1.0, 1e-5, cost=Gaussian(10.0)),
        "plan step": planned(2.0, 1e-5, cost=SampledGaussian(0.01, 1.0)),
        "plan laplace": planned(3.0, 1e-6, cost=Laplace(5.0)),
        "plan pure": planned(3.0, 1e-6, cost=PureDp(0.1)),
        "plan noise": planned(3.0, 1e-6, steps=10),
        "plan noise of steps": planned(2.0, 1e-5, steps=500, sample_rate=0.02),
        "compare steps": compared(steps, 1e-5),
        "compare pure": compared([(PureDp(0.05), 30), (Laplace(30.0), 9)], 1e-6),
        "compare with menus": compared([(Gaussian(6.0), 12), (Gaussian(9.0), 6)], 1e-6, menu=True),
    }
    for discretization in (1e-4, 1e-3):
        for name in ("gaussians", "steps"):
            rule = PldComposition(delta=1e-6, discretization=discretization)
            found[f"pld {name} {discretization}"] = answers(rule, SEQUENCES[name])
    goldens.compare("affordable", found, near=1e-6)
