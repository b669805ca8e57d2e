# SPDX-License-Identifier: Apache-2.0
"""Priced menus: adaptive spending at nearly the price of an exact accountant."""

from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.accounting.priced.menu import make_menu

__all__ = ["Item", "Menu", "make_menu"]
