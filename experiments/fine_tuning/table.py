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
    """Epsilon where an arm was stopped, or how many of its seeds got there."""
    if facts["reached"] < facts["runs"]:
        return f"{facts['reached']} of {facts['runs']} seeds get there"
    mean, least, most = facts[rule]
    return f"{mean:.3f} ({least:.3f} to {most:.3f})"


def epochs(facts: dict[str, Any]) -> str:
    """At which epoch an arm was stopped."""
    mean, least, most = facts["epoch"]
    return f"{mean:g}" if least == most else f"{mean:g} ({least} to {most})"


def targets(summary: dict[str, Any]) -> list[str]:
    """For each target and arm: when it was met and what it cost under each rule."""
    rows = [
        "| stop at | arm | epochs | " + " | ".join(NAMES.values()) + " |",
        "|---|---|---|---|---|---|",
    ]
    for target in summary[ADAPTIVE]["stopped at"]:
        best = best_constant(summary, [arm for arm in summary if arm != ADAPTIVE], target)
        shown = dict.fromkeys([ONE, ADAPTIVE, *([best] if best else [])])
        for arm in shown:
            facts = summary[arm]["stopped at"][target]
            goal = f"{100 * float(target):g} %" if target[0].isdigit() else "80 % of final"
            title = f"**{name(arm)}**, best constant" if arm == best else name(arm)
            when = epochs(facts) if facts["reached"] else "never"
            cells = [stop(facts, rule) for rule in NAMES]
            rows.append(f"| {goal} | {title} | {when} | " + " | ".join(cells) + " |")
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
