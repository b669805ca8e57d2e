# SPDX-License-Identifier: Apache-2.0
"""Costs as the command line writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
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

_EXAMPLE = """'{"kind": "gaussian", "noise_multiplier": 20}'"""


def cost_from(options: dict[str, str | None]) -> Cost:
    """The cost that exactly one of the options describes.

    Raises:
        ValueError: None or several were given, or one that describes no cost.
    """
    from dosimeter.rdp.plain import from_plain

    given = {name: text for name, text in options.items() if text is not None}
    if len(given) != 1:
        got = _options(given) or "none"
        raise ValueError(f"cost must be given by exactly one of {_options(options)}, got {got}")
    ((name, text),) = given.items()
    if name == "cost":
        try:
            return from_plain(json.loads(text))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"--cost must be JSON such as {_EXAMPLE}, got {text}: {error}"
            ) from error
    kind, fields = OPTIONS[name]
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if name == "zcdp" and len(numbers) == 1:
        numbers.append(0.0)
    if len(numbers) != len(fields):
        raise ValueError(f"{_options([name])} must be {','.join(fields).upper()}, got {text!r}")
    try:
        return from_plain({"kind": kind, **dict(zip(fields, numbers, strict=True))})
    except ValueError as error:
        if len(fields) > 1:
            error.add_note(f"{_options([name])} takes {','.join(fields).upper()} in this order")
        raise


def _options(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
