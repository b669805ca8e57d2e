"""What every mechanism must be, clause by clause; whoever breaks one is told which, and how.

A clause takes a class and examples of it and raises AssertionError in words. Truths come by roads
that share nothing with the library: intervals of outputs, which show less than outputs do
(`adversaries.pairs`), dp-accounting, and the checker of menus, which has its own closed forms.
"""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
from dp_accounting import rdp as dp_accounting_rdp

import dosimeter as dm
from adversaries.pairs import outputs
from dosimeter.accounting.priced.losses import single_loss
from dosimeter.accounting.priced.menu import hockey_stick
from dosimeter.accounting.priced.profiles import pair_of, total_of
from dosimeter.cli.costs import _mechanisms, cost_from, in_words
from dosimeter.rdp.cost import Option, parameters
from dosimeter.rdp.loss import Direction
from dosimeter.rdp.plain import from_plain, to_plain

ORDERS = [1.25, 2.0, 4.0, 8.0]
WHOLE = [2.0, 3.0, 8.0, 32.0]
EPSILONS = [-0.5, 0.0, 0.01, 0.1, 0.5, 1.0, 3.0]
PARTS = {
    "kind": "the name under which it is written down",
    "option": "how the command line takes it, or None",
    "loss": "its exact loss in each direction, or None",
    "dp_event": "its event of dp-accounting, or None",
}


def states_its_parts(made, examples):
    """Nothing is left to a default: what a mechanism has not, it says it has not."""
    for part, what in PARTS.items():
        assert part in vars(made), f"{made.__name__} must state {part}: {what}"
    assert made.kind, f"{made.__name__} must have a kind, got {made.kind!r}"
    assert made.option is None or isinstance(made.option, Option)
    assert examples, f"{made.__name__} must have examples in tests/rdp/test_contract.py"


def is_registered(made, examples):
    """A public name, with a kind and an option that no other has."""
    name = made.__name__
    assert made in dm.rdp.MECHANISMS, f"{name} must be in dosimeter.rdp.MECHANISMS"
    assert name in dm.rdp.__all__, f"{name} must be in dosimeter.rdp.__all__"
    assert name in dm.__all__, f"{name} must be in dosimeter.__all__"
    for key, attribute in (
        ("kind", lambda m: m.kind),
        ("option", lambda m: m.option and m.option.name),
    ):
        mine = attribute(made)
        same = [other.__name__ for other in dm.rdp.MECHANISMS if attribute(other) == mine]
        assert mine is None or same == [name], f"{key} {mine!r} must be of one mechanism: {same}"


def is_a_value(made, examples):
    """Equal, hashable, frozen, and shown as it can be pasted back."""
    for cost in examples:
        again = eval(repr(cost), _names(made))
        assert again == cost, f"{made.__name__} must be equal to what its repr says, got {cost}"
        assert hash(again) == hash(cost), f"{made.__name__} must hash alike where it is equal"
        for name in [*parameters(made), "neighbours"]:
            try:
                setattr(cost, name, None)
            except AttributeError:
                continue
            raise AssertionError(f"{made.__name__}.{name} must be frozen")
    assert len({*examples}) == len(examples), f"{made.__name__} must tell its examples apart"


def curve_is_never_low(made, examples):
    """Against intervals of outputs, both ways round, or dp-accounting's own curve."""
    for cost in examples:
        truths = 0
        if (seen := _seen(cost)) is not None:
            truths += 1
            for way in Direction:
                true = _renyi(seen, way)
                assert np.all(cost.rdp(ORDERS) >= true * (1 - 1e-9)), (
                    f"curve of {cost} must be at least {true} at {ORDERS}, got {cost.rdp(ORDERS)}"
                )
        if cost.dp_event() is not None:
            truths += 1
            theirs = dp_accounting_rdp.RdpAccountant(WHOLE).compose(cost.dp_event()).rdp
            assert np.all(cost.rdp(WHOLE) >= theirs * (1 - 1e-9) - 1e-13), (
                f"curve of {cost} must be at least dp-accounting's, got {cost.rdp(WHOLE)}"
            )
        assert truths or made is dm.Curve, (
            f"{made.__name__} must have a truth to be held against: state dp_event, or teach "
            "tests/adversaries/pairs.py its outputs"
        )


def loss_dominates(made, examples):
    """On the lattice, direction by direction, short of its tail or not; and no other loss."""
    for cost in examples:
        if cost.loss(Direction.REMOVE) is None:
            continue
        seen = _seen(cost)
        assert seen is not None, f"tests/adversaries/pairs.py must know the outputs of {cost}"
        moments = []
        for way in Direction:
            p, q = (seen.p, seen.q) if way is Direction.REMOVE else (seen.q, seen.p)
            for level, reach in ((0, 600.0), (4, 600.0), (0, 0.3)):
                measure = single_loss(cost, way, level, reach)
                assert measure.mass >= 1, f"loss of {cost} must keep its mass ({way.name})"
                for epsilon in EPSILONS:
                    true = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
                    assert hockey_stick(measure, epsilon) >= true * (1 - 1e-9) - 1e-15, (
                        f"loss of {cost} must dominate at epsilon {epsilon} ({way.name})"
                    )
            measure = single_loss(cost, way, 0)
            x = (measure.lo + np.arange(len(measure.p))) * measure.step
            moments.append([math.log(float(measure.p @ np.exp((a - 1) * x))) for a in (1.25, 2.0)])
            moments[-1] = np.array(moments[-1]) / [0.25, 1.0]
            assert np.all(moments[-1] >= _renyi(seen, way)[:2] * (1 - 1e-6)), (
                f"moments of the loss of {cost} must be at least the true ones ({way.name})"
            )
        curve = cost.rdp([1.25, 2.0])
        assert np.all(np.max(moments, axis=0) <= curve * 1.02 + 1e-6), (
            f"loss of {cost} must be that of its curve {curve}, got {moments}"
        )


def checker_knows_it(made, examples):
    """The second pair of eyes on menus has closed forms of its own, and they agree."""
    for cost in examples:
        if cost.loss(Direction.REMOVE) is None:
            continue
        for way in Direction:
            try:
                pair = pair_of(cost, way)
            except ValueError as error:
                raise AssertionError(
                    f"accounting/priced/profiles.py, the checker, must know {made.__name__}, "
                    "by code of its own"
                ) from error
            theirs = total_of(pair, 1, 1e-3, 60.0, 0.0).profile(np.array(EPSILONS))
            ours = [hockey_stick(single_loss(cost, way, 2), epsilon) for epsilon in EPSILONS]
            assert np.allclose(theirs, ours, rtol=5e-3, atol=2e-4), (
                f"checker and loss of {cost} must agree ({way.name}), got {theirs} and {ours}"
            )


def is_written_down(made, examples):
    """Through JSON and back, with nothing added and nothing left out."""
    for cost in examples:
        plain = json.loads(json.dumps(to_plain(cost), allow_nan=False))
        assert from_plain(plain) == cost, f"{cost} must come back from {plain}"
        assert set(plain) == {"kind", *parameters(made)}, f"plain {cost} must be whole, got {plain}"
        odd = [{**plain, "more": 1}, {**plain, "neighbours": "strangers"}]
        odd += [{k: v for k, v in plain.items() if k != name} for name in parameters(made)]
        for wrong in odd:
            try:
                from_plain(wrong)
            except ValueError:
                continue
            raise AssertionError(f"{made.__name__} must not be read from {wrong}")
        users = restated(cost, dm.Neighbours.ADD_REMOVE_USER)
        said = json.loads(json.dumps(to_plain(users)))
        assert said == {**plain, "neighbours": "add/remove one user"}, (
            f"{users} must say so: {said}"
        )
        assert from_plain(said) == users, f"{users} must come back from {said}"


def is_taken_by_the_command_line(made, examples):
    """As an option where it has one, as JSON in any case, and shown as it is typed."""
    for cost in examples:
        plain = to_plain(cost)
        assert cost_from({"cost": json.dumps(plain)}) == cost
        if made.option is None:
            assert in_words(plain) == made.kind
            continue
        name = made.option.name
        assert _mechanisms()[name] is made, f"--{name} must make {made.__name__}"
        typed = in_words(plain)
        option, numbers = typed.split(" ")
        assert option == name.replace("_", "-"), f"{cost} must be shown as --{name}, got {typed}"
        assert cost_from({name: numbers}) == cost, f"--{typed} must be {cost}"
        assert len(made.option.metavar.strip("]").replace("[", "").split(",")) == len(
            parameters(made)
        ), f"--{name} must show what it takes, got {made.option.metavar}"


def event_is_the_same_mechanism(made, examples):
    """What dp-accounting is told costs what we say."""
    for cost in examples:
        if cost.dp_event() is not None:
            again = dm.Event(cost.dp_event())
            assert np.allclose(again.rdp(WHOLE), cost.rdp(WHOLE), rtol=1e-12), (
                f"event of {cost} must be the same mechanism, got {again}"
            )


def states_its_relation(made, examples):
    """Add/remove one record unless it says otherwise; whoever says otherwise is somebody else."""
    for cost in examples:
        assert cost.neighbours is dm.Neighbours.ADD_REMOVE_RECORD
        given = cost.arguments()
        for relation in dm.Neighbours:
            try:
                other = restated(cost, relation)
            except ValueError as error:
                if relation is not dm.Neighbours.REPLACE_ONE_RECORD or "Curve" not in str(error):
                    raise AssertionError(f"{cost} must take {relation}, or say why not") from error
                continue
            assert other.neighbours is relation, f"{made.__name__} must keep its relation"
            assert (other == cost) == (relation is cost.neighbours), (
                f"{made.__name__} of another relation must not be equal"
            )
            assert eval(repr(other), _names(made)) == other, f"repr must say it, got {other!r}"
            if other.loss(Direction.REMOVE) is not None:
                single_loss(other, Direction.ADD, 4)
        for wrong in ("add/remove one record", None, 1):
            try:
                made(**given, neighbours=wrong)
            except TypeError:
                continue
            raise AssertionError(f"{made.__name__} must refuse neighbours {wrong!r}")


CLAUSES = [
    states_its_parts,
    is_registered,
    is_a_value,
    curve_is_never_low,
    loss_dominates,
    checker_knows_it,
    is_written_down,
    is_taken_by_the_command_line,
    event_is_the_same_mechanism,
    states_its_relation,
]


def restated(value, relation):
    """A cost of another relation, and so what it is made of."""
    if isinstance(value, tuple):
        return tuple(restated(each, relation) for each in value)
    if not isinstance(value, dm.Cost):
        return value
    given = {name: restated(each, relation) for name, each in value.arguments().items()}
    return type(value)(**given, neighbours=relation)


def _names(made):
    names = {**vars(dp_accounting), **vars(dp_accounting.dp_event), "inf": math.inf}
    return names | {name: getattr(dm, name) for name in dm.__all__} | {made.__name__: made}


def _seen(cost):
    """What one run shows, if it is known how."""
    try:
        return outputs(cost)
    except (AttributeError, TypeError):
        return None


def _renyi(seen, way):
    """D_a at every order of what is seen: at most the truth, for intervals show less.

    The moment less 1 is the mean of x^a - 1 - a (x - 1), which is never negative: what is not
    looked at only lowers it, and small ones keep their digits.
    """
    p, q, d = seen if way is Direction.REMOVE else (seen.q, seen.p, -seen.d)
    near = np.abs(d / q) < 0.5
    loss = np.where(near, np.log1p(np.where(near, d / q, 0.0)), np.log(p) - np.log(q))
    excess = [float(q @ (np.expm1(a * loss) - a * d / q)) for a in ORDERS]
    return np.log1p(excess) / (np.array(ORDERS) - 1)
