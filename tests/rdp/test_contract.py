"""Every mechanism keeps the contract, and whoever adds one is told what it lacks."""

from __future__ import annotations

import inspect
import math
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import dp_accounting as dpa
import numpy as np
import pytest

import dosimeter as dm
from dosimeter.accounting.priced.losses import single_loss
from dosimeter.accounting.priced.menu import hockey_stick
from dosimeter.rdp import MECHANISMS, Cost
from dosimeter.rdp.cost import Option
from dosimeter.rdp.loss import Atoms, Direction
from rdp import contract

EXAMPLES = {
    dm.Gaussian: [dm.Gaussian(noise) for noise in (0.2, 0.8, 20.0, 1e4)],
    dm.Laplace: [dm.Laplace(scale) for scale in (0.05, 0.7, 12.5, 1e4)],
    dm.SampledGaussian: [
        dm.SampledGaussian(rate, noise)
        for rate, noise in [(0.01, 1.0), (0.7, 3.0), (1e-5, 0.5), (0.999, 0.3), (0.1, 1e3)]
    ],
    dm.PureDp: [dm.PureDp(epsilon) for epsilon in (1e-4, 0.01, 1.3, 30.0)],
    dm.ApproxDp: [dm.ApproxDp(0.1, delta) for delta in (0.0, 1e-9, 1e-8)],
    dm.Zcdp: [dm.Zcdp(0.01), dm.Zcdp(0.01, 0.2)],
    dm.ApproxZcdp: [dm.ApproxZcdp(*each) for each in [(0.01, 0.0), (0.01, 1e-8), (3.0, 0.5)]],
    dm.Curve: [dm.Curve([2.0, 8.0], [0.1, math.inf]), dm.Curve([2.0], [0.1])],
    dm.Event: [
        dm.Event(dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(9.0), 3)),
        dm.Event(dpa.ComposedDpEvent([dpa.GaussianDpEvent(4.0), dpa.ZCDpEvent(0.1, 0.0)])),
    ],
    dm.BestOf: [
        dm.BestOf(dm.PureDp(0.01), 1, 4.0),
        dm.BestOf(dm.PureDp(0.5), 2, 30.0, 1.0),
        dm.BestOf(dm.Laplace(3.0), 1, 1.0, 0.5),
        dm.BestOf(dm.Gaussian(4.0), 2, 16.0, -0.5),
        dm.BestOf(dm.SampledGaussian(0.1, 1.0), 1, 1e4, 2.0),
    ],
    dm.Together: [
        dm.Together([dm.Gaussian(4.0)]),
        dm.Together([dm.Gaussian(4.0), dm.SampledGaussian(0.1, 2.0), dm.Zcdp(0.1)]),
        dm.Together([dm.Laplace(1e3), dm.PureDp(0.01), dm.PureDp(1.3)]),
        dm.Together([dm.ApproxDp(0.1, 1e-9), dm.Gaussian(0.5), dm.ApproxDp(0.1, 1e-9)]),
    ],
}


@pytest.mark.parametrize("clause", contract.CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("made", MECHANISMS, ids=lambda made: made.__name__)
def test_every_mechanism_keeps_every_clause(made, clause):
    clause(made, EXAMPLES.get(made, []))


def test_no_mechanism_is_left_out_of_the_list():
    found = set()
    for module in pkgutil.iter_modules(dm.rdp.__path__, "dosimeter.rdp."):
        for name, value in vars(import_module(module.name)).items():
            if inspect.isclass(value) and issubclass(value, Cost) and not name.startswith("_"):
                found.add(value)
    assert found - {Cost} == set(MECHANISMS)


@dataclass(frozen=True, repr=False)
class Whole(Cost):
    """Randomised response once more, with all that a mechanism states."""

    epsilon: float

    kind: ClassVar[str] = "whole"
    option: ClassVar[Option] = Option("whole", "EPSILON", "A pure epsilon.")

    def _curve(self, orders):
        return dm.PureDp(self.epsilon)._curve(orders)

    def loss(self, direction):
        return Atoms.of(self.worlds(), direction)

    def dp_event(self):
        return None

    def worlds(self):
        p = 1 / (1 + math.exp(-self.epsilon))
        return [(p, 1 - p), (1 - p, p)]


class Nameless(Whole):
    option = None
    loss, dp_event = Whole.loss, Whole.dp_event


class WithoutOption(Whole):
    kind = "x"
    loss, dp_event = Whole.loss, Whole.dp_event


class WithoutLoss(Whole):
    kind, option = "x", None
    dp_event = Whole.dp_event


class WithoutEvent(Whole):
    kind, option = "x", None
    loss = Whole.loss


class Cheap(Whole):
    def _curve(self, orders):
        return 0.5 * super()._curve(orders)


class Unrelated(Whole):
    def loss(self, direction):
        return dm.PureDp(self.epsilon / 2).loss(direction)


class Backward(Whole):
    """More likely in the first world by far, but for a little: the wrong way round."""

    def worlds(self):
        return [(0.1, 0.001), (0.9, 0.999)]

    def _curve(self, orders):
        return np.full(len(orders), 9.0)

    def loss(self, direction):
        return Atoms.of([(q, p) for p, q in self.worlds()], direction)


class Unseen(Whole):
    """Nobody but the builder knows its outcomes."""

    worlds = None

    def loss(self, direction):
        return Atoms.of(Whole.worlds(self), direction)


class Leaky(Whole):
    """One outcome in a thousand gives the record away."""

    def worlds(self):
        return [(0.001, 0.0), (0.999, 1.0)]


class OtherEvent(Whole):
    def dp_event(self):
        return dpa.GaussianDpEvent(100.0)


class Alike(Whole):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


class Careless(Whole):
    def __post_init__(self):
        pass


@pytest.mark.parametrize(
    ("made", "clause", "named"),
    [
        (Nameless, contract.states_its_parts, "Nameless must state kind"),
        (WithoutOption, contract.states_its_parts, "WithoutOption must state option"),
        (WithoutLoss, contract.states_its_parts, "WithoutLoss must state loss"),
        (WithoutEvent, contract.states_its_parts, "WithoutEvent must state dp_event"),
        (Whole, contract.is_registered, "Whole must be in dosimeter.rdp.MECHANISMS"),
        (Cheap, contract.curve_is_never_low, r"curve of Cheap\(.*must be at least"),
        (Cheap, contract.loss_dominates, "must be that of its curve"),
        (Unrelated, contract.loss_dominates, r"loss of Unrelated\(.*must dominate"),
        (Backward, contract.loss_dominates, r"loss of Backward\(.*must dominate"),
        (Unseen, contract.loss_dominates, "pairs.py must know the outputs"),
        (Unseen, contract.curve_is_never_low, "must have a truth"),
        (Unseen, contract.checker_knows_it, "profiles.py, the checker, must know Unseen"),
        (OtherEvent, contract.event_is_the_same_mechanism, "must be the same mechanism"),
        (Alike, contract.is_a_value, "must tell its examples apart"),
        (Alike, contract.states_its_relation, "of another relation must not be equal"),
        (Careless, contract.states_its_relation, "must refuse neighbours"),
    ],
)
def test_the_contract_names_what_is_missing(made, clause, named):
    if made is not Whole:
        clause(Whole, [Whole(0.5), Whole(1.0)])
    with pytest.raises(AssertionError, match=named):
        clause(made, [made(0.5), made(1.0)])


def test_an_outcome_of_one_world_only_is_an_infinite_loss():
    here, there = (single_loss(Leaky(1.0), way, 0) for way in Direction)
    assert here.inf >= 0.001
    assert hockey_stick(here, 50.0) >= 0.001
    assert there.inf < 1e-20
    assert hockey_stick(there, 0.0) >= 0.001
    assert hockey_stick(there, 0.002) < 1e-9
