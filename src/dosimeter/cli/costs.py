# SPDX-License-Identifier: Apache-2.0
"""Costs as the command line writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dosimeter.rdp import Cost

OPTIONS = {
    "gaussian": ("gaussian", ("noise_multiplier",)),
    "laplace": ("laplace", ("scale",)),
    "sampled_gaussian": ("sampled_gaussian", ("sample_rate", "noise_multiplier")),
    "pure": ("pure_dp", ("epsilon",)),
    "approx": ("approx_dp", ("epsilon", "delta")),
    "zcdp": ("zcdp", ("rho", "xi")),
}
"""The option, the kind of plain cost it makes, and the numbers it takes, comma-separated."""


def cost_from(options: dict[str, str | None]) -> Cost:
    """The cost that exactly one of the options describes.

    Raises:
        ValueError: None or several were given, or one that describes no cost.
    """
    from dosimeter.rdp.plain import from_plain

    given = {name: text for name, text in options.items() if text is not None}
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise ValueError(f"cost must be given by exactly one of {names}, got {len(given)}")
    ((name, text),) = given.items()
    if name == "cost":
        return from_plain(json.loads(text))
    kind, fields = OPTIONS[name]
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if name == "zcdp" and len(numbers) == 1:
        numbers.append(0.0)
    if len(numbers) != len(fields):
        raise ValueError(
            f"--{name.replace('_', '-')} must be {','.join(fields).upper()}, got {text!r}"
        )
    return from_plain({"kind": kind, **dict(zip(fields, numbers, strict=True))})
