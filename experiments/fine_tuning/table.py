# SPDX-License-Identifier: Apache-2.0
"""The tables of the README from results.json: python -m experiments.fine_tuning.table"""

from __future__ import annotations

import pathlib
from typing import Any

from experiments.fine_tuning.costs import best_constant
from experiments.record import load

FOLDER = pathlib.Path(__file__).parent
ADAPTIVE, ONE = "last adaptive", "last 1"
NAMES = {"ours": "our odometer", "paper": "the paper's odometer", "pld": "PLD"}


def name(arm: str) -> str:
    """What an arm is called."""
    return "adaptive" if arm == ADAPTIVE else f"noise {arm.removeprefix('last ')}"


def stop(facts: dict[str, Any], rule: str) -> str:
    """Epsilon where an arm was stopped: one number if all its seeds agree."""
    if not facts["reached"]:
        return "never"
    mean, least, most = facts[rule]
    return f"{mean:.3f}" if least == most else f"{mean:.3f} ({least:.3f} to {most:.3f})"


def epochs(facts: dict[str, Any]) -> str:
    """At which epoch an arm was stopped, and by how many seeds if not by all."""
    if not facts["reached"]:
        return "never"
    mean, least, most = facts["epoch"]
    when = f"{mean:g}" if least == most else f"{mean:g} ({least} to {most})"
    few = facts["reached"] < facts["runs"]
    return f"{when}, {facts['reached']} of {facts['runs']} seeds" if few else when


def targets(summary: dict[str, Any]) -> list[str]:
    """For each target and arm: when it was met and what it cost under each rule."""
    rows = [
        "| stop at | arm | epochs | " + " | ".join(NAMES.values()) + " |",
        "|---|---|---|---|---|---|",
    ]
    for target in summary[ADAPTIVE]["stopped at"]:
        fixed = target[0].isdigit()
        goal = f"{100 * float(target):g} %" if fixed else "80 % of its final accuracy"
        # A share of one's own final accuracy is another goal for every arm.
        constants = [arm for arm in summary if arm != ADAPTIVE] if fixed else []
        best = best_constant(summary, constants, target)
        for arm in dict.fromkeys([ONE, ADAPTIVE, *([best] if best else [])]):
            facts = summary[arm]["stopped at"][target]
            title = f"{name(arm)}, the best constant" if arm == best else name(arm)
            cells = [goal, title, epochs(facts), *(stop(facts, rule) for rule in NAMES)]
            rows.append("| " + " | ".join(cells) + " |")
    return rows


def ends(summary: dict[str, Any]) -> list[str]:
    """Accuracy and epsilon of every arm after all epochs."""
    rows = ["| arm | accuracy, % | our odometer | the paper's odometer |", "|---|---|---|---|"]
    for arm, facts in summary.items():
        mean, least, most = (100 * value for value in facts["final accuracy"])
        spent = [f"{facts['final epsilon'][rule][0]:.3f}" for rule in ("ours", "paper")]
        accuracy = f"{mean:.2f} ({least:.2f} to {most:.2f})"
        rows.append(f"| {name(arm)} | {accuracy} | " + " | ".join(spent) + " |")
    return rows


def main() -> None:
    """Prints both tables."""
    summary = load(FOLDER)["results"]["summary"]
    print("\n".join([*targets(summary), "", *ends(summary)]))


if __name__ == "__main__":
    main()
