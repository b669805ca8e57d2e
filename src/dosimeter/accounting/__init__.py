# SPDX-License-Identifier: Apache-2.0
"""Adaptive composition: filters that stop and odometers that read.

A name is loaded when it is first used: a ledger needs no calibration, and no prices without a menu.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dosimeter.accounting.account import Account
    from dosimeter.accounting.calibrate import epsilon_for, noise_for
    from dosimeter.accounting.filter import Filter
    from dosimeter.accounting.gate import Gate
    from dosimeter.accounting.guarantee import Guarantee, Standing
    from dosimeter.accounting.mixture import Mixture, Tangent
    from dosimeter.accounting.odometer import Odometer
    from dosimeter.accounting.priced.items import Item, Menu
    from dosimeter.accounting.priced.menu import make_menu
    from dosimeter.accounting.terms import Terms

__all__ = [
    "Account",
    "Filter",
    "Gate",
    "Guarantee",
    "Item",
    "Menu",
    "Mixture",
    "Odometer",
    "Standing",
    "Tangent",
    "Terms",
    "epsilon_for",
    "make_menu",
    "noise_for",
]

_HOMES = {
    **dict.fromkeys(("Item", "Menu"), "priced.items"),
    **dict.fromkeys(("epsilon_for", "noise_for"), "calibrate"),
    "Standing": "guarantee",
    "Tangent": "mixture",
    "make_menu": "priced.menu",
}
"""Where a name lives, if not in the module of the same name."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, name.lower())}")
    return globals().setdefault(name, getattr(home, name))
