# SPDX-License-Identifier: Apache-2.0
"""Numbers for people that are not privacy figures; those are said by dosimeter.rounding."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """A number with at most four decimals, thousands apart, no exponent where none is needed."""
    if math.isinf(value):
        return "∞"
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    text = f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"
    return text.rstrip("0").rstrip(".")
