# SPDX-License-Identifier: Apache-2.0
"""How delta is divided between a menu and the Rényi mixture beside it, and a menu's saved state.

Two potentials that start at 0.9 delta and 0.1 delta may stand side by side, and whichever still
holds is enough, provided that each is charged for every computation it admits and for every
computation the other admits, or is dropped for good (the OR-lemma in docs/prices.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dosimeter import arguments
from dosimeter.accounting.priced.counter import Counter
from dosimeter.accounting.priced.menu import Menu, make_menu
from dosimeter.accounting.priced.rates import Item
from dosimeter.errors import StateError
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain, to_plain

MIXTURE_SHARE = 0.1 * (1 - 1e-15)
MENU_SHARE = 0.9 * (1 - 1e-15)
"""Together below 1, so that no rounding of their products with delta can exceed it."""

ODOMETER_MIXTURE_SHARE = 0.05 * (1 - 1e-15)
LADDER_SHARE = 0.95 * (1 - 1e-15)
"""An odometer's ladder divides its share further, so the mixture beside it gets less."""

STATE_FIELDS = frozenset(["menu", "quanta_left", "prepaid", "menu_open"])


def menu_for(menu: Sequence[Cost] | Menu, epsilon: float, delta: float) -> Menu:
    """The menu of some costs for its share of a budget, or a menu made for such a budget."""
    share = delta * MENU_SHARE
    if isinstance(menu, Menu):
        if not (menu.epsilon <= epsilon and menu.delta <= share):
            raise ValueError(
                f"menu must be made for a budget within ({epsilon!r}, {share!r}), got "
                f"({menu.epsilon!r}, {menu.delta!r})"
            )
        return menu
    return make_menu(listed(menu), epsilon, share)


def listed(menu: Sequence[Cost]) -> tuple[Cost, ...]:
    """The costs of a menu, if it is a list of something."""
    if isinstance(menu, str | bytes | Cost) or not isinstance(menu, Sequence):
        raise TypeError(f"menu must be a list of costs, the nominal one first, got {menu!r}")
    return tuple(menu)


def plain_menu(menu: Menu) -> dict[str, Any]:
    """A menu as plain JSON values."""
    return {
        "epsilon": menu.epsilon,
        "delta": menu.delta,
        "quanta": menu.quanta,
        "items": [
            {"cost": to_plain(item.cost), "steps": item.steps, "price": item.price}
            for item in menu.items
        ],
    }


def read_menu(plain: Mapping[str, Any]) -> Menu:
    """The menu that `plain_menu` wrote; ValueError, TypeError or KeyError if it is none."""
    items = tuple(
        Item(
            from_plain(entry["cost"]),
            arguments.count("steps", entry["steps"]),
            arguments.count("price", entry["price"]),
        )
        for entry in plain["items"]
    )
    if not items or len({item.cost for item in items}) != len(items):
        raise ValueError(f"menu must hold every cost once, got {plain['items']!r}")
    return Menu(
        arguments.positive("menu epsilon", plain["epsilon"]),
        arguments.open_unit("menu delta", plain["delta"]),
        arguments.count("quanta", plain["quanta"]),
        items,
    )


def counter_state(counter: Counter) -> dict[str, Any]:
    """What a counter adds to a saved state."""
    return {
        "menu": plain_menu(counter.menu),
        "quanta_left": counter.quanta,
        "prepaid": [counter.prepaid.get(item.cost, 0) for item in counter.menu.items],
        "menu_open": counter.open,
    }


def restore_counter(counter: Counter, fields: Mapping[str, Any]) -> None:
    """Takes over the counts of a saved state into a counter of the same menu."""
    left, prepaid, is_open = fields["quanta_left"], fields["prepaid"], fields["menu_open"]
    whole = [left, *prepaid]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in whole):
        raise StateError(f"state quanta_left and prepaid must be whole numbers, got {whole!r}")
    items = counter.menu.items
    if not (left <= counter.menu.quanta and len(prepaid) == len(items)):
        raise StateError(f"state quanta_left must be within the menu's quanta, got {left!r}")
    if not isinstance(is_open, bool):
        raise StateError(f"state menu_open must be true or false, got {is_open!r}")
    counter.quanta, counter.open = left, is_open
    counter.prepaid = {item.cost: runs for item, runs in zip(items, prepaid, strict=True) if runs}
