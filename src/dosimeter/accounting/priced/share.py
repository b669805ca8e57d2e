# SPDX-License-Identifier: Apache-2.0
"""How delta is divided between a menu and the Rényi mixture beside it, and a menu's plain form.

That whichever of the two still holds is enough is the OR-lemma; `Account` is where it is kept. What
makes and confirms prices is loaded by whoever has a menu.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dosimeter import arguments
from dosimeter.accounting.priced.cache import FORMAT, remembered
from dosimeter.accounting.priced.items import Direction, Item, Ladder, Menu, Plan
from dosimeter.errors import StateError
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain, to_plain

_CREDIT = 0.02
"""What pays for strangers beside a filter's menu."""

_BESIDE = 0.1
_LEAST_BESIDE = 0.03
_BELOW = 1 - 1e-15
"""What of delta a filter's menu leaves to credit and mixture: at an epsilon of 1 or more, and at
least; and a factor that rounds down."""

LADDER_SHARE = 0.98 * _BELOW
"""An odometer's ladder needs its share at every moment, so the mixture beside it gets less."""

_MOST_BESIDE_LADDER = 0.05
"""The mixture has no more beside a ladder, nor more than a tenth beside a menu, however little they
take: states and ledgers of the time when it always had so much read as they did."""

FIELDS = frozenset(["menu", "menu_format", "readings"])
"""What a menu or a ladder adds to plain terms."""


def menu_part(epsilon: float, delta: float) -> float:
    """What of delta a menu gets. Of a small budget it is more: a few jumps use it up run by run."""
    beside = max(_LEAST_BESIDE, _BESIDE * math.sqrt(min(1.0, epsilon)))
    return delta * ((1 - beside) * _BELOW)


def mixture_part(made: Menu | Ladder, delta: float) -> float:
    """What of delta the mixture beside a menu or a ladder gets: what is left, rounded down."""
    menu, most = (made, _BESIDE) if isinstance(made, Menu) else (made.menu, _MOST_BESIDE_LADDER)
    return min(delta * (most * _BELOW), (delta - menu.delta) * _BELOW) - menu.credit


def menu_for(menu: Sequence[Cost] | Menu, epsilon: float, delta: float) -> Menu:
    """The menu of some costs for its share of a budget, or a menu made for such a budget."""
    from dosimeter.accounting.priced.menu import checked, make_menu
    from dosimeter.accounting.priced.verify import require_menu

    share, credit = menu_part(epsilon, delta), delta * _CREDIT
    if isinstance(menu, Menu):
        menu = _whole(_within(menu, epsilon, delta))
        require_menu(menu)
        return menu
    costs = checked(listed(menu))
    plain = remembered(
        "menu",
        costs,
        {"epsilon": epsilon, "delta": share, "credit": credit},
        lambda: _described(make_menu(costs, epsilon, share, credit=credit)),
        lambda found: require_menu(_within(_with_costs(found, costs), epsilon, delta)),
    )
    return _with_costs(plain, costs)


def fits_menu(planned: Sequence[tuple[Cost, int]], epsilon: float, delta: float) -> bool:
    """Whether a plan that is fixed beforehand fits into a menu's share of a budget.

    By exact losses: the menu of its costs comes close, and takes longer to make.
    """
    from dosimeter.accounting.priced.menu import Losses, budget_level, hockey_stick

    share = menu_part(epsilon, delta)
    losses = Losses(epsilon, share, budget_level(epsilon, share) + 1)
    for way in Direction:
        total = None
        for cost, count in planned:
            part = losses.of(cost, count, way)
            total = part if total is None else total.plus(part)
        if total is not None and not hockey_stick(total, epsilon) <= share:
            return False
    return True


def _within(menu: Menu, epsilon: float, delta: float) -> Menu:
    """The menu, if it is made for shares of a budget no larger than this one."""
    share, credit = delta * ((1 - _LEAST_BESIDE) * _BELOW), delta * _CREDIT
    if not (menu.epsilon <= epsilon and menu.delta <= share and menu.credit <= credit):
        raise ValueError(
            f"menu must be made for a budget within ({epsilon!r}, {share!r}) and a credit of at "
            f"most {credit!r}, got ({menu.epsilon!r}, {menu.delta!r}) and {menu.credit!r}"
        )
    return menu


def _whole(menu: Menu) -> Menu:
    """The menu in Python's own whole numbers: those of numpy wrap."""
    return _with_costs(_described(menu), [item.cost for item in menu.items])


def _described(menu: Menu) -> dict[str, Any]:
    """What a menu adds to its costs."""
    return {
        "epsilon": menu.epsilon,
        "delta": menu.delta,
        "quanta": menu.quanta,
        "bundles": [[item.steps, item.price] for item in menu.items],
        "credit": menu.credit,
    }


def _with_costs(plain: Mapping[str, Any], costs: Sequence[Cost]) -> Menu:
    items = tuple(
        Item(cost, arguments.count("steps", steps), arguments.count("price", price))
        for cost, (steps, price) in zip(costs, plain["bundles"], strict=True)
    )
    return Menu(
        arguments.positive("menu epsilon", plain["epsilon"]),
        arguments.open_unit("menu delta", plain["delta"]),
        arguments.count("quanta", plain["quanta"]),
        items,
        arguments.non_negative("menu credit", plain.get("credit", 0.0)),
    )


def ladder_for(menu: Sequence[Cost] | Ladder, delta: float, plan: Plan | None) -> Ladder:
    """The ladder of some costs for its share of delta, or one made for such a share."""
    from dosimeter.accounting.priced.ladder import make_ladder
    from dosimeter.accounting.priced.menu import checked
    from dosimeter.accounting.priced.verify import require_ladder

    share = delta * LADDER_SHARE
    if isinstance(menu, Ladder):
        menu = _at_most(menu, share)
        menu = Ladder(_whole(menu.menu), menu.readings)
        require_ladder(menu)
        return menu
    costs = checked(listed(menu))
    plan = None if plan is None else _checked_plan(plan, costs)
    planned = None if plan is None else [costs.index(plan[0]), plan[1]]

    def compute() -> dict[str, Any]:
        made = make_ladder(costs, share, plan)
        return {**_described(made.menu), "readings": list(made.readings)}

    plain = remembered(
        "ladder",
        costs,
        {"delta": share, "plan": planned},
        compute,
        lambda found: require_ladder(_at_most(_ladder(_with_costs(found, costs), found), share)),
    )
    return _ladder(_with_costs(plain, costs), plain)


def _checked_plan(plan: Plan, costs: Sequence[Cost]) -> Plan:
    """A cost on the menu and a count, or the least and the largest of a window."""
    if not (isinstance(plan, tuple) and len(plan) == 2 and isinstance(plan[0], Cost)):
        raise TypeError(f"plan must be a pair (cost, count) or (cost, (low, high)), got {plan!r}")
    cost, counts = plan
    if cost not in costs:
        raise ValueError(f"plan must be for a cost on the menu, got {cost}")
    if not isinstance(counts, tuple):
        return cost, arguments.count("plan count", counts)
    if len(counts) != 2:
        raise TypeError(f"plan must be a pair (cost, count) or (cost, (low, high)), got {plan!r}")
    low, high = (arguments.count("plan count", count) for count in counts)
    if not low <= high:
        raise ValueError(f"plan must be a window (low, high) with low <= high, got {counts!r}")
    return cost, (low, high)


def _at_most(ladder: Ladder, delta: float) -> Ladder:
    """The ladder, if it is made for no more than this delta."""
    if ladder.menu.credit:
        raise ValueError(f"menu must have no credit with readings, got {ladder.menu.credit!r}")
    if not ladder.menu.delta <= delta:
        raise ValueError(
            f"menu must be made for a delta of at most {delta!r}, got {ladder.menu.delta!r}"
        )
    return ladder


def plain_menu(menu: Menu, readings: tuple[float, ...] | None) -> dict[str, Any]:
    """A menu or a ladder as plain JSON values, with the rules of pricing that made it."""
    plain = {
        "epsilon": menu.epsilon,
        "delta": menu.delta,
        "quanta": menu.quanta,
        "items": [plain_item(item) for item in menu.items],
        **({"credit": menu.credit} if menu.credit else {}),
    }
    more = {} if readings is None else {"readings": list(readings)}
    return {"menu": plain, "menu_format": FORMAT, **more}


def plain_item(item: Item) -> dict[str, Any]:
    """An item as plain JSON values."""
    return {"cost": to_plain(item.cost), "steps": item.steps, "price": item.price}


def read_item(plain: Mapping[str, Any]) -> Item:
    """What `plain_item` wrote; ValueError, TypeError or KeyError if it did not."""
    steps, price = (arguments.count(name, plain[name]) for name in ("steps", "price"))
    return Item(from_plain(plain["cost"]), steps, price)


def confirm_strangers(menu: Menu, strangers: Sequence[Item]) -> None:
    """Raises ValueError unless a menu may have sold these besides its own items."""
    if not strangers:
        return
    from dosimeter.accounting.priced.verify import require_stranger

    if len({item.cost for item in strangers}) != len(strangers):
        raise ValueError(f"strangers must be listed once each, got {strangers}")
    for item in strangers:
        require_stranger(menu, item)


def read_menu(plain: Mapping[str, Any]) -> Menu | Ladder:
    """What `plain_menu` wrote; ValueError, TypeError or KeyError if it did not.

    Raises:
        StateError: The prices are of other rules.
    """
    require_format(plain)
    items = [read_item(item) for item in plain["menu"]["items"]]
    bundles = [[item.steps, item.price] for item in items]
    menu = _with_costs({**plain["menu"], "bundles": bundles}, [item.cost for item in items])
    return _ladder(menu, plain) if "readings" in plain else menu


def _ladder(menu: Menu, plain: Mapping[str, Any]) -> Ladder:
    readings = tuple(arguments.non_negative("readings", value) for value in plain["readings"])
    return Ladder(menu, readings)


def listed(menu: Sequence[Cost]) -> tuple[Cost, ...]:
    """The costs of a menu, if it is a list of something."""
    if isinstance(menu, str | bytes | Cost) or not isinstance(menu, Sequence):
        raise TypeError(f"menu must be a list of costs, the nominal one first, got {menu!r}")
    return tuple(menu)


def require_format(plain: Mapping[str, Any]) -> None:
    """Raise StateError for a menu that other rules of pricing made."""
    found = plain.get("menu_format")
    if isinstance(found, bool) or found != FORMAT:
        raise StateError(
            f"state menu_format must be {FORMAT}, got {found!r}: its prices are of another version "
            "and may be too low. Make a new gate and spend what was spent before anything else."
        )
