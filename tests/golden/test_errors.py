"""What wrong calls raise: the class and the whole text, call by call.

A row of a table is a function, arguments that it takes, and wrong values of each: every case passes
one of them in place of the right one. What is no wrong value of one argument stands in a list of
labels and calls. A call that is not refused is recorded as such.
"""

import datetime
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import goldens
from dosimeter import (
    ApproxDp,
    ApproxZcdp,
    BestOf,
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
    epsilon_for,
    noise_for,
    refine,
)
from dosimeter.accounting import Mixture, make_menu
from dosimeter.accounting.classic import (
    AdvancedComposition,
    BasicComposition,
    FixedOrderFilter,
    LecuyerOdometer,
    PldComposition,
    RdpComposition,
    RogersFilter,
    StackedOdometer,
)
from dosimeter.compare import compare, plan, read_schedule
from dosimeter.decisions import (
    AdaptBatch,
    AdaptNoise,
    AutoRate,
    Horizon,
    LowerNoise,
    RootBatch,
    StepSettings,
    StopEarly,
    Ticket,
    costs_of,
    filter_for,
    lasting,
    require_useful,
)
from dosimeter.ledger import Ledger
from dosimeter.rdp import Orders
from dosimeter.rdp.plain import from_plain, to_plain
from dosimeter.runs import read_config, starter_for

NAN, INF = math.nan, math.inf
REPLACE, USER = Neighbours.REPLACE_ONE_RECORD, Neighbours.ADD_REMOVE_USER

REAL = [NAN, "1", None, True]
POSITIVE = [0, -1.5, INF, -INF, 10**400, *REAL]
NON_NEGATIVE = [-1e-300, INF, *REAL]
UNIT = [0, 1, -0.1, 2, INF, *REAL]
COUNT = [0, -3, 2**53 + 1, 1.0, "3", None, True]
RELATION = ["replace one record", None, 1]
COST = [1.0, "gaussian", None, Gaussian]
ELSE = Gaussian(1.0, neighbours=USER)

Row = tuple[str, Callable[..., Any], dict[str, Any], dict[str, list[Any]]]
Call = tuple[str, Callable[[], Any]]


def of_rows(rows: Iterable[Row]) -> Iterable[Call]:
    """Yield a call for each wrong value, and one with a name that is misspelt."""
    for name, made, good, wrong in rows:
        for argument, values in wrong.items():
            for value in values:
                label = f"{name}: {argument}={value!r:.100}"
                yield label, partial(made, **{**good, argument: value})
        yield f"{name}: misspelt", partial(made, **good, epsilom=1.0)


def refused(calls: Iterable[Call], *hidden: object) -> dict[str, object]:
    """Return what every call raises, without paths."""
    found: dict[str, object] = {}
    for label, call in calls:
        assert label not in found, label
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except Exception as error:
            said = str(error).partition(". Did you mean")[0] if "misspelt" in label else str(error)
            for path in hidden:
                said = said.replace(str(path), "HERE")
            bases = [base.__name__ for base in type(error).__mro__[:-3]]
            found[label] = {"raised": " < ".join(bases), "says": said}
        else:
            found[label] = "not refused"
    return found


# -- costs -----------------------------------------------------------------------------------

GOOD_CURVE = {"orders": [2, 3], "rdp": [0.1, 0.2]}

COSTS: list[Row] = [
    (
        "Gaussian",
        Gaussian,
        {"noise_multiplier": 1.0},
        {"noise_multiplier": POSITIVE, "neighbours": RELATION},
    ),
    ("Laplace", Laplace, {"scale": 1.0}, {"scale": POSITIVE}),
    (
        "SampledGaussian",
        SampledGaussian,
        {"sample_rate": 0.1, "noise_multiplier": 1.0},
        {
            "sample_rate": [0, -0.1, 1.0000001, INF, *REAL],
            "noise_multiplier": [0, NAN, INF],
            "neighbours": [REPLACE],
        },
    ),
    ("PureDp", PureDp, {"epsilon": 1.0}, {"epsilon": POSITIVE}),
    (
        "ApproxDp",
        ApproxDp,
        {"epsilon": 1.0, "delta": 0.1},
        {"epsilon": [0, NAN], "delta": [1, -0.1, *REAL]},
    ),
    ("Zcdp", Zcdp, {"rho": 1.0}, {"rho": NON_NEGATIVE, "xi": [-1, NAN, INF]}),
    (
        "ApproxZcdp",
        ApproxZcdp,
        {"rho": 1.0, "delta": 0.1},
        {"rho": [-1, NAN], "delta": [1, -0.1, NAN]},
    ),
    (
        "Curve",
        Curve,
        GOOD_CURVE,
        {
            "orders": [
                [],
                "23",
                2,
                [1, 2],
                [2, 2],
                [3, 2],
                [2, NAN],
                [2, 1e9],
                [2, 3, 4],
                [2, "3"],
            ],
            "rdp": [[], "01", 0.1, [0.1], [0.1, -1], [0.1, NAN], [None, 1]],
            "neighbours": RELATION,
        },
    ),
    (
        "BestOf",
        BestOf,
        {"cost": Gaussian(9.0), "steps": 1, "mean": 3},
        {
            "cost": [*COST, ELSE, ApproxDp(0.1, 0.1)],
            "steps": COUNT,
            "mean": [0, 0.999, INF, NAN, "2", None],
            "eta": [-1, -2, INF, NAN, "0"],
        },
    ),
    (
        "Together",
        Together,
        {"costs": [Gaussian(1.0)]},
        {
            "costs": [
                [],
                "costs",
                1,
                Gaussian(1.0),
                [1.0],
                [Gaussian(1.0), ELSE],
                [ApproxDp(1.0, 0.5)] * 2,
            ],
            "neighbours": [REPLACE, None, "any"],
        },
    ),
    (
        "refine",
        refine,
        {"old": Gaussian(3.0), "new": Gaussian(1.0)},
        {
            "old": [Gaussian(1.0), SampledGaussian(0.1, 3.0), 3.0],
            "new": [Gaussian(3.0), ELSE, None, Laplace(1.0)],
        },
    ),
    ("Event", Event, {"event": None}, {"event": [None, 1.0, Gaussian(1.0)]}),
    (
        "Orders",
        Orders,
        {"values": [2]},
        {"values": [[], "2", 2, [1.0], [NAN], [INF], [2, 2], [True]]},
    ),
    (
        "Gaussian.rdp",
        Gaussian(1.0).rdp,
        {"orders": [2]},
        {"orders": [[], 2, [1], [3, 2], "23", [None]]},
    ),
    ("to_plain", to_plain, {"cost": Gaussian(1.0)}, {"cost": COST}),
    (
        "from_plain",
        from_plain,
        {"plain": {"kind": "gaussian", "noise_multiplier": 1.0}},
        {
            "plain": [
                None,
                [],
                {},
                {"kind": "gausian"},
                {"kind": "gaussian"},
                {"kind": ["gaussian"]},
                {"kind": "gaussian", "noise_multiplier": "1"},
                {"kind": "gaussian", "noise_multiplier": 0},
                {"kind": "gaussian", "noise_multiplier": "inf"},
                {"kind": "gaussian", "noise_multiplier": 1.0, "scale": 1.0},
                {"kind": "gaussian", "noise_multiplier": 1.0, "neighbours": "two"},
                {"kind": "event", "event": {"type": "NoDpEvent"}},
                {"kind": "event", "event": {"type": "GaussianDpEvent"}},
                {"kind": "together", "costs": []},
            ]
        },
    ),
    (
        "Neighbours.named",
        Neighbours.named,
        {"words": "replace one record"},
        {"words": ["", None, "replace"]},
    ),
]


class Free(Cost):
    """A cost of the user's own with a curve that is none."""

    def __init__(self, curve: object, delta: float = 0.0, pure: float = math.inf) -> None:
        super().__init__()
        for name, value in (("curve", curve), ("delta", delta), ("pure", pure)):
            object.__setattr__(self, name, value)

    def _curve(self, orders):
        return self.curve

    @property
    def pure_epsilon(self):
        return self.pure

    def __repr__(self) -> str:
        return "Free()"

    __str__ = __repr__
    __hash__ = object.__hash__


def events() -> Iterable[Call]:
    import dp_accounting as dp

    near = dp.NeighboringRelation
    gaussian = dp.GaussianDpEvent(1.0)
    sampled = partial(dp.PoissonSampledDpEvent, 0.1)
    for label, event, relation in (
        ("negative noise", dp.GaussianDpEvent(-1.0), near.ADD_OR_REMOVE_ONE),
        ("NaN", dp.LaplaceDpEvent(NAN), near.ADD_OR_REMOVE_ONE),
        ("rate", dp.PoissonSampledDpEvent(2.0, gaussian), near.ADD_OR_REMOVE_ONE),
        ("sampled, replaced", sampled(gaussian), near.REPLACE_ONE),
        ("sampled laplace", sampled(dp.LaplaceDpEvent(1.0)), near.ADD_OR_REMOVE_ONE),
        ("no relation", gaussian, near.REPLACE_SPECIAL),
        ("unsupported", dp.UnsupportedDpEvent(), near.ADD_OR_REMOVE_ONE),
        ("fixed size", dp.SampledWithoutReplacementDpEvent(9, 3, gaussian), near.ADD_OR_REMOVE_ONE),
        ("count", dp.SelfComposedDpEvent(gaussian, 2**60), near.ADD_OR_REMOVE_ONE),
        (
            "product of counts",
            dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(gaussian, 2**40), 2**40),
            near.ADD_OR_REMOVE_ONE,
        ),
        (
            "best of none",
            dp.dp_event.RepeatAndSelectDpEvent(gaussian, 0.5, 1.0),
            near.ADD_OR_REMOVE_ONE,
        ),
    ):
        yield f"Event: {label}", partial(Event, event, neighbours=relation)


# -- gates -----------------------------------------------------------------------------------

GOOD_FILTER = {"epsilon": 1.0, "delta": 1e-6}
TERMS = {
    "approx_delta": [-1e-9, 1, INF, NAN, "0"],
    "orders": [[], 2, "23", [1], [2, 2]],
    "weights": [[1.0], "1", [0.5, NAN]],
    "cut": [-0.1, 0.3, NAN, "0"],
    "neighbours": RELATION,
}
MENU = [
    [],
    [1.0],
    Gaussian(1.0),
    "menu",
    [Gaussian(0.1)],
    [ELSE],
    [Zcdp(1.0)],
    [ApproxDp(0.1, 0.1)],
]

GATES: list[Row] = [
    (
        "Filter",
        Filter,
        GOOD_FILTER,
        {
            "epsilon": POSITIVE,
            "delta": UNIT,
            "plan": [
                Gaussian(1.0),
                (Gaussian(1.0),),
                (1, 1),
                (Gaussian(1.0), 0),
                (Gaussian(1.0), NAN),
                3,
            ],
            "menu": [*MENU, [Gaussian(1.0)] * 2, [Gaussian(1e-3)], [PureDp(5.0)]],
            **TERMS,
        },
    ),
    (
        "Filter with orders",
        Filter,
        {**GOOD_FILTER, "orders": [2, 3]},
        {"weights": [[1.0], [0.5, 0.6], [1.0, 0.0], [-0.5, 1.5]]},
    ),
    (
        "Filter with a plan",
        Filter,
        {**GOOD_FILTER, "plan": (Gaussian(1.0), 1)},
        {"weights": [[1.0]]},
    ),
    (
        "Odometer",
        Odometer,
        {"delta": 1e-6},
        {"delta": UNIT, "menu": MENU[:6], "plan": [(Gaussian(1.0), 3)], **TERMS},
    ),
    (
        "Odometer with a menu",
        Odometer,
        {"delta": 1e-6, "menu": [Gaussian(5.0)], "plan": (Gaussian(5.0), 3)},
        {
            "plan": [
                (Gaussian(4.0), 3),
                (Gaussian(5.0), 0),
                (Gaussian(5.0), (9, 3)),
                (Gaussian(5.0), (0, 3)),
                (Gaussian(5.0), "3"),
                (Gaussian(5.0), (1, 2, 3)),
                Gaussian(5.0),
                3,
            ]
        },
    ),
    *(
        (
            f"Filter.{name}",
            partial(lambda name, **how: getattr(Filter(1.0, 1e-6), name)(**how), name),
            {"cost": Gaussian(9.0), "count": 1},
            {"cost": [*COST, ELSE, Gaussian(9.0, neighbours=REPLACE)], "count": COUNT},
        )
        for name in ("spend", "admits")
    ),
    (
        "Filter.affordable",
        lambda **how: Filter(1.0, 1e-6).affordable(**how),
        {"cost": Gaussian(9.0)},
        {"cost": [*COST, ELSE]},
    ),
    (
        "Odometer.spend",
        lambda **how: Odometer(1e-6).spend(**how),
        {"cost": Gaussian(9.0)},
        {"cost": COST, "count": COUNT},
    ),
    (
        "Mixture",
        Mixture,
        {"orders": [2, 3], "weights": [0.5, 0.5], "delta": 0.1},
        {"orders": [[], [2]], "weights": [[0.5], [0.5, 0.4], [1, 0], "ab"], "delta": [0, 1, NAN]},
    ),
    (
        "Mixture.epsilon",
        lambda **how: Mixture([2, 3], [0.5, 0.5], 0.1).epsilon(**how),
        {"rdp_sums": [1, 1]},
        {"rdp_sums": [[1], [-1, 1], [NAN, 1], "ab"]},
    ),
    (
        "make_menu",
        make_menu,
        {"costs": [Gaussian(5.0)], "epsilon": 1.0, "delta": 1e-6},
        {"costs": [[], [1]], "epsilon": [0, NAN, INF], "delta": [0, 1, NAN]},
    ),
]


def state_with(**changes: object) -> dict[str, object]:
    state = {**Filter(1.0, 1e-6, orders=[2, 3]).state(), **changes}
    return {name: value for name, value in state.items() if value is not ...}


def sealed(**changes: object) -> dict[str, object]:
    """Return a state whose checksum is right."""
    from dosimeter.accounting.state import seal

    state = state_with(**changes)
    body = {name: state[name] for name in state if name not in ("kind", "version", "checksum")}
    return seal("filter", body)


def gate_calls() -> Iterable[Call]:
    for label, state in {
        "none": None,
        "empty": {},
        "version": state_with(version=99),
        "kind": state_with(kind="odometer"),
        "field missing": state_with(rdp=...),
        "field too many": state_with(more=1),
        "edited": state_with(delta=1e-3),
        "checksum": state_with(checksum="0"),
        "beyond the limit": sealed(rdp=[9.0, 9.0]),
        "negative": sealed(rdp=[-1.0, 9.0]),
        "NaN": state_with(pure_epsilon=NAN),
        "too short": sealed(rdp=[0.0]),
        "delta beyond": sealed(spent_delta=0.5),
        "cut beyond": sealed(spent_cut=0.5),
        "terms": sealed(epsilon=-1.0),
        "weights": sealed(weights=[1.0, 1.0]),
        "words": sealed(rdp="ab"),
    }.items():
        yield f"Filter.from_state: {label}", partial(Filter.from_state, state)
    yield "Odometer.from_state: of a filter", lambda: Odometer.from_state(state_with())
    yield "copied", lambda: __import__("copy").copy(Filter(1.0, 1e-6))
    yield "pickled", lambda: __import__("pickle").dumps(Odometer(1e-6))
    yield "no such attribute of the package", lambda: __import__("dosimeter").Fliter
    yield "no such attribute of accounting", lambda: __import__("dosimeter.accounting").accounting.X
    for name, curve in {"too short": [0.1], "negative": [-1.0, 1.0], "NaN": [NAN, 1.0]}.items():
        spend = Filter(1.0, 1e-6, orders=[2, 3]).spend
        yield f"own cost: {name}", partial(spend, Free(curve))
    yield "own cost: delta", lambda: Filter(1.0, 1e-6, orders=[2]).spend(Free([0.1], delta=NAN))
    yield "own cost: pure", lambda: Filter(1.0, 1e-6, orders=[2]).spend(Free([0.1], pure=-1.0))
    for name, spend in {
        "epsilon": lambda: Filter(1.0, 1e-6).spend(Gaussian(1.0)),
        "some of it": lambda: Filter(1.0, 1e-6).spend(PureDp(0.3), 4),
        "no delta": lambda: Filter(1.0, 1e-6).spend(ApproxDp(0.1, 1e-7)),
        "delta": lambda: Filter(1.0, 1e-6, approx_delta=1e-6).spend(ApproxDp(1e-9, 1e-7), 11),
        "odometer's delta": lambda: Odometer(1e-6, approx_delta=1e-8).spend(ApproxDp(0.1, 1e-7)),
        "together": lambda: Filter(1.0, 1e-6).spend(Together([Gaussian(9.0), PureDp(2.0)])),
        "menu": lambda: Filter(1.0, 1e-6, menu=[Gaussian(9.0)]).spend(Gaussian(9.0), 99),
        "off menu": lambda: Filter(1.0, 1e-6, menu=[Gaussian(9.0)]).spend(Gaussian(1.0)),
        "unpriced": lambda: Filter(1.0, 1e-6, menu=[Gaussian(9.0)]).spend(Zcdp(1.0)),
        "parts": lambda: Filter(1.0, 1e-6, menu=[Gaussian(9.0)]).spend(
            Together([Gaussian(9.0)] * 99)
        ),
        "infinite": lambda: Filter(1.0, 1e-6).spend(Curve([2], [INF])),
    }.items():
        yield f"refused: {name}", spend


# -- rules, calibration, comparison ----------------------------------------------------------

RULES: list[Row] = [
    (
        "BasicComposition",
        BasicComposition,
        {"delta": 0.1},
        {"delta": [0, NAN], "epsilon": [0, NAN, "1"]},
    ),
    ("AdvancedComposition", AdvancedComposition, {"delta": 0.1}, {"delta": [1, "0.1"]}),
    ("RdpComposition", RdpComposition, {"delta": 0.1}, {"delta": [0], "orders": [[], [1], 2]}),
    (
        "RogersFilter",
        RogersFilter,
        {"epsilon": 1.0, "delta": 0.1},
        {"epsilon": [0, NAN], "delta": [0]},
    ),
    (
        "FixedOrderFilter",
        FixedOrderFilter,
        {"epsilon": 1.0, "delta": 0.1, "order": 2},
        {"order": [1, NAN, None], "epsilon": [-1]},
    ),
    (
        "StackedOdometer",
        StackedOdometer,
        {"delta": 0.1, "order": 2, "size": 1.0},
        {"order": [0], "size": [0, INF, NAN]},
    ),
    (
        "LecuyerOdometer",
        LecuyerOdometer,
        {"delta": 0.1},
        {"delta": [0], "orders": [[]], "first_filter": [0, NAN]},
    ),
    (
        "PldComposition",
        PldComposition,
        {"delta": 0.1},
        {"delta": [NAN], "discretization": [0, NAN]},
    ),
    (
        "RogersFilter.spend",
        lambda **how: RogersFilter(1.0, 0.1).spend(**how),
        {"cost": PureDp(0.1)},
        {"cost": [*COST, Gaussian(1.0)], "count": COUNT},
    ),
    (
        "StackedOdometer.spend",
        lambda **how: StackedOdometer(0.1, order=2, size=0.1).spend(**how),
        {"cost": PureDp(0.1)},
        {"cost": [Gaussian(1.0)]},
    ),
    (
        "PldComposition.spend",
        lambda **how: PldComposition(delta=0.1).spend(**how),
        {"cost": PureDp(0.1)},
        {"cost": [Curve([2], [1.0])]},
    ),
    (
        "noise_for",
        noise_for,
        {"epsilon": 3.0, "delta": 1e-6, "steps": 3},
        {
            "epsilon": [0, NAN, INF, "3", 1e-9],
            "delta": [0, 1, NAN],
            "steps": [0, 1.5, None],
            "sample_rate": [0, 2, NAN, "1"],
        },
    ),
    (
        "epsilon_for",
        epsilon_for,
        {"noise_multiplier": 5.0, "delta": 1e-6, "steps": 3},
        {
            "noise_multiplier": [0, NAN, INF, 1e-9],
            "delta": [0, 1, NAN],
            "steps": [0, 1.5, None],
            "sample_rate": [0, 2, NAN],
        },
    ),
    (
        "plan",
        plan,
        {"epsilon": 1.0, "delta": 1e-6, "cost": Gaussian(9.0)},
        {
            "epsilon": [0, NAN, "1"],
            "delta": [0, 1, NAN],
            "cost": [None, 1.0, Zcdp(1.0)],
            "steps": [3],
        },
    ),
    (
        "plan of steps",
        plan,
        {"epsilon": 1.0, "delta": 1e-6, "steps": 3},
        {"steps": [0, 1.5], "sample_rate": [0, 2, NAN]},
    ),
    (
        "compare",
        compare,
        {"schedule": [(Gaussian(9.0), 1)], "delta": 1e-6},
        {
            "schedule": [
                [],
                [1],
                [(1.0, 1)],
                [(Gaussian(9.0), 0)],
                [(Zcdp(1.0), 1)],
                3,
                [(Gaussian(9.0), 1), (ELSE, 1)],
            ],
            "delta": [0, 1, NAN],
            "points": [0, 1.5],
        },
    ),
]


def schedules(folder: Path) -> Iterable[Call]:
    row = {"steps": 1, "sample_rate": 0.1, "noise_multiplier": 1.0}
    for number, text in enumerate(
        [
            "",
            "{}",
            "[]",
            "[1]",
            "[" * 9999,
            "no json",
            *(
                json.dumps([{**row, **wrong}])
                for wrong in (
                    {"steps": 1.5},
                    {"steps": 0},
                    {"sample_rate": 2},
                    {"noise_multiplier": 0},
                    {"more": 1},
                    {"steps": None},
                    {"noise_multiplier": "x"},
                    {"steps": INF},
                )
            ),
            json.dumps([row, {"steps": 3}]),
        ]
    ):
        path = folder / f"{number}.json"
        path.write_text(text)
        yield f"read_schedule: {text[:60]}", partial(read_schedule, path)
    (folder / "rows.csv").write_text("steps,sample_rate\n1,0.1\n")
    (folder / "none.csv").write_text("steps,sample_rate,noise_multiplier\n")
    for name in ("rows.csv", "none.csv", "absent.csv", "rows.txt"):
        yield f"read_schedule: {name}", partial(read_schedule, folder / name)


# -- decisions -------------------------------------------------------------------------------

SETTINGS = StepSettings(1.0, 10, 100)

DECISIONS: list[Row] = [
    (
        "StepSettings",
        StepSettings,
        {"noise_multiplier": 1.0, "batch_size": 1, "records": 9},
        {"noise_multiplier": POSITIVE, "batch_size": [*COUNT, 10], "records": COUNT},
    ),
    ("RootBatch", RootBatch, {}, {"scale": [0, NAN, "1"]}),
    ("Horizon", Horizon, {}, {"steps": [0, 1.5, None]}),
    (
        "StopEarly",
        StopEarly,
        {"target": 0.9},
        {
            "target": [None, NAN, "1"],
            "patience": [0, 1.5],
            "every": [0, 1.5, None],
            "significance": [-1, NAN, INF, "3"],
        },
    ),
    (
        "AdaptNoise",
        AdaptNoise,
        {},
        {"step": [0, NAN], "every": [0], "horizon": [0, 1.5], "levels": [0, 1.5]},
    ),
    (
        "AdaptBatch",
        AdaptBatch,
        {},
        {"step": [0, 1.5], "minimum": [0, 1.5], "every": [0], "horizon": [0]},
    ),
    (
        "LowerNoise",
        LowerNoise,
        {},
        {"start": [0, NAN, 0.5], "step": [0, NAN], "minimum": [0, NAN, 3.0], "every": [0]},
    ),
    ("AutoRate", AutoRate, {}, {"reach": [0, NAN, "30"], "momentum": [-0.1, 1, NAN, "0.9"]}),
    (
        "AutoRate.restore",
        lambda **how: AutoRate().restore(**how),
        {"state": {"squares": 1.0, "seen": 1}},
        {"state": [{}, {"seen": 1}, {"a": 1}]},
    ),
    ("costs_of", costs_of, {"settings": SETTINGS}, {"policies": [[1], 3], "signal": [1.0]}),
    (
        "filter_for",
        partial(filter_for, note=print),
        {"epsilon": 1.0, "delta": 1e-6, "costs": lambda: [Gaussian(9.0)]},
        {"epsilon": [0, NAN], "delta": [0, NAN]},
    ),
    (
        "require_useful",
        require_useful,
        {"settings": SETTINGS, "steps": 1, "epsilon": 1.0, "delta": 1e-6},
        {"settings": [StepSettings(11.0, 10, 100), StepSettings(1e4, 1, 1)]},
    ),
]


def decided() -> Iterable[Call]:
    def lasts(epsilon: float, steps: int) -> object:
        return lasting(
            epsilon,
            1e-6,
            settings=lambda noise: StepSettings(noise, 10, 100),
            steps=steps,
            menu=None,
            planned=lambda noise: [(StepSettings(noise, 10, 100).cost, steps)],
            note=print,
        )

    yield "lasting: too small", partial(lasts, 1e-3, 10)
    yield "lasting: far too small", partial(lasts, 1e-9, 10)
    ticket = Ticket(SETTINGS)
    yield "Ticket: no piece", ticket.redeem


# -- ledger ----------------------------------------------------------------------------------

G = Gaussian(20.0)


THEN = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
"""When the clocks of the ledgers stand still."""


def filled(folder: Path) -> Path:
    """Return the file of a ledger with a budget of every kind."""
    path = folder / "filled.db"
    with Ledger.open(str(path), clock=lambda: THEN) as ledger:
        ledger.create("team", 1.0, 1e-6)
        ledger.create("over", 1.0, 1e-6).close()
        ledger.create_blocks("days", ["1", "2"], 1.0, 1e-6)
        ledger.create_stream("weeks", "week", 1.0, 1e-6, since=THEN.date())
        ledger.create_stream("shards", "shard", 1.0, 1e-6)
        ledger["team"].spend(G, key="first")
    return path


def on_copy(path: Path, call: Callable[..., Any], **how: object) -> object:
    """Return what a call returns on a copy of a ledger."""
    copy = shutil.copy(path, path.with_name("copy.db"))
    with Ledger.open(str(copy), clock=lambda: THEN) as ledger:
        return call(ledger, **how)


NAMES = ["", " ", "a\nb", "a" * 5000, None, 3, "ü\x00"]

LEDGER: list[tuple[str, Callable[..., Any], dict[str, Any], dict[str, list[Any]]]] = [
    (
        "create",
        Ledger.create,
        {"name": "new", **GOOD_FILTER},
        {
            "name": [*NAMES, "team", "over"],
            "epsilon": [0, NAN],
            "delta": [0, 1],
            "purpose": ["a" * 10**5, 3],
            "actor": ["a" * 10**5, 3],
            "menu": [[], [1]],
            "plan": [3],
            "neighbours": ["any"],
        },
    ),
    (
        "create, other terms",
        Ledger.create,
        {"name": "team", "epsilon": 2.0, "delta": 1e-6, "exist_ok": True},
        {"exist_ok": [True]},
    ),
    (
        "create_odometer",
        Ledger.create_odometer,
        {"name": "new", "delta": 1e-6},
        {"name": ["", "team"], "delta": [0, NAN]},
    ),
    (
        "create_blocks",
        Ledger.create_blocks,
        {"prefix": "new", "labels": ["a"], **GOOD_FILTER},
        {"prefix": ["", "days", None], "labels": [[], ["a", "a"], [""], ["\n"]], "epsilon": [0]},
    ),
    (
        "create_stream",
        Ledger.create_stream,
        {"name": "new", "every": "day", **GOOD_FILTER},
        {
            "name": ["", "weeks", "team", "days"],
            "every": ["hour", "", None, "days"],
            "since": [datetime.date(2, 1, 1), "2026-01-01", datetime.date(2030, 1, 1)],
            "epsilon": [NAN],
        },
    ),
    (
        "create_stream of shards",
        Ledger.create_stream,
        {"name": "new", "every": "shard", **GOOD_FILTER},
        {"since": [datetime.date(2026, 1, 1)]},
    ),
    (
        "getitem",
        lambda ledger, name: ledger[name],
        {"name": "team"},
        {"name": ["teem", "", "no", "days", None]},
    ),
    ("stream", Ledger.stream, {"name": "weeks"}, {"name": ["week", "team", "", None]}),
    (
        "blocks",
        Ledger.blocks,
        {"group": "days"},
        {"group": ["day", "", "team", None], "block": ["3", "1:9", ""]},
    ),
    (
        "spend_all",
        Ledger.spend_all,
        {"costs": {"team": G, "days/1": G}},
        {
            "costs": [
                {},
                {"no": G},
                {"over": G},
                {"team": 1.0},
                {"team": ELSE},
                {"team": G, "days/1": Gaussian(0.5)},
                3,
            ],
            "count": [0, 1.5],
        },
    ),
    (
        "spend",
        lambda ledger, name="team", **how: ledger[name].spend(**how),
        {"cost": G},
        {
            "cost": [*COST, ELSE, Gaussian(0.1), ApproxDp(0.1, 0.1), Free([0.1])],
            "count": COUNT,
            "key": ["", 3, "a" * 5000, "first"],
            "purpose": [3, "a" * 10**5],
            "actor": [3, "a" * 10**5],
            "name": ["over"],
        },
    ),
    (
        "spend, key of another",
        lambda ledger, **how: ledger["team"].spend(**how),
        {"cost": G, "key": "first"},
        {"count": [2], "cost": [Gaussian(30.0)]},
    ),
    (
        "reserve",
        lambda ledger, name="team", **how: ledger[name].reserve(**how),
        {"cost": G, "count": 2},
        {
            "cost": [1.0, ELSE, Gaussian(0.1)],
            "count": [0, 1.5, 10**6],
            "lifetime": [0, NAN, "1"],
            "name": ["over"],
        },
    ),
    (
        "draw",
        lambda ledger, count: ledger["team"].reserve(G, 2).draw(count),
        {"count": 1},
        {"count": [0, 3, 1.5]},
    ),
    (
        "settle",
        lambda ledger, drawn: ledger["team"].settle(ledger["team"].spend(G), drawn),
        {"drawn": 0},
        {"drawn": [-1, 5, 1.5]},
    ),
    (
        "buffered",
        lambda ledger, **how: ledger["team"].buffered(**how),
        {"block": 2},
        {"block": [0, 1.5], "lifetime": [0, NAN]},
    ),
    (
        "history",
        lambda ledger, last: ledger["team"].history(last),
        {"last": 1},
        {"last": [0, -1, 1.5, "a"]},
    ),
    (
        "close",
        lambda ledger, name, **how: ledger[name].close(**how),
        {"name": "team"},
        {"name": ["over"], "purpose": [3]},
    ),
    (
        "price",
        lambda ledger, **how: ledger["team"].price(**how),
        {"cost": G},
        {"cost": [1.0, ELSE], "count": [0]},
    ),
    (
        "stream.add",
        lambda ledger, label, name="shards": ledger.stream(name).add(label),
        {"label": "a"},
        {"label": ["", None, "a/b"], "name": ["weeks"]},
    ),
    (
        "stream.spend",
        lambda ledger, name="weeks", **how: ledger.stream(name).spend(**how),
        {"cost": G},
        {
            "cost": [1.0, Gaussian(0.1)],
            "last": [0, 1.5],
            "blocks": [["no"], [], ["team"]],
            "name": ["shards"],
        },
    ),
    ("verify", Ledger.verify, {"name": "team"}, {"name": ["no", ""], "head": ["no", ""]}),
    (
        "export",
        lambda ledger, **how: list(ledger.export(**how)),
        {"name": "team"},
        {"name": ["no"], "to": ["no"]},
    ),
    ("import_journal", Ledger.import_journal, {"lines": []}, {"lines": [[], ["{}"], ["no"], [""]]}),
    ("statements", Ledger.statements, {}, {"most": [0, 1.5], "after": [3]}),
]


def ledger_calls(folder: Path) -> Iterable[Call]:
    path = filled(folder)
    bound = [
        (name, partial(on_copy, path, call), good, wrong) for name, call, good, wrong in LEDGER
    ]
    yield from of_rows(bound)
    for url in (
        "",
        "mysql://a",
        f"{folder}",
        f"{folder}/none/a.db",
        None,
        "http://",
    ):
        yield f"open: {url}".replace(str(folder), "HERE"), partial(Ledger.open, url)
    yield "open: absent", lambda: Ledger.open(f"{folder}/absent.db", make=False)
    yield "open: timeout", lambda: Ledger.open(f"{folder}/t.db", timeout=-1)
    (folder / "text.db").write_text("no database" * 99)
    yield "open: no database", lambda: Ledger.open(f"{folder}/text.db")


# -- configs ---------------------------------------------------------------------------------

CONFIG: dict[str, dict[str, object]] = {
    "data": {"kind": "digits", "public_test": True},
    "model": {"kind": "linear"},
    "budget": {"kind": "filter", "epsilon": 4.0, "delta": 1e-5},
    "training": {"epochs": 3, "batch_size": 40, "noise_multiplier": 2.0},
    "output": {"folder": "run"},
}
CSV = {"kind": "csv", "path": "a.csv", "label": "y", "classes": 2, "bounds": [0, 1]}
WRONG: list[dict[str, object]] = [
    *({name: None} for name in CONFIG),
    {"traning": {"epochs": 3}},
    *(
        {"data": data}
        for data in (
            {"kind": "csv"},
            {},
            {"kind": "digits", "path": 3},
            {"kind": "digits", "classes": 10},
            {"kind": "digits", "bounds": [0, 1]},
            {"kind": "digits", "public_share": 1.0},
            {"kind": "digits", "public_tset": True},
            {"kind": "digits", "public_test": True, "public_share": 0.1},
            {"kind": "digits", "public_test": "yes"},
            *(
                {**CSV, **wrong}
                for wrong in (
                    {"classes": 1},
                    {"classes": ["a", "a"]},
                    {"bounds": [1, 0]},
                    {"bounds": []},
                    {"bounds": [0, INF]},
                    {"bounds": {"a": [1]}},
                    {"bounds": "no"},
                    {"classes": True},
                )
            ),
        )
    ),
    *(
        {"model": model}
        for model in (
            {},
            {"kind": "linear", "hidden": 3},
            {"kind": "mlp", "hidden": 0},
            {"kind": "mlp", "hidden": "3"},
            {"kind": "mlp", "hiden": 3},
        )
    ),
    *(
        {"budget": budget}
        for budget in (
            {},
            {"kind": "filer"},
            {"kind": "filter"},
            {"kind": "filter", "epsilon": 1.0},
            {"kind": "filter", "epsilon": 0, "delta": 0.1},
            {"kind": "filter", "epsilon": 1, "delta": 1},
            {"kind": "filter", "epsilon": NAN, "delta": 0.1},
            {"kind": "odometer", "epsilon": 1.0},
            {"kind": "odometer", "delta": 0.1, "name": "a"},
            {"kind": "ledger"},
            {"kind": "ledger", "name": "a", "epsilon": 1.0},
            {"kind": "ledger", "name": "a", "delta": 0.1},
            {"kind": "filter", "epsilon": 1.0, "delta": 0.1, "ledger": "a.db"},
            {"kind": "filter", "epsilon": 1.0, "delta": 0.1, "menu": 3},
        )
    ),
    *(
        {"training": {"noise_multiplier": 2.0, **training}}
        for training in (
            {"epochs": 0},
            {"epochs": 1.5},
            {"batch_size": 0},
            {"batch_size": "all"},
            {"momentum": 1.0},
            {"max_grad_norm": 0},
            {"learning_rate": INF},
            {"learning_rate": "auto"},
            {"seed": -1},
            {"seed": 2**63},
            {"noise_multiplier": 0},
            {"noise_multiplier": NAN},
            {"epoch": 3},
            {"physical_batch_size": 0},
        )
    ),
    *(
        {"policy": policy}
        for policy in (
            {},
            {"kind": "adapt"},
            {"kind": "adapt_noise", "minimum": 1.0},
            {"kind": "adapt_noise", "every": 1.5},
            {"kind": "adapt_batch", "step": 1.5},
            {"kind": "lower_noise"},
            {"kind": "adapt_noise", "step": -1.0},
        )
    ),
    {"signal": {}},
    *(
        {"signal": signal, "stop": {"target": 0.9}}
        for signal in (
            {"kind": "count"},
            {"noise_multiplier": 0},
            {"bound": 2.0},
            {"kind": "mean_loss", "bound": NAN},
            {"public": 1},
        )
    ),
    {"signal": {"public": True}, "stop": {"target": 0.9}, "data": {"kind": "digits"}},
    *({"stop": stop} for stop in ({}, {"target": 0}, {"patience": 0}, {"patience": 3, "every": 0})),
    *({"output": output} for output in ({}, {"folder": 3}, {"foldr": "run"})),
    {"budget": {"kind": "odometer", "delta": 1e-5}, "training": {}},
]


def toml(tables: Mapping[str, object]) -> str:
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {inline(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def configs(folder: Path) -> Iterable[Call]:
    path = folder / "config.toml"

    def read(text: str | bytes) -> object:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_config(path)

    for wrong in WRONG:
        tables = {name: table for name, table in {**CONFIG, **wrong}.items() if table is not None}
        yield f"config: {json.dumps(wrong)}", partial(read, toml(tables))
    for text in ("[data", "data = 3", b"\xff\xfe", "[data]\nmean radius = 3", "training = 3"):
        yield f"config: {text!r}", partial(read, text)
    yield "config: absent", lambda: read_config(folder / "absent.toml")
    yield (
        "starter_for: no label",
        lambda: starter_for(["a", "b"], path="a.csv", label="c", config="c"),
    )


# -- training --------------------------------------------------------------------------------


def training() -> Iterable[Call]:
    """Yield calls on small models and data, made anew for each of them."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, RandomSampler, TensorDataset

    from dosimeter.training import (
        AveragedIterate,
        CorrectCount,
        Following,
        MeanLoss,
        PrivateEngine,
        SignRule,
        Trainer,
        fit,
    )

    data = TensorDataset(torch.ones(8, 3), torch.zeros(8, dtype=torch.long))
    none = TensorDataset(torch.ones(0, 3), torch.zeros(0, dtype=torch.long))

    def private(gate=None, model=None, optimizer=None, dataset=data, engine=None, **how):
        model = nn.Linear(3, 2) if model is None else model
        engine = (
            PrivateEngine(Filter(8.0, 1e-5) if gate is None else gate) if engine is None else engine
        )
        good = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "batch_size": 4}
        parameters = [p for p in getattr(model, "parameters", list)() if p.requires_grad]
        made = torch.optim.SGD(parameters or [torch.ones(1)], lr=0.1)
        engine.make_private(model, optimizer or made, dataset, **{**good, **how})
        return engine

    def fitted(model=None, dataset=data, **how):
        model = nn.Linear(3, 2) if model is None else model
        if "gate" not in how:
            how = {"epsilon": 8.0, "delta": 1e-5, **how}
        return fit(model, dataset, **{"batch_size": 4, "epochs": 1, "progress": False, **how})

    models = {
        "no module": 3,
        "frozen": nn.Linear(3, 2).requires_grad_(False),
        "eval": nn.Linear(3, 2).eval(),
        "batch norm": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
        "half": nn.Linear(3, 2).half(),
        "max_norm": nn.Embedding(3, 2, max_norm=1.0),
        "double": nn.Linear(3, 2).double().half(),
    }
    loaders = {
        "sampler": DataLoader(data, batch_size=4, sampler=RandomSampler(data, replacement=True)),
        "no batch": DataLoader(data, batch_size=None),
        "other batch": DataLoader(data, batch_size=2),
    }
    for name, call in (("make_private", private), ("fit", fitted)):
        for label, model in models.items():
            yield f"{name}: model, {label}", partial(call, model=model)
        for label, loader in loaders.items():
            yield f"{name}: DataLoader, {label}", partial(call, dataset=loader)
        for label, dataset in {"none": none, "number": 3, "iterator": iter(())}.items():
            yield f"{name}: dataset, {label}", partial(call, dataset=dataset)
    yield (
        "make_private: optimizer of another",
        partial(private, optimizer=torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)),
    )
    engine = private()
    yield "make_private: twice", partial(private, engine=engine)
    yield "engine: no model", lambda: PrivateEngine(Filter(1.0, 1e-5)).state_dict()
    yield "fit: no budget", lambda: fit(nn.Linear(3, 2), data)
    yield "fit: half a budget", lambda: fit(nn.Linear(3, 2), data, epsilon=1.0)
    yield "fit: two budgets", partial(fitted, gate=(1.0, 1e-5), epsilon=1.0)
    yield "fit: three numbers", partial(fitted, gate=(1.0, 1e-5, 3))
    yield "fit: gate without noise", partial(fitted, gate=Filter(1.0, 1e-5))
    yield "fit: spent gate", partial(fitted, gate=Filter(0.01, 1e-5), noise_multiplier=1.0)
    yield "fit: too little", partial(fitted, epsilon=1e-3, delta=1e-9)
    yield "fit: too little noise", partial(fitted, epsilon=0.1, noise_multiplier=0.5)
    yield "fit: class weights", partial(fitted, loss_fn=nn.CrossEntropyLoss(weight=torch.ones(2)))
    yield "fit: rule's class", partial(fitted, learning_rate=AutoRate)
    yield "fit: optimizer's", partial(fitted, optimizer=lambda p: 3)
    yield "fit: both rates", partial(fitted, optimizer=lambda p: 3, learning_rate=0.1)
    yield "fit: policy without signal", partial(fitted, policy=StopEarly(target=0.9))
    yield "fit: signal without policy", partial(fitted, signal=CorrectCount())
    yield (
        "fit: public signal",
        partial(fitted, policy=StopEarly(0.9), signal=CorrectCount(public=True)),
    )
    yield "step_cost", partial(engine.step_cost, batch_size=9)
    for name, value in {"noise_multiplier": NAN, "batch_size": 0}.items():
        yield f"engine.{name}={value}", partial(setattr, private(), name, value)
    yield "engine.spend: own cost", partial(engine.spend, Free([0.1]))
    yield "engine.spend: too much", partial(engine.spend, Gaussian(0.01))
    yield "load_state_dict: empty", partial(engine.load_state_dict, {})
    state = engine.state_dict()
    yield "load_state_dict: version", partial(engine.load_state_dict, {**state, "version": 99})
    yield "load_state_dict: records", partial(engine.load_state_dict, {**state, "records": 9})
    yield "load_state_dict: model", partial(engine.load_state_dict, {**state, "model": {}})
    yield "signal: no gate", lambda: CorrectCount().read(nn.Linear(3, 2), data)
    yield (
        "signal: refused",
        lambda: CorrectCount().read(nn.Linear(3, 2), data, gate=Filter(1e-3, 1e-9)),
    )
    yield (
        "signal: shape",
        lambda: MeanLoss(public=True, loss_fn=lambda x, y: x).read(nn.Linear(3, 2), data),
    )
    yield "step without a batch", lambda: private().made[1].step()
    yield from of_rows(
        [
            (
                "PrivateEngine",
                PrivateEngine,
                {"gate": Filter(1.0, 1e-5)},
                {"gate": [None, 3, (0, 1e-5), (1.0,), (NAN, 1e-5)], "seed": [-1, 1.5, "a", True]},
            ),
            (
                "make_private",
                private,
                {},
                {
                    "noise_multiplier": POSITIVE,
                    "max_grad_norm": POSITIVE,
                    "batch_size": [*COUNT, 9],
                    "physical_batch_size": [0, 1.5],
                    "records": [0, 3, 1.5],
                    "clipping": ["flt", 3],
                    "loss_reduction": ["none", None],
                    "num_workers": [-1, 1.5],
                },
            ),
            (
                "fit",
                fitted,
                {},
                {
                    "epsilon": [0, NAN, "1"],
                    "delta": [0, 1, NAN],
                    "epochs": [0, 1.5, "3"],
                    "batch_size": [0, 9, 1.5],
                    "noise_multiplier": [0, NAN, INF],
                    "max_grad_norm": [0, NAN],
                    "learning_rate": [0, NAN, "atuo", []],
                    "optimizer": [3],
                    "policy": [3, [3]],
                    "seed": [-1, "a"],
                    "gate": [3, "1"],
                },
            ),
            (
                "Trainer",
                Trainer,
                {"engine": engine},
                {"signal": [CorrectCount()]},
            ),
            ("CorrectCount", CorrectCount, {}, {"noise_multiplier": [0, NAN, INF], "records": [0]}),
            ("MeanLoss", MeanLoss, {}, {"noise_multiplier": [0, NAN], "bound": [0, NAN, INF]}),
            (
                "AveragedIterate",
                AveragedIterate,
                {"engine": engine, "model": engine.made[0]},
                {"decay": [-0.1, 1, NAN]},
            ),
            ("Following", Following, {"engine": engine, "steps": 3}, {"steps": [0, 1.5]}),
            (
                "SignRule",
                partial(SignRule, engine, engine.made[1]),
                {},
                {"gain": [0, NAN], "target": [0, NAN], "memory": [1, NAN], "range": [0, NAN]},
            ),
        ]
    )


def test_training_errors():
    goldens.compare("errors_training", refused(training()))


def test_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("DOSIMETER_ACTOR", "someone")
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    calls: list[Call] = [
        *of_rows(COSTS),
        *events(),
        *of_rows(GATES),
        *gate_calls(),
        *of_rows(RULES),
        *schedules(tmp_path),
        *of_rows(DECISIONS),
        *decided(),
        *ledger_calls(tmp_path),
        *configs(tmp_path),
    ]
    goldens.compare("errors", refused(calls, tmp_path))
