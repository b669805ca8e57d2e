# SPDX-License-Identifier: Apache-2.0
"""guarantee.txt: the promise of a run in words, what it covers and what it rests on."""

from __future__ import annotations

import textwrap

from dosimeter.accounting import Guarantee
from dosimeter.rounding import shortened
from dosimeter.runs.config import Config
from dosimeter.runs.purse import Purse
from dosimeter.training import History

_UNITS = {"digits": "image", "npz": "entry", "csv": "row"}


def page(config: Config, purse: Purse, history: History, *, public: int) -> str:
    """guarantee.txt: the promise, what it covers, and what it rests on."""
    unit = _UNITS[config.data.kind]
    parts = [
        "What is guaranteed",
        shortened(history.guarantee),
        "In words",
        purse.in_words,
        f"A record is one {unit} of the {history.records} that were trained on. Someone with "
        f"several of them is protected less: with k records, k times the epsilon "
        "and a larger delta.",
        "The results are model.safetensors, history.json, run.json, report.html, this page and "
        "checkpoint.pt. All of them may be given away.",
        "What it rests on",
        *_conditions(config, purse, history.promise, unit, public),
    ]
    return "\n\n".join(textwrap.fill(part, 80) for part in parts) + "\n"


def _conditions(
    config: Config, purse: Purse, promise: Guarantee | None, unit: str, public: int
) -> list[str]:
    found = [
        "- The number of records, the names of the classes and the size of an input are public.",
        "- The config was written without looking at the private records. Each run on the same "
        "data adds up, also one whose results were thrown away"
        + (
            "; this one was charged to a ledger, which counts them all."
            if purse.kind == "ledger"
            else ": spend from a ledger if there is more than one."
        ),
        "- The run's folder was not set back to an earlier state, nor deleted to begin again, nor "
        "copied and resumed twice.",
        f"- Each {unit} is clipped by itself and scaled by itself, with nothing taken from "
        "other records.",
    ]
    if promise is not None and promise.menu:
        found.append(
            "- What the run could ask for was priced by dosimeter before its first step: its menu. "
            "Those prices hold if it is always the same one of the two data sets compared that has "
            f"the extra {unit} (the same side). That is so for the data as they are; data derived "
            "from others, say by an anti-join or a de-duplication, can break it: "
            "docs/sharp-edges.md, Menus."
        )
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
