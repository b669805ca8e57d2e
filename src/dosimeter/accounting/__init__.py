# SPDX-License-Identifier: Apache-2.0
"""Adaptive composition: filters that stop and odometers that read."""

from dosimeter.accounting.filter import Filter
from dosimeter.accounting.gate import Gate
from dosimeter.accounting.guarantee import FilterGuarantee, OdometerGuarantee, Standing
from dosimeter.accounting.mixture import Mixture, Tangent
from dosimeter.accounting.odometer import Odometer
from dosimeter.accounting.priced import Item, Menu, make_menu

__all__ = [
    "Filter",
    "FilterGuarantee",
    "Gate",
    "Item",
    "Menu",
    "Mixture",
    "Odometer",
    "OdometerGuarantee",
    "Standing",
    "Tangent",
    "make_menu",
]
