# SPDX-License-Identifier: Apache-2.0
"""Privacy figures for people: what is spent rounds up, what is left down, what was set not at all.

`number` alone rounds to the nearest, and is for what is no privacy figure. Needs nothing but the
standard library, so that every part may say its figures the same way.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_READING = re.compile(r"^ex-post \((\d[\d.e+-]*), ")


def at_most(value: float, *, padded: bool = False) -> str:
    """An epsilon to three decimals (one from 100 on, three digits below 0.01), rounded up.

    Args:
        value: The epsilon.
        padded: Whether zeros at the end stay, as in a column of them.
    """
    return _short(value, ROUND_CEILING, padded=padded)


def at_least(value: float) -> str:
    """What is left of an epsilon, to the same digits, rounded down; of no number nothing is."""
    if not value >= 0:
        return "0"
    return _short(value, ROUND_FLOOR, padded=False)


def exact(value: float) -> str:
    """A limit or a delta in the fewest digits that name it and nothing near it."""
    return repr(float(value)).removesuffix(".0")


def share_words(share: float) -> str:
    """A share in percent, rounded up; all of it only when nothing is left."""
    tenths = math.ceil(1000 * share - 1e-6)
    return "100 %" if share >= 1 else f"{min(tenths, 999) / 10:g} %"


def not_negative(value: float) -> float:
    """The value, or 0 if it is below; NaN stays NaN, of which `max(0.0, value)` makes 0."""
    return 0.0 if value < 0 else value


def in_six_digits(value: float, *, up: bool) -> str:
    """A number of a cost for people: as it is, or rounded to six digits against whoever spends.

    What floating-point arithmetic left behind, up to a part in 10¹², is taken off both ways, so
    that costs worked out twice read the same. Whoever needs the number itself has it from `--json`.

    Args:
        value: The number.
        up: Whether the cost grows with it.
    """
    near = float(f"{value:.6g}")
    if not math.isfinite(value) or near == value or abs(near - value) <= 1e-12 * abs(value):
        return exact(near)
    true = Decimal(value)
    step = Decimal(1).scaleb(true.adjusted() - 5)
    return exact(float(true.quantize(step, rounding=ROUND_CEILING if up else ROUND_FLOOR)))


def shortened(guarantee: str) -> str:
    """A formal guarantee for people: an odometer's reading in it is rounded up, limits stay.

    Guarantee:
        What is said holds if what was given does: a reading e bounds every set of outcomes with
        readings of at most e, for each e (docs/guarantees.md, point 1).
    """
    found = _READING.match(guarantee)
    if found is None:
        return guarantee
    reading = found[1]
    up = at_most(float(reading)).replace(",", "")
    return guarantee.replace(f"({reading},", f"({up},").replace(f"e^{reading} ", f"e^{up} ")


def _short(value: float, rounding: str, *, padded: bool) -> str:
    if not math.isfinite(value):
        return "∞"
    if value == 0:
        return "0"
    true = Decimal(value)
    if value >= 1e15:
        step = Decimal(1).scaleb(true.adjusted() - 2)
        return f"{true.quantize(step, rounding=rounding).normalize():e}"
    places = 1 if value >= 100 else 3 if value >= 0.01 else 2 - true.adjusted()
    near = round(value, places)
    # A float that is the nearest one to a short decimal is said as that decimal.
    shown = Decimal(repr(near)) if near == value else true
    short = shown.quantize(Decimal(1).scaleb(-places), rounding=rounding)
    if value < 1e-4:
        return f"{float(short):g}"
    return f"{short:,f}" if padded else f"{short:,f}".rstrip("0").rstrip(".")


def number(value: float) -> str:
    """Return a number that is no privacy figure, to at most four decimals, thousands apart.

    An exponent is used only where it is needed.
    """
    if math.isinf(value):
        return "∞"
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    text = f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"
    return text.rstrip("0").rstrip(".")
