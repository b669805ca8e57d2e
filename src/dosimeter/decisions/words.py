# SPDX-License-Identifier: Apache-2.0
"""Words: what the guarantee of a run means to someone whose record was in the data."""

from __future__ import annotations

import math

from dosimeter.neighbours import Neighbours
from dosimeter.rounding import at_most, exact

_HAD = {
    Neighbours.ADD_REMOVE_RECORD: "any one record been added or removed",
    Neighbours.REPLACE_ONE_RECORD: "any one record been replaced by another",
    Neighbours.ADD_REMOVE_USER: "all records of any one user been added or removed",
}


def in_words(
    kind: str,
    *,
    spent: float,
    limit: float | None,
    delta: float,
    neighbours: Neighbours = Neighbours.ADD_REMOVE_RECORD,
) -> str:
    """What one may conclude from the results of a run, in a sentence or two.

    Args:
        kind: "filter", "odometer" or "ledger".
        spent: The epsilon that was spent by the end, in a ledger by all.
        limit: The epsilon never to be passed; None where no limit was set.
        delta: The delta of the guarantee.
        neighbours: Which two data sets it speaks about.
    """
    if not math.isfinite(spent):
        return "Nothing is guaranteed: something without a finite cost was spent."
    shared = " and of all others that spend from the same budget" if kind == "ledger" else ""
    what = (
        f"Whatever anyone concludes from the results of this run{shared} would be concluded with "
        f"at most {_factor(spent if limit is None else limit)} times the probability, plus "
        f"{exact(delta)}, had {_HAD[neighbours]}, and the other way round."
    )
    if limit is not None:
        return (
            f"{what} This was certain before training began; by its end epsilon "
            f"{at_most(spent)} of {exact(limit)} had been spent."
        )
    return (
        f"{what} That is what had been spent when training ended; no limit was promised "
        "beforehand. The reading of an odometer is valid at whatever moment one stops. It holds "
        "over all outcomes with no larger reading (ex-post)."
    )


def _factor(epsilon: float) -> str:
    """e to the epsilon, rounded up."""
    if epsilon > 300:
        return f"e^{at_most(epsilon)}"
    factor = math.exp(epsilon)
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"{math.ceil(factor * 10**digits) / 10**digits:,.{digits}f} (e^{at_most(epsilon)})"
