# SPDX-License-Identifier: Apache-2.0
"""Words: what the guarantee of a run means for a person whose record was in the data."""

from __future__ import annotations

import math
import textwrap

from dosimeter.recipe.accounts import Account
from dosimeter.recipe.config import Config
from dosimeter.rounding import at_most, exact, shortened
from dosimeter.training import History

_UNITS = {"images": "image", "cifar": "image", "digits": "image", "npz": "entry", "csv": "row"}


def in_words(account: Account) -> str:
    """What one may conclude from the results, in a sentence or two."""
    if not math.isfinite(account.gate.epsilon):
        return "Nothing is guaranteed: something without a finite cost was spent."
    epsilon = account.gate.epsilon if account.limit is None else account.limit
    what = (
        f"Whatever anyone concludes from the results of this run{_shared(account)} would be "
        f"concluded with at most {_factor(epsilon)} times the probability, plus "
        f"{account.delta!r}, had any one record been added or removed, and the other way round."
    )
    if account.limit is not None:
        return (
            f"{what} This was certain before training began; by its end epsilon "
            f"{at_most(account.gate.epsilon)} of {exact(account.limit)} had been spent."
        )
    return (
        f"{what} That is what had been spent when training ended: the reading of an odometer is "
        "valid at whatever moment one stops. It holds over all outcomes with no larger reading "
        "(ex-post)."
    )


def page(config: Config, account: Account, history: History, *, public: int) -> str:
    """guarantee.txt: the promise, what it covers, and what it rests on."""
    unit = _UNITS[config.data.kind]
    parts = [
        "What is guaranteed",
        shortened(history.guarantee),
        "In words",
        in_words(account),
        f"A record is one {unit} of the {history.records} that were trained on. Someone with "
        f"several of them is protected less: with k records, k times the epsilon "
        "and a larger delta.",
        "The results are model.safetensors, history.json, run.json, report.html, this page and "
        "checkpoint.pt. All of them may be given away.",
        "What it rests on",
        *_conditions(config, account, unit, public),
    ]
    return "\n\n".join(textwrap.fill(part, 80) for part in parts) + "\n"


def _conditions(config: Config, account: Account, unit: str, public: int) -> list[str]:
    found = [
        "- The number of records, the names of the classes and the size of an input are public.",
        "- The config was written without looking at the private records. Each run on the same "
        "data adds up, also one whose results were thrown away"
        + (
            "; this one was charged to a ledger, which counts them all."
            if account.kind == "ledger"
            else ": spend from a ledger if there is more than one."
        ),
        "- The run's folder was not set back to an earlier state, nor deleted to begin again, nor "
        "copied and resumed twice.",
        f"- Each {unit} is clipped by itself and scaled by itself, with nothing taken from "
        "other records.",
    ]
    if public:
        found.append(
            f"- The {public} records that accuracy was measured on are public: nothing is "
            "promised to them."
        )
    if config.training.seed is not None:
        found.append(
            "- A SEED WAS GIVEN: against anyone who knows or guesses it, nothing is promised "
            "to anyone."
        )
    return found


def _shared(account: Account) -> str:
    return " and of all others that spend from the same budget" if account.kind == "ledger" else ""


def _factor(epsilon: float) -> str:
    """e to the epsilon, rounded up."""
    if epsilon > 300:
        return f"e^{at_most(epsilon)}"
    factor = math.exp(epsilon)
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"{math.ceil(factor * 10**digits) / 10**digits:,.{digits}f} (e^{at_most(epsilon)})"
