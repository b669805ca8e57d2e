# SPDX-License-Identifier: Apache-2.0
"""Numbers for people; an epsilon is never said smaller than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal


def number(value: float) -> str:
    """A number with at most four decimals, thousands apart, no exponent where none is needed."""
    if math.isinf(value):
        return "∞"
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    text = f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"
    return text.rstrip("0").rstrip(".")


def at_most(value: float, *, padded: bool = False) -> str:
    """An epsilon to three decimals (one from 100 on, three digits below 0.01), rounded up.

    Args:
        value: The epsilon.
        padded: Whether zeros at the end stay, as in a column of them.
    """
    if not math.isfinite(value):
        return "∞"
    if value == 0:
        return "0"
    exact = Decimal(value)
    places = 1 if value >= 100 else 3 if value >= 0.01 else 2 - exact.adjusted()
    near = round(value, places)
    # A float that is the nearest one to a short decimal is said as that decimal.
    shown = Decimal(repr(near)) if near == value else exact
    up = shown.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING)
    if value < 1e-4:
        return f"{float(up):g}"
    return f"{up:,f}" if padded else f"{up:,f}".rstrip("0").rstrip(".")
