# SPDX-License-Identifier: Apache-2.0
"""python -m dosimeter.attack: plays the known counterexamples and prints who stands."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

from dosimeter.accounting import Filter, Gate
from dosimeter.accounting.classic import Conversion, CurveFilter, FixedOrderFilter
from dosimeter.accounting.priced.items import Menu
from dosimeter.accounting.priced.menu import make_menu
from dosimeter.compare.adversaries import examples
from dosimeter.compare.adversaries.buyer import best_buyer
from dosimeter.compare.adversaries.mechanism import FiniteMechanism
from dosimeter.compare.adversaries.play import Step, play
from dosimeter.compare.adversaries.search import Shape, strongest
from dosimeter.errors import UnsoundRuleWarning

_EPSILON, _DELTA, _ORDERS = examples.EPSILON, examples.DELTA, examples.ORDERS


def _curve(conversion: Conversion) -> Gate:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsoundRuleWarning)
        return CurveFilter(_EPSILON, _DELTA, orders=_ORDERS, conversion=conversion)


def _ours() -> Gate:
    return Filter(_EPSILON, _DELTA, orders=_ORDERS, weights=[0.5, 0.5])


_ITEMS = (FiniteMechanism((1.1,), (0.007,)), FiniteMechanism((0.4,), (0.08,)))


@functools.cache
def _menu() -> Menu:
    return make_menu(_ITEMS, _EPSILON, 0.8999 * _DELTA)


def _with_menu() -> Gate:
    return Filter(_EPSILON, _DELTA, menu=_menu())


RULES: list[tuple[str, Callable[[], Gate], str]] = [
    ("curve rule, tight conversion", lambda: _curve(Conversion.TIGHT), "hockey stick"),
    ("curve rule, paper's conversion", lambda: _curve(Conversion.TAIL), "tail"),
    ("fixed order 8", lambda: FixedOrderFilter(_EPSILON, _DELTA, order=8.0), "hockey stick"),
    ("fixed order 32", lambda: FixedOrderFilter(_EPSILON, _DELTA, order=32.0), "hockey stick"),
    ("dosimeter.Filter, equal weights", _ours, "hockey stick"),
    ("dosimeter.Filter with a menu", _with_menu, "hockey stick"),
]


def adversaries() -> list[tuple[str, Step]]:
    """The known counterexamples, the best that a short search finds, and the best buyer."""
    found, _ = strongest(_ours, _EPSILON, Shape(stages=1, outcomes=2), tries=60, restarts=1)
    buyer, _ = best_buyer(_with_menu, _EPSILON, _ITEMS, depth=6)
    named = [
        ("tight", examples.TIGHT_CONVERSION),
        ("tail", examples.TAIL_CONVERSION),
        ("searched", found),
        ("buyer", buyer),
    ]
    return [(name, step) for name, step in named if step is not None]


def main() -> None:
    """Prints one row per rule: the worst of the adversaries, in the measure the rule claims."""
    print(f"epsilon = {_EPSILON:g}, delta = {_DELTA:g}, orders {_ORDERS[0]:g} and {_ORDERS[1]:g}")
    print(f"{'rule':32} {'measure':12} {'claimed':>9} {'realised':>9} {'ratio':>7}  verdict")
    players = adversaries()
    for name, new_gate, measure in RULES:
        field = "tail" if measure == "tail" else "hockey_stick"
        worst = max(getattr(play(step, new_gate, _EPSILON), field) for _, step in players)
        verdict = "BROKEN" if worst > _DELTA else "holds"
        print(f"{name:32} {measure:12} {_DELTA:9.2e} {worst:9.2e} {worst / _DELTA:7.4f}  {verdict}")


if __name__ == "__main__":
    main()
