"""What filters and odometers answer to sequences that depend on the answers.

A case is one gate and one seeded sequence. Each step is recorded as the request, the largest count
that the gate would have taken, and epsilon after the step, or the number of its refusal; then
follows all else that the gate says. Every bit counts on processors that compute as the recorder's,
and nine digits elsewhere (`goldens.compare`).

The field "bits" is a digest of a gate's grid and sums, so that none of them may change unseen.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from random import Random

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
    Filter,
    Gaussian,
    Laplace,
    Neighbours,
    Odometer,
    PureDp,
    SampledGaussian,
    Together,
    Zcdp,
)

NEAR = 1e-9
REPLACE, USER = Neighbours.REPLACE_ONE_RECORD, Neighbours.ADD_REMOVE_USER

Gate = Filter | Odometer
Named = tuple[str, Cost]
Opened = tuple[str, Callable[[], Gate], Neighbours]


# -- costs -----------------------------------------------------------------------------------


def drawn(random: Random, size: float, relation: Neighbours) -> Named:
    """Return a cost of about this size (1 is as much as a Gaussian with noise 1), and its name."""
    noise = short(random.uniform(0.7, 1.5) / math.sqrt(size))
    epsilon = short(min(math.sqrt(size), 1e6))
    rate = random.choice([1e-5, 1e-3, 0.01, 0.1, 0.5, 1.0])
    kind = random.randrange(11)
    if kind == 0 or (kind == 1 and relation is REPLACE):
        return f"gaussian {noise}", Gaussian(noise, neighbours=relation)
    if kind == 1:
        return f"sampled {rate} {noise}", SampledGaussian(rate, noise, neighbours=relation)
    if kind == 2:
        return f"laplace {noise}", Laplace(noise, neighbours=relation)
    if kind == 3:
        return f"pure {epsilon}", PureDp(epsilon, neighbours=relation)
    if kind == 4:
        delta = random.choice([0.0, 1e-9, 1e-7])
        return f"approx {epsilon} {delta}", ApproxDp(epsilon, delta, neighbours=relation)
    if kind == 5:
        rho, xi = short(size / 2), random.choice([0.0, 0.0, 1e-3])
        return f"zcdp {rho} {xi}", Zcdp(rho, xi, neighbours=relation)
    if kind == 6:
        rho = short(size / 2)
        return f"approx zcdp {rho} 1e-08", ApproxZcdp(rho, 1e-8, neighbours=relation)
    if kind == 7:
        low = short(size / 3)
        curve = Curve([1.5, 4, 33], [low, 3 * low, 20 * low], neighbours=relation)
        return f"curve {low}", curve
    if kind == 8:
        return f"event {noise}", event(noise, relation)
    if kind == 9:
        bundle = [
            Gaussian(2 * noise, neighbours=relation),
            PureDp(short(epsilon / 4), neighbours=relation),
        ]
        return f"together {noise} {short(epsilon / 4)}", Together(bundle)
    trial, mean = Gaussian(short(3 * noise), neighbours=relation), random.choice([1, 5, 20])
    eta = random.choice([-0.5, 0.0, 1.0])
    return f"best of {mean} {eta} {short(3 * noise)}", BestOf(
        trial, 2, mean, eta, neighbours=relation
    )


def short(value: float) -> float:
    return float(f"{value:.3g}")


def event(noise: float, relation: Neighbours) -> Cost:
    import dp_accounting as dp

    parts = [dp.GaussianDpEvent(2 * noise), dp.SelfComposedDpEvent(dp.LaplaceDpEvent(4 * noise), 3)]
    return Event(dp.ComposedDpEvent(parts), neighbours=relation)


ENDS: dict[str, Cost] = {
    **{f"gaussian {noise}": Gaussian(noise) for noise in (5e-324, 1e-160, 1e-3, 1e3, 1e160, 1e308)},
    **{f"laplace {scale}": Laplace(scale) for scale in (5e-324, 1e-301, 1e-2, 1e6, 1e308)},
    **{f"pure {epsilon}": PureDp(epsilon) for epsilon in (5e-324, 1e-12, 30.0, 700.0, 1e308)},
    **{f"approx 1.0 {delta}": ApproxDp(1.0, delta) for delta in (5e-324, 1e-6, 0.5, 1 - 2**-53)},
    **{f"zcdp {rho}": Zcdp(rho) for rho in (0.0, 5e-324, 1e-12, 100.0, 1e308)},
    "zcdp 0.0 1e300": Zcdp(0.0, 1e300),
    "approx zcdp 0.0 0.0": ApproxZcdp(0.0, 0.0),
    "approx zcdp 0.1 0.999": ApproxZcdp(0.1, 0.999),
    **{
        f"sampled {rate} {noise}": SampledGaussian(rate, noise)
        for rate in (5e-324, 1e-300, 1e-12, 1e-4, 0.999, 1 - 2**-53, 1.0)
        for noise in (1e-160, 0.1, 1.0, 1e8, 1e160)
    },
    "curve of infinities": Curve([2, 3], [math.inf, math.inf]),
    "curve of one order": Curve([65536], [1e-9]),
    "curve of nothing": Curve([1.01, 1.02], [0, 0]),
    "together with an approx": Together([ApproxDp(0.1, 1e-7), Gaussian(9.0), Zcdp(1e-3)]),
    "together of two relations' least": Together([Gaussian(1e8)] * 3),
    "best of many": BestOf(Gaussian(30.0), 1, 1e6, 3.0),
    "best of nearly any": BestOf(SampledGaussian(0.01, 2.0), 100, 2, -0.9),
    "best of pure": BestOf(PureDp(1e-3), 5, 10),
}
COUNTS = (1, 2, 2**30, 2**53)


# -- one sequence ----------------------------------------------------------------------------


def played(gate: Gate, random: Random, choose: Callable[[float], Named], length: int) -> object:
    """Spend a sequence whose sizes and counts depend on the answers, and return all answers."""
    size, steps, refusals = random.choice([1.0, 0.1, 0.01]) * scale_of(gate), [], []
    for _ in range(length):
        name, cost = choose(size)
        most = gate.affordable(cost)
        within = min(most, 10**6 if gate.limit < math.inf else random.choice([200] * 30 + [2**53]))
        parts = [1, 2, within // 20, within // 6, within // 3, within, most + 1]
        count = min(max(random.choice([*parts, random.randint(1, 9)]), 1), 2**53)
        answer = spent(gate, cost, count, refusals)
        size *= 0.3 if answer.startswith("refused") else 1.2 if most > 20 else 0.5
        steps.append(f"{name} x {count} of {most}: {answer}")
    return {"steps": steps, "refusals": refusals, **told(gate)}


def spent(gate: Gate, cost: Cost, count: int, refusals: list[str]) -> str:
    """Return epsilon after a spend, or the number of its refusal."""
    admitted = gate.admits(cost, count)
    try:
        gate.spend(cost, count)
    except BudgetExceeded as error:
        refusal = error
    else:
        assert admitted
        return gate.epsilon.hex()
    assert not admitted
    assert (refusal.cost, refusal.count, refusal.limit) == (cost, count, gate.limit)
    assert (refusal.spent, refusal.affordable) == (gate.epsilon, gate.affordable(cost))
    refusals.append(str(refusal))
    return f"refused {len(refusals)}"


def told(gate: Gate) -> dict[str, object]:
    """Return all that a gate says of where it stands."""
    more = {}
    if isinstance(gate, Odometer):
        more = {"bounds": [gate.loss_bound.hex(), gate.two_sided_loss_bound.hex()]}
    if gate.menu is not None:
        more["menu"] = [gate.quanta_left, gate.standing.menu, gate.standing.mixture]
    return {
        "remaining": f"bits {gate.remaining.hex()}",  # a difference, which keeps no nine digits
        "share": gate.spent_share.hex(),
        "guarantee": str(gate.guarantee()),
        "bits": f"bits {digest(gate)}",
        **more,
    }


def digest(gate: Gate) -> str:
    """Return a digest of the orders, the weights and all sums of a gate."""
    rdp, *others = gate.tally
    numbers = [*gate.orders, *gate.weights, *rdp, *others]
    return hashlib.sha256(" ".join(float(one).hex() for one in numbers).encode()).hexdigest()[:16]


def scale_of(gate: Gate) -> float:
    """Return the size of a cost of which the gate takes a few runs."""
    if gate.limit == math.inf:
        return 0.3
    return min(gate.limit, gate.limit**2 / (2 - 2 * math.log(gate.delta))) / 4


# -- gates without a menu --------------------------------------------------------------------

FILTERS: dict[str, dict[str, object]] = {
    "plain": {},
    "approx delta": {"approx_delta": 1e-7},
    "much approx delta": {"approx_delta": 0.4},
    "plan of sampled": {"plan": (SampledGaussian(0.01, 1.0), 1000)},
    "plan of one": {"plan": (Gaussian(4.0), 1)},
    "plan of 2**53": {"plan": (PureDp(1e-9), 2**53)},
    "nothing cut": {"cut": 0.0},
    "a fifth cut": {"cut": 0.2},
    "one order": {"orders": [8]},
    "own orders": {"orders": [1.01, 1.5, 2, 7.5, 33, 65536]},
    "own weights": {"orders": [2, 5, 17, 64], "weights": [0.1, 0.4, 0.4, 0.1]},
    "replaced": {"neighbours": REPLACE},
    "user": {"neighbours": USER, "approx_delta": 1e-7},
}
ODOMETERS = {
    name: terms for name, terms in FILTERS.items() if "plan" not in terms and terms != {"cut": 0.2}
}


def relation_of(terms: dict[str, object]) -> Neighbours:
    return terms.get("neighbours", Neighbours.ADD_REMOVE_RECORD)  # type: ignore[return-value]


def variants() -> Iterator[Opened]:
    for variant, terms in FILTERS.items():
        for epsilon, delta in ((0.2, 1e-8), (1.0, 1e-5), (10.0, 1e-6)):
            make = partial(Filter, epsilon, delta, **terms)
            yield f"filter {epsilon} {delta}, {variant}", make, relation_of(terms)
    for variant, terms in ODOMETERS.items():
        for delta in (1e-9, 1e-5):
            yield (
                f"odometer {delta}, {variant}",
                partial(Odometer, delta, **terms),
                relation_of(terms),
            )


def limits() -> Iterator[Opened]:
    for delta in (1e-300, 1e-50, 1e-12, 1e-6, 1e-5, 1e-2, 0.5, 1 - 2**-20):
        for epsilon in (1e-9, 1e-3, 0.1, 1.0, 3.0, 8.0, 30.0, 100.0, 700.0, 1e4):
            yield f"filter {epsilon} {delta}", partial(Filter, epsilon, delta), relation_of({})
        yield f"odometer {delta}", partial(Odometer, delta), relation_of({})


def all_played(opened: Iterator[Opened], numbers: range) -> dict[str, object]:
    found = {}
    for name, make, relation in opened:
        for number in numbers:
            random = Random(f"{name} {number}")
            choose = partial(drawn, random, relation=relation)
            found[f"{name} | {number}"] = played(make(), random, choose, 7)
    return found


def test_sequences():
    goldens.compare("accounts", all_played(variants(), range(4)), near=NEAR)


@pytest.mark.slow
def test_more_sequences():
    found = all_played(variants(), range(4, 15)) | all_played(limits(), range(5))
    goldens.compare("accounts_more", found, near=NEAR)


def test_ends_of_every_parameter():
    found = {}
    for name, cost in ENDS.items():
        for gate_name, gate in (
            ("filter 1", Filter(1.0, 1e-5, approx_delta=1e-6)),
            ("filter 700", Filter(700.0, 1e-12, approx_delta=0.999)),
            ("odometer", Odometer(1e-6, approx_delta=1e-6)),
        ):
            refusals: list[str] = []
            answers = [str(gate.affordable(cost))]
            answers += [spent(gate, cost, count, refusals) for count in COUNTS]
            answers += [spent(gate, Gaussian(10.0), 1, refusals), spent(gate, cost, 1, refusals)]
            found[f"{gate_name} | {name}"] = {
                "answers": answers,
                "refusals": refusals,
                **told(gate),
            }
    goldens.compare("accounts_ends", found, near=NEAR)


# -- gates with a menu -----------------------------------------------------------------------

STEP, WIDE = SampledGaussian(0.01, 1.0), Gaussian(20.0)

Menu = tuple[Callable[[], Gate], Sequence[Cost]]
"""What makes a gate, and what is asked of it: on the menu, off it, and without a price."""


def filter_with(epsilon: float, delta: float, menu: list[Cost], off: list[Cost], **terms) -> Menu:
    made = cache(lambda: Filter(epsilon, delta, menu=menu, **terms).menu)  # seconds, once
    return lambda: Filter(epsilon, delta, menu=made(), **terms), [*menu, *menu, *off]


def odometer_with(delta: float, menu: list[Cost], off: list[Cost], **terms) -> Menu:
    opened = cache(lambda: Odometer(delta, menu=menu, **terms).state())
    return lambda: Odometer.from_state(opened()), [*menu, *menu, *off]


def to(relation: Neighbours, *costs: Cost) -> list[Cost]:
    return [dataclasses.replace(cost, neighbours=relation) for cost in costs]


FAST_MENUS: dict[str, Menu] = {
    "filter of one": filter_with(
        3.0,
        1e-6,
        [Gaussian(5.0)],
        [
            *(Gaussian(7.0), Gaussian(80.0), PureDp(0.02), Laplace(60.0)),
            *(Together([Gaussian(5.0), Gaussian(7.0)]), Zcdp(1e-4)),
        ],
    ),
    "odometer of one": odometer_with(
        1e-6, [Gaussian(5.0)], [Gaussian(7.0), PureDp(0.1)], plan=(Gaussian(5.0), 20)
    ),
}
MENUS: dict[str, Menu] = {
    "step and two": filter_with(
        1.0, 1e-5, [STEP, WIDE, PureDp(0.01)], [SampledGaussian(0.02, 1.0), Laplace(50.0)]
    ),
    "step, approx": filter_with(
        2.0,
        1e-5,
        [SampledGaussian(0.05, 1.2)],
        [ApproxDp(0.01, 1e-8), Curve([2, 9], [0.001, 0.01])],
        approx_delta=1e-7,
        cut=0.1,
    ),
    "large epsilon": filter_with(30.0, 1e-6, [Gaussian(2.0)], [Gaussian(1.5), Laplace(1.0)]),
    "small epsilon": filter_with(0.1, 1e-8, [Gaussian(150.0)], [Gaussian(90.0), PureDp(1e-3)]),
    "least noise": filter_with(60.0, 1e-3, [Gaussian(0.5)], [Gaussian(0.2), Gaussian(0.1)]),
    "laplace": filter_with(2.0, 1e-6, [Laplace(10.0)], [Laplace(5.0), Gaussian(10.0)]),
    "pure": filter_with(1.0, 1e-9, [PureDp(0.05), PureDp(0.1)], [ApproxDp(0.05, 0.0), Zcdp(1e-3)]),
    "replaced": filter_with(
        3.0,
        1e-6,
        to(REPLACE, Gaussian(5.0), Laplace(20.0)),
        to(REPLACE, Gaussian(9.0)),
        neighbours=REPLACE,
    ),
    "user": filter_with(
        3.0, 1e-6, to(USER, SampledGaussian(0.1, 2.0)), to(USER, Gaussian(9.0)), neighbours=USER
    ),
    "own orders": filter_with(
        3.0, 1e-6, [Gaussian(5.0)], [Gaussian(7.0), PureDp(0.02)], orders=[2, 4, 8, 16]
    ),
    "odometer, range": odometer_with(
        1e-6, [Gaussian(4.0)], [Gaussian(8.0)], plan=(Gaussian(4.0), (5, 40))
    ),
    "odometer, no plan": odometer_with(1e-5, [Gaussian(3.0)], [Zcdp(1e-3)]),
    "odometer, step": odometer_with(1e-6, [STEP], [WIDE], plan=(STEP, 500), approx_delta=1e-9),
}


def menus_played(menus: dict[str, Menu], sequences: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, (make, asked) in menus.items():
        gate = make()
        items = [(str(item.cost), item.steps, item.price) for item in gate.menu.items]
        found[name] = [
            items,
            gate.quanta_left,
            gate.menu.credit.hex(),
            repr(gate),
            *told(gate).values(),
        ]
        found[f"{name} | prices"] = {str(cost): priced(gate, cost) for cost in asked}
        for number in range(sequences):
            random = Random(f"{name} {number}")
            # What has no price ends the menu, so it is asked for late, if at all.
            choose = partial(chosen, random, asked, iter(range(99)))
            found[f"{name} | {number}"] = played(make(), random, choose, 8)
    return found


def chosen(random: Random, asked: Sequence[Cost], turns: Iterator[int], size: float) -> Named:
    cost = random.choice(asked[:-1] if next(turns) < 5 else asked)
    return str(cost), cost


def priced(gate: Gate, cost: Cost) -> object:
    item = gate.price(cost)
    return None if item is None else [item.steps, item.price]


def test_sequences_with_a_menu():
    goldens.compare("accounts_menu", menus_played(FAST_MENUS, 20), near=NEAR)


@pytest.mark.slow
def test_sequences_with_more_menus():
    goldens.compare("accounts_menus", menus_played(MENUS, 36), near=NEAR)
