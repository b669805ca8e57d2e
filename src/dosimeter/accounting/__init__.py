# SPDX-License-Identifier: Apache-2.0
"""Adaptive composition: filters that stop and odometers that read."""

from dosimeter.accounting.account import Account
from dosimeter.accounting.calibrate import epsilon_for, noise_for
from dosimeter.accounting.filter import Filter
from dosimeter.accounting.gate import Gate
from dosimeter.accounting.guarantee import Guarantee, Standing
from dosimeter.accounting.mixture import Mixture, Tangent
from dosimeter.accounting.odometer import Odometer
from dosimeter.accounting.priced import Item, Menu, make_menu
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
