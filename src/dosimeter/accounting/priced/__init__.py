# SPDX-License-Identifier: Apache-2.0
"""Priced menus: adaptive spending at nearly the price of an exact accountant."""
