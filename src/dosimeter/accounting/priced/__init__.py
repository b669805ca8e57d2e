# SPDX-License-Identifier: Apache-2.0
"""Priced menus: adaptive spending at nearly the price of an exact accountant."""

from dosimeter.accounting.priced.menu import Menu, make_menu
from dosimeter.accounting.priced.rates import Item

__all__ = ["Item", "Menu", "make_menu"]
